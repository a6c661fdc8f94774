"""`fedcap federate clients`, `remove`, `readmit` and `status`: who takes part, and how the federation is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.federate.app import EitherDirectory, OperatorDirectory, is_operators
from fedcap.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from fedcap.federation.ledger import Ledger, LedgerEntry

Who = Annotated[str, typer.Argument(metavar="CLIENT", help="Its name, its fingerprint, or how that begins.")]
Why = Annotated[str, typer.Option(help="Why; it is kept in the ledger and in the audit.")]


def clients(directory: OperatorDirectory, as_json: AsJson = False) -> None:
    """List the clients: who each is, what it weighs, how it scores, what became of it and why."""
    from fedcap.federation.config import Operator
    from fedcap.federation.status import clients_table

    operator = Operator.open(directory)
    if as_json:
        table = clients_table(operator)
        entries = operator.ledger.entries()
        rows = zip(table.dicts(), entries.values(), strict=True)
        print_json([row | {"changes": [asdict(change) for change in entry.changes]} for row, entry in rows])
    else:
        print_table(clients_table(operator), numbers=False)


def remove(
    directory: OperatorDirectory,
    client: Who,
    reason: Why,
    as_json: AsJson = False,
) -> None:
    """Put a client out for good, from the next round on: it is sent nothing until it is readmitted."""
    from fedcap.federation.ledger import OPERATOR

    ledger, found, number = _found(directory, client)
    ledger.remove(found, reason, number, by=OPERATOR)
    _tell(ledger.find(found), "is out, from the next round on", as_json)


def readmit(
    directory: OperatorDirectory,
    client: Who,
    reason: Why,
    as_json: AsJson = False,
) -> None:
    """Take a removed client back; it comes as a newcomer, from the next round on."""
    ledger, found, number = _found(directory, client)
    ledger.readmit(found, reason, number)
    _tell(ledger.find(found), "may take part again, as a newcomer, from the next round on", as_json)


def _found(directory: Path, client: str) -> tuple[Ledger, str, int]:
    """Return the operator's ledger, the client that is meant, and the number of rounds so far."""
    from fedcap.federation.config import Operator
    from fedcap.federation.status import records

    operator = Operator.open(directory)
    return operator.ledger, operator.ledger.find(client).client, len(records(operator))


def _tell(entry: LedgerEntry, what: str, as_json: bool) -> None:
    if as_json:
        last = asdict(entry.changes[-1])
        print_json({"client": entry.client, "name": entry.name, **last})
    else:
        typer.echo(f"{entry.name} ({entry.client}) {what}")


def status(directory: EitherDirectory, as_json: AsJson = False) -> None:
    """Tell how a federation or a site is: its round, whether it runs, who is there, what happened last."""
    from fedcap.federation.config import Operator, SiteDirectory
    from fedcap.federation.status import operator_status, site_status

    facts: dict[str, Any]
    if is_operators(directory):
        facts = operator_status(Operator.open(directory))
    else:
        facts = site_status(SiteDirectory.open(directory))
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        if isinstance(value, list):
            value = "".join(f"\n    {item}" for item in value) or "none"
        if isinstance(value, bool):
            value = "yes" if value else "no"
        value = "–" if value is None else value
        typer.echo(f"  {key.replace('_', ' '):<14} {value}")
