"""`fedcap federate audit`: whether the record of what happened is whole."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcap.cli.errors import FAILED
from fedcap.cli.federate.app import EitherDirectory, FederateApp, is_operators
from fedcap.cli.output import AsJson, print_json
from fedcap.errors import plural

app = FederateApp("See what happened, and check that nobody has changed the record of it.")


@app.command()
def verify(
    directory: EitherDirectory,
    head: Annotated[
        str | None, typer.Option(help="A digest that `audit head` printed earlier: its line must be there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find lines of the audit that were changed, moved or taken out.

    Lines that were cut off its end are found only with --head: note the head elsewhere from time to time.
    """
    from fedcap.federation import audit

    is_operators(directory)
    path = directory / audit.AUDIT
    problems = audit.verify(path, head)
    lines = sum(1 for _ in audit.Audit(path).events())
    if as_json:
        print_json({"whole": not problems, "lines": lines, "problems": problems})
    else:
        for problem in problems:
            typer.echo(problem)
        if not problems:
            against = "" if head is None else ", and has the line that was noted"
            typer.echo(f"{path} is whole: {plural(lines, 'line')}{against}")
    if problems:
        raise typer.Exit(FAILED)


@app.command()
def head(directory: EitherDirectory, as_json: AsJson = False) -> None:
    """Print the digest of the last line, to be noted where nobody who can write here can change it."""
    from fedcap.federation.audit import AUDIT, Audit

    is_operators(directory)
    digest = Audit(directory / AUDIT).head()
    if as_json:
        print_json({"head": digest})
    else:
        typer.echo(digest)


@app.command()
def show(
    directory: EitherDirectory,
    event: Annotated[str | None, typer.Option(help="Only events of this kind, such as removed.")] = None,
    last: Annotated[int | None, typer.Option(help="Only the last so many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what happened, a line for each event."""
    from dataclasses import asdict

    from fedcap.errors import InputError, nearest
    from fedcap.federation.audit import AUDIT, EVENTS, Audit

    is_operators(directory)
    if event is not None and event not in EVENTS:
        raise InputError(f"no event is called {event!r}: {nearest(event, EVENTS)}")
    found = [one for one in Audit(directory / AUDIT).events() if event in (None, one.event)]
    found = found[-last:] if last else found
    if as_json:
        print_json([asdict(one) for one in found])
        return
    names = {one.client: one.facts["name"] for one in found if one.client and "name" in one.facts}
    for one in found:
        typer.echo(f"{one.time}  {one.line(names)}")
