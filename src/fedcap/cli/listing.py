"""`fedcap list`: everything that can be named, or one of them with its options."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcap.cli.explain import explain, registries
from fedcap.cli.output import AsJson, print_json


def list_(
    name: Annotated[
        str | None, typer.Argument(help="What to explain. [default: list all, each with a line]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List methods, attacks, rules, detectors, data sets, partitions, models, trackers, or explain one."""
    if name is not None:
        explain(name, as_json)
        return
    found = {
        room: {name: registry.summary(name) for name in registry.names()}
        for room, registry in registries().items()
    }
    if as_json:
        print_json(found)
        return
    width = max(len(name) for names in found.values() for name in names)
    for room, names in found.items():
        typer.echo(typer.style(room, bold=True))
        for name, line in names.items():
            typer.echo(f"  {name:<{width}}  {line}")
