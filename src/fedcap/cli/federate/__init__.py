"""`fedcap federate`: train with real sites, for the operator of the server and for the sites."""

from __future__ import annotations

from fedcap.cli.common import App
from fedcap.cli.federate import inspect, operator, rehearse, site
from fedcap.cli.federate.common import NeedsFlower

app = App(
    "Train with sites whose data stay where they are.\n\n"
    "fedcap federate rehearse shows all of it on one machine.",
    cls=NeedsFlower,
)
app.command()(rehearse.rehearse)
app.command()(operator.init)
app.command()(site.join)
app.command()(operator.approve)
app.command()(operator.serve)
app.command()(site.site)
app.command()(site.agree)
app.command()(inspect.status)
app.command()(operator.remove)
app.command()(operator.readmit)
app.command()(site.customise)
app.command()(inspect.check)
app.command()(inspect.audit)
