"""Where work is done, as it is said on the command line: on this machine's cores, or on a Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

EngineName = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Where to train: local, this machine; ray, a Ray cluster."),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --engine ray: the cluster's HOST:PORT, or auto. [default: one of this machine's cores]"
    ),
]
Jobs = Annotated[int | None, typer.Option(help="Runs at once. [default: one per core]")]
Retry = Annotated[bool, typer.Option("--retry", help="Try runs again that failed before.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would run, and stop.")]
