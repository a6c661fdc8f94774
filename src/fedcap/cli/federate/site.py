"""`fedcap federate join`, `site`, `agree` and `customise`: a site of a federation.

A site joins with the operator's invitation and sends back a request. Neither file is secret: both sides
compare fingerprints by telephone. The site agrees to one plan, and takes part with data that never leave it.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcap.cli.common import AsJson, DataOverrides, echo, given, print_json, until_stopped, with_settings
from fedcap.cli.federate.common import SiteFolder, confirmed, printer
from fedcap.errors import InputError, plural

CUSTOMISE_SECONDS = 600.0


def join(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The site's directory, a new one.")],
    invitation: Annotated[Path, typer.Option(metavar="FILE", help="The operator's invitation.")],
    name: Annotated[str, typer.Option(help="The site's name.")],
    dataset: Annotated[
        str, typer.Option(help="The site's data, which stay here: data set, FILE.csv, FILE.npz, or folder.")
    ],
    client: Annotated[
        str | None, typer.Option(help="The client of the data set whose samples the site has. [default: all]")
    ] = None,
    settings: DataOverrides = None,
    as_json: AsJson = False,
) -> None:
    """Set up a site with the operator's invitation.

    It makes a key that never leaves the site, the site's configuration, and a request for the operator.
    """
    from fedcap import data
    from fedcap.federation.config import POLICY, SITE, Invitation
    from fedcap.federation.setup import set_up_site

    invited = Invitation.read(invitation)
    content: dict[str, Any] = {"name": name, "dataset": data.table(dataset), **given(client=client)}
    made = set_up_site(directory, invited, with_settings(content, settings))
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "name": name,
                "fingerprint": made.client,
                "server": invited.server,
                "server_fingerprint": made.server,
                "plan": invited.plan.digest,
                "request": str(made.request),
            }
        )
        return
    echo(f"{name}, a site of {invited.plan.name} at {invited.server}")
    echo(f"  this site's fingerprint  {made.client}")
    echo(f"  server's fingerprint     {made.server}")
    echo("")
    echo(f"Next: send {made.request} to the operator, and compare both fingerprints by telephone.")
    echo(f"  fedcap federate agree {directory}    read the plan, and agree to it")
    echo(f"  fedcap federate check {directory}    find problems before the start")
    echo(f"  fedcap federate site {directory}     take part")
    echo(f"{directory / POLICY} limits what this site agrees to, {directory / SITE} names its data.")


def agree(
    directory: SiteFolder,
    invitation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A new invitation, whose plan replaces the one before."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="You read the plan: agree without a question.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read the plan of the federation, and agree to it.

    The site takes part only in plans that it has agreed to, and that its policy.toml allows.
    """
    from fedcap.federation.config import AUTHORITY, INVITATION, POLICY, Invitation, SiteDirectory
    from fedcap.federation.plan import SitePolicy
    from fedcap.files import write_aside

    site = SiteDirectory.open(directory)
    invited = Invitation.read(invitation or directory / INVITATION)
    if invitation is not None:
        if invited.certificate != (directory / AUTHORITY).read_text():
            raise InputError(
                f"{invitation} is of another server than this site trusts: compare fingerprints by telephone,"
                " and join in a new directory",
                code="other-server",
                field=str(invitation),
            )
        write_aside(directory / INVITATION, invited.text())
    plan = invited.plan
    objection = SitePolicy.read(directory / POLICY).objection(plan)
    agreed = plan.digest in site.plans()
    if not as_json:
        echo(f"{plan.text()}\ndigest  {plan.digest}")
    if objection is None and not agreed and confirmed("Does this site agree to this plan?", yes, as_json):
        site.agree(plan)
        agreed = True
    if as_json:
        facts = {"digest": plan.digest, "plan": plan.model_dump(mode="json")}
        print_json({**facts, "agreed": agreed, "objection": objection})
    elif agreed:
        echo("This site has agreed to this plan.")
    if objection is not None:
        raise InputError(
            f"{directory / POLICY} forbids this plan: {objection}", code="forbidden", field="plan"
        )
    if not agreed:
        raise InputError(
            "this site has not agreed to this plan: read it, then add --yes",
            code="not-confirmed",
            field="plan",
        )


def site(directory: SiteFolder, as_json: AsJson = False) -> None:
    """Take part in a federation with this site's data.

    The site waits until the server can be reached. It prints a line for each event, as JSON with --json.
    Ctrl-C or SIGTERM stops it. It ends when the federation is finished and the server has ended.
    """
    from fedcap.federation.config import SiteDirectory
    from fedcap.federation.flower.node import run_site

    opened, say = SiteDirectory.open(directory), printer(as_json)
    log, handler = logging.getLogger("fedcap"), logging.StreamHandler(sys.stderr)
    log.addHandler(handler)
    try:
        with until_stopped() as stop:
            run_site(opened, say, stop)
            say("stopped")
    finally:
        log.removeHandler(handler)


def customise(
    directory: SiteFolder,
    seconds: Annotated[float, typer.Option(help="How long to wait for the model.")] = CUSTOMISE_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Ask for a model for this site without taking part in rounds.

    The site must be running. It trains once, from the global model. The plan limits the number of such
    models: each reveals something about the sites that are most similar.
    """
    from fedcap.federation.config import SiteDirectory, is_held

    opened = SiteDirectory.open(directory)
    if not is_held(directory):
        raise InputError(
            f"start the site first: fedcap federate site {directory}",
            code="not-running",
            field=str(directory),
        )
    before = sum(event.event == "customised" for event in opened.audit.events())
    most = sum(plan.customised for plan in opened.plans().values())
    if before >= most:
        raise InputError(
            f"this site has received {plural(before, 'model')}, and its plan allows no more",
            code="no-more-models",
        )
    opened.wish.touch()
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            received = [event for event in opened.audit.events() if event.event == "customised"]
            if len(received) > before:
                break
            time.sleep(0.5)
        else:
            raise InputError(
                f"no model arrived within {seconds:g} s: is the site connected, and was a round played? Sites"
                " that take part in rounds receive none",
                code="no-model",
            )
    finally:
        opened.wish.unlink(missing_ok=True)
    if as_json:
        print_json({"directory": str(directory), "round": received[-1].round})
    else:
        echo(
            f"received a model for this site after round {received[-1].round}: fedcap predict {directory}"
            " INPUT.npz"
        )
