"""`fedcap federate enrol` and `approve`: a site asks to take part, and the operator takes it in.

One file goes each way, and nothing in either is secret. Both sides see the same fingerprints, to be
compared by telephone before anybody trusts anybody.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcap.cli.federate.app import OperatorDirectory
from fedcap.cli.output import AsJson, print_json
from fedcap.cli.settings import Overrides, parse_setting
from fedcap.errors import InputError


def enrol(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The site's directory, a new one.")],
    invitation: Annotated[Path, typer.Option(help="The invitation that the operator sent.")],
    name: Annotated[str, typer.Option(help="What the site is called.")],
    dataset: Annotated[
        str, typer.Option(help="The site's data: data set, FILE.csv, FILE.npz, or folder; they stay here.")
    ],
    client: Annotated[
        str | None, typer.Option(help="Whose samples of the data set the site has. [default: all]")
    ] = None,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Set a site up: its key, which never leaves it, its configuration, and a request for the operator."""
    from fedcap import data
    from fedcap.federation.config import POLICY, SITE, Invitation
    from fedcap.federation.setup import set_up_site
    from fedcap.runs import overlay

    invited = Invitation.read(invitation)
    content: dict[str, Any] = {"name": name, "dataset": data.table(dataset)}
    content |= {} if client is None else {"client": client}
    for setting in settings or []:
        content = overlay(content, parse_setting(setting))
    made = set_up_site(directory, invited, content)
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
    typer.echo(f"{name}, a site of {invited.plan.name} at {invited.server}")
    typer.echo(f"  this site's fingerprint  {made.client}")
    typer.echo(f"  server's fingerprint     {made.server}")
    typer.echo("")
    typer.echo(f"Next: send {made.request} to the operator, and compare both fingerprints by telephone.")
    typer.echo(f"  fedcap federate show-plan {directory}    read the plan; with --agree, agree to it")
    typer.echo(f"  fedcap federate check {directory}        what is wrong, before anything starts")
    typer.echo(f"  fedcap federate site {directory}         take part")
    typer.echo(f"What this site agrees to is in {directory / POLICY}, its data in {directory / SITE}.")


def approve(
    directory: OperatorDirectory,
    request: Annotated[
        str,
        typer.Argument(metavar="REQUEST", help="A site's request file, or the name of one that has asked."),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="The fingerprint was compared with the site's: do not ask.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why; it is kept in the ledger and in the audit.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take a site in, once its fingerprint was compared with the one that the site reads out.

    A running server lets it in within a few seconds.
    """
    from fedcap.federation.audit import bounded
    from fedcap.federation.config import Operator
    from fedcap.federation.keys import JoinRequest
    from fedcap.federation.ledger import State

    ledger = Operator.open(directory).ledger
    if Path(request).is_file():
        asked = JoinRequest.read(Path(request))
        entry = ledger.ask(asked.client, asked.name, asked.key)
    else:
        entry = ledger.find(request)
    if entry.state == State.REMOVED:
        raise InputError(
            f"{entry.name} was removed: {entry.changes[-1].reason}; to take it back: fedcap federate readmit"
            f" {directory} {entry.name} --reason TEXT"
        )
    fresh = entry.state == State.ASKED
    if fresh and not yes:
        typer.echo(f"{entry.name} has the fingerprint  {entry.client}", err=as_json)
        if not sys.stdin.isatty():
            raise InputError(
                f"compare it with the one that {entry.name} reads out by telephone, and then add --yes"
            )
        fresh = typer.confirm("Is it the one that the site reads out by telephone?", err=as_json)
        if not fresh:
            raise InputError(
                f"{entry.name} was not taken in: fedcap federate approve {directory} {entry.name}"
            )
    if fresh:
        ledger.approve(entry.client, reason=bounded(reason))
    entry = ledger.find(entry.client)
    if as_json:
        print_json({"client": entry.client, "name": entry.name, "state": entry.state, "new": fresh})
    elif fresh:
        typer.echo(f"{entry.name} ({entry.client}) may take part")
    else:
        typer.echo(f"{entry.name} ({entry.client}) was taken in before: it is {entry.state}")
