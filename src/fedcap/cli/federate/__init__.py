"""`fedcap federate`: the same methods on a real federation, for its operator and for its sites."""

from __future__ import annotations

from fedcap.cli.federate import audits, checking, clients, enrolling, planning, rehearsing, running, starting
from fedcap.cli.federate.app import FederateApp

app = FederateApp("Train with sites whose data stay where they are, some of which may be hostile.")
app.command()(rehearsing.rehearse)
app.command()(starting.init)
app.command()(enrolling.enrol)
app.command()(enrolling.approve)
app.command()(running.server)
app.command()(running.site)
app.command()(clients.clients)
app.command()(clients.remove)
app.command()(clients.readmit)
app.command()(clients.status)
app.command()(checking.check)
app.command("show-plan")(planning.show_plan)
app.command()(running.customise)
app.add_typer(audits.app, name="audit")
