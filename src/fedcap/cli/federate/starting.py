"""`fedcap federate init`: an operator's directory, with a plan, certificates, and an invitation for sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.output import AsJson, print_json, users_code
from fedcap.cli.settings import Overrides, parse_setting
from fedcap.errors import InputError, plural

if TYPE_CHECKING:
    from fedcap.federation.config import Operator
    from fedcap.federation.plan import Plan

OF_RUNS = ("dataset", "method", "model", "training", "rounds", "seed", "participation")
"""The settings of a plan that have defaults as those of a run have."""


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The operator's directory, a new one.")],
    host: Annotated[
        str | None, typer.Option(help="The name or address by which sites reach the server.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the federation is called. [default: the directory's name]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port that sites reach, which nginx listens on. [default: 9443]")
    ] = None,
    link_port: Annotated[
        int | None, typer.Option(help="Flower's own port, on this machine alone. [default: 9092]")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Samples such as the sites have: data set, FILE.csv, FILE.npz, or folder."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Without samples: the classes' names, with commas between.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Without samples: the shape of one input, such as 1,28,28.")
    ] = None,
    pixels: Annotated[
        bool, typer.Option("--pixels", help="Without samples: inputs are images as bytes.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Network, or module:function. [default: the data set's, or mlp]")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method. [default: fedcap]")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds. [default: as for a run; 30 without samples]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed. [default: 0]")] = None,
    assumed: Annotated[
        float | None, typer.Option(help="Share of the sites assumed to be malicious. [default: 0]")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Your own clean samples, for methods that need some: a data set.")
    ] = None,
    settings: Overrides = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make a new server certificate; sites need nothing new.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set a federation up: plan, certificates, ports, and the invitation that sites are sent.

    Whatever the options say is in federation.toml and plan.toml, to be read and changed. Called again on its
    directory, it keeps them, and writes the invitation anew.
    """
    from fedcap.federation.config import FEDERATION, Federation, Operator
    from fedcap.federation.plan import PLAN
    from fedcap.federation.setup import refresh, set_up_operator
    from fedcap.runs import overlay

    place = _given(host=host, port=port, link_port=link_port, root=root)
    plan = _given(dataset=dataset, model=model, method=method, rounds=rounds, seed=seed, assumed=assumed)
    for setting in settings or []:
        plan = overlay(plan, parse_setting(setting))
    if (directory / FEDERATION).exists():
        if place or plan or name or classes or shape:
            raise InputError(
                f"{directory} is a federation already: change its {FEDERATION} and {PLAN} with an editor, and"
                f" then fedcap federate init {directory}"
            )
        fingerprint = refresh(Operator.open(directory), renew)
    else:
        if host is None:
            raise InputError("give the name or address by which sites reach the server: --host NAME")
        federation = Federation.of(place, "federate init")
        title = name or directory.absolute().name
        with users_code():
            if "dataset" in plan:
                made = plan_like(title, plan)
            else:
                made = _plan_described(title, plan, classes, shape, pixels)
        fingerprint = set_up_operator(directory, federation, made)
    _tell(Operator.open(directory), fingerprint, as_json)


def _given(**flags: Any) -> dict[str, Any]:
    return {key: value for key, value in flags.items() if value is not None}


def plan_like(name: str, given: dict[str, Any]) -> Plan:
    """Return a plan for samples such as those of a data set, with the options that suit it."""
    from fedcap.federation.build import propose
    from fedcap.federation.flower.compat import bundle_digest
    from fedcap.simulation import Experiment

    more = {key: value for key, value in given.items() if key not in OF_RUNS}
    experiment = Experiment(**{key: value for key, value in given.items() if key in OF_RUNS})
    settings = experiment.settings()
    samples = experiment.source.load()
    more |= {key: settings[key] for key in ("rounds", "seed", "participation")}
    return propose(
        name,
        settings["method"],
        settings["model"],
        samples.class_names,
        samples.samples.x.shape[1:],
        settings["training"],
        pixels=samples.pixels,
        bundle=bundle_digest(),
        **more,
    )


def _plan_described(
    name: str, given: dict[str, Any], classes: str | None, shape: str | None, pixels: bool
) -> Plan:
    """Return a plan for samples that nobody here has seen."""
    from fedcap.federation.build import propose
    from fedcap.federation.flower.compat import bundle_digest

    if classes is None or shape is None:
        raise InputError(
            "say what the sites' samples are: --dataset with some like them, or --classes and --shape"
        )
    try:
        sizes = [int(size) for size in shape.split(",")]
    except ValueError:
        raise InputError(f"--shape {shape}: expected numbers, such as 1,28,28") from None
    more = {key: value for key, value in given.items() if key not in ("method", "model", "training")}
    return propose(
        name,
        given.get("method", "fedcap"),
        given.get("model", "mlp"),
        [word.strip() for word in classes.split(",")],
        sizes,
        given.get("training", {}),
        pixels=pixels,
        bundle=bundle_digest(),
        **more,
    )


def _tell(operator: Operator, fingerprint: str, as_json: bool) -> None:
    """Tell the operator what there is, and what comes next."""
    from fedcap.federation.config import INVITATION

    federation, plan, there = operator.federation, operator.plan, operator.directory
    invitation = there / INVITATION
    if as_json:
        print_json(
            {
                "directory": str(operator.directory),
                "server": federation.address,
                "fingerprint": fingerprint,
                "plan": plan.digest,
                "invitation": str(invitation),
            }
        )
        return
    typer.echo(f"{plan.name} at {federation.address}: {plan.method.name}, {plural(plan.rounds, 'round')}")
    typer.echo(f"  server's fingerprint  {fingerprint}")
    typer.echo(f"  plan's digest         {plan.digest}")
    typer.echo(f"  to read and change    {there}/plan.toml, {there}/federation.toml")
    typer.echo("")
    typer.echo(f"Next: send {invitation} to every site, and tell it the fingerprint by telephone.")
    typer.echo(f"  fedcap federate approve {there} REQUEST.toml    for each site that answers")
    typer.echo(f"  fedcap federate check {there}                   what is wrong, before anything starts")
    typer.echo(f"  fedcap federate server {there}")
