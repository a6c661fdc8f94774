"""`fedcap list`: everything that can be named."""

from __future__ import annotations

from typing import Any

import typer

from fedcap.cli.output import AsJson, print_json


def list_(as_json: AsJson = False) -> None:
    """List methods, attacks, aggregators, detectors, data sets, partitions and models, each with a line."""
    from fedcap import aggregators, attacks, data, detection, methods, models
    from fedcap.data import partitions

    rooms: dict[str, Any] = {
        "methods": methods.registry,
        "attacks": attacks.registry,
        "aggregators": aggregators.registry,
        "detectors": detection.registry,
        "policies": detection.policies,
        "data sets": data.registry,
        "partitions": partitions.registry,
        "models": models.registry,
    }
    found = {
        room: {name: registry.summary(name) for name in registry.names()} for room, registry in rooms.items()
    }
    if as_json:
        print_json(found)
        return
    width = max(len(name) for names in found.values() for name in names)
    for room, names in found.items():
        typer.echo(typer.style(room, bold=True))
        for name, line in names.items():
            typer.echo(f"  {name:<{width}}  {line}")
