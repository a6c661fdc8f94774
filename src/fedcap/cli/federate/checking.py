"""`fedcap federate check`: what is wrong, before anything starts."""

from __future__ import annotations

from dataclasses import asdict

import typer

from fedcap.cli.errors import FAILED
from fedcap.cli.federate.app import EitherDirectory, is_operators
from fedcap.cli.output import AsJson, print_json, users_code
from fedcap.errors import plural


def check(directory: EitherDirectory, as_json: AsJson = False) -> None:
    """Look at everything that can be wrong, and tell what to do: on the operator's side, or on a site's."""
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
        print_json({"well": not wrong, "checks": [asdict(one) for one in found]})
    else:
        for one in found:
            typer.echo(f"  {'ok' if one.ok else '✗ '}  {one.what:<11}  {one.message}")
        typer.echo(f"{plural(len(wrong), 'thing')} to mend" if wrong else "all is well")
    if wrong:
        raise typer.Exit(FAILED)
