"""`fedcap federate status`, `check` and `audit`: the state of a federation, its problems and its record."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcap.cli.common import FAILED, AsJson, echo, print_json, print_table, users_code
from fedcap.cli.federate.common import EitherDirectory, is_operators
from fedcap.errors import InputError, nearest, plural


def status(
    directory: EitherDirectory,
    clients: Annotated[
        bool,
        typer.Option("--clients", help="List the clients: state, weight, scores, and why one was removed."),
    ] = False,
    events: Annotated[
        bool, typer.Option("--events", help="List what happened, a line for each event.")
    ] = False,
    event: Annotated[str | None, typer.Option(help="List only events of this kind, such as removed.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a federation or a site.

    --clients lists the clients of a federation. --events lists everything that happened.
    """
    operators = is_operators(directory)
    events = events or event is not None
    if clients and events:
        raise InputError("--clients and --events exclude each other", code="bad-option", field="clients")
    if events:
        _print_events(directory, event, as_json)
    elif clients:
        _print_clients(directory, as_json)
    else:
        _print_status(directory, operators, as_json)


def _print_status(directory: Path, operators: bool, as_json: bool) -> None:
    from fedcap.federation.config import Operator, SiteDirectory
    from fedcap.federation.status import operator_status, site_status

    facts: dict[str, Any]
    if operators:
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
        echo(f"  {key.replace('_', ' '):<14} {value}")


def _print_clients(directory: Path, as_json: bool) -> None:
    from fedcap.federation.config import Operator
    from fedcap.federation.status import clients_table

    operator = Operator.open(directory)
    table = clients_table(operator)
    if as_json:
        rows = zip(table.dicts(), operator.ledger.entries().values(), strict=True)
        print_json([row | {"changes": [asdict(change) for change in entry.changes]} for row, entry in rows])
    else:
        print_table(table, numbers=False)


def _print_events(directory: Path, event: str | None, as_json: bool) -> None:
    from fedcap.federation.audit import AUDIT, EVENTS, Audit

    if event is not None and event not in EVENTS:
        raise InputError(
            f"unknown event {event!r}: {nearest(event, EVENTS)}", code="unknown-name", field="event"
        )
    found = [one for one in Audit(directory / AUDIT).events() if event in (None, one.event)]
    if as_json:
        print_json([asdict(one) for one in found])
        return
    names = {one.client: one.facts["name"] for one in found if one.client and "name" in one.facts}
    for one in found:
        echo(f"{one.time}  {one.line(names)}")


def check(directory: EitherDirectory, as_json: AsJson = False) -> None:
    """Find problems before the start, at the operator or a site.

    It prints each problem, and what to do.
    """
    from fedcap.federation.checks import check_operator, check_site
    from fedcap.federation.config import Operator, SiteDirectory

    operators = is_operators(directory)
    with users_code():
        if operators:
            found = check_operator(Operator.open(directory))
        else:
            found = check_site(SiteDirectory.open(directory))
    wrong = [one for one in found if not one.ok]
    if as_json:
        print_json({"ok": not wrong, "checks": [asdict(one) for one in found]})
    else:
        for one in found:
            mark = "! " if one.warning else "ok" if one.ok else "✗ "
            echo(f"  {mark}  {one.what:<11}  {one.message}")
        warnings = sum(one.warning for one in found)
        summary = f"{plural(len(wrong), 'problem')} to solve" if wrong else "no problems"
        echo(f"{summary}, {plural(warnings, 'warning')}" if warnings else summary)
    if wrong:
        raise typer.Exit(FAILED)


def audit(
    directory: EitherDirectory,
    head: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="A digest that was noted before: its line must be there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that the record of events is complete and unchanged.

    It prints the digest of the last line. Note it in another place from time to time: only --head finds lines
    that were removed at the end.
    """
    from fedcap.federation import audit as record

    is_operators(directory)
    path = directory / record.AUDIT
    problems = record.verify(path, head)
    events = record.Audit(path)
    lines = sum(1 for _ in events.events())
    digest = None if problems else events.head()
    if as_json:
        print_json({"whole": not problems, "lines": lines, "problems": problems, "head": digest})
    else:
        for problem in problems:
            echo(problem)
        if not problems:
            noted = "" if head is None else ", with the line that was noted"
            echo(f"{path} is complete: {plural(lines, 'line')}{noted}")
            echo(f"head  {digest}")
    if problems:
        raise typer.Exit(FAILED)
