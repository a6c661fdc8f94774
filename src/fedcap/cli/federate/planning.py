"""`fedcap federate show-plan`: what is proposed, in full, and a site's consent to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcap.cli.federate.app import EitherDirectory, is_operators
from fedcap.cli.output import AsJson, print_json
from fedcap.errors import InputError

if TYPE_CHECKING:
    from fedcap.federation.plan import Plan


def show_plan(
    directory: EitherDirectory,
    invitation: Annotated[
        Path | None, typer.Option(help="A new invitation, with a plan that replaces the one before.")
    ] = None,
    agree: Annotated[bool, typer.Option("--agree", help="At a site: agree to this plan.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the plan and its digest; a site agrees to it with --agree, and to no other by that."""
    if is_operators(directory):
        if agree or invitation is not None:
            raise InputError("agreeing is for sites: this is the operator's directory")
        from fedcap.federation.config import Operator

        _show(Operator.open(directory).plan, None, None, as_json)
        return
    from fedcap.federation.config import AUTHORITY, INVITATION, POLICY, Invitation, SiteDirectory
    from fedcap.federation.plan import SitePolicy
    from fedcap.files import write_aside

    site = SiteDirectory.open(directory)
    invited = Invitation.read(invitation or directory / INVITATION)
    if invitation is not None:
        if invited.certificate != (directory / AUTHORITY).read_text():
            raise InputError(
                f"{invitation} is of another server than this site trusts: compare fingerprints by telephone,"
                " and enrol in a new directory"
            )
        write_aside(directory / INVITATION, invited.text())
    objection = SitePolicy.read(directory / POLICY).objection(invited.plan)
    if agree:
        if objection is not None:
            raise InputError(f"{directory / POLICY} forbids this plan: {objection}")
        site.agree(invited.plan)
    _show(invited.plan, invited.plan.digest in site.plans(), objection, as_json)


def _show(plan: Plan, agreed: bool | None, objection: str | None, as_json: bool) -> None:
    if as_json:
        facts = {"digest": plan.digest, "plan": plan.model_dump(mode="json")}
        print_json(facts if agreed is None else {**facts, "agreed": agreed, "objection": objection})
        return
    typer.echo(plan.text())
    typer.echo(f"digest  {plan.digest}")
    if objection is not None:
        typer.echo(f"This site's policy forbids it: {objection}")
    elif agreed is not None:
        typer.echo(
            "This site has agreed to it." if agreed else "This site has not agreed to it: --agree does."
        )
