"""`fedcap export`: a model as a file that is used without fedcap."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcap.cli.models import Client, Directory, Reading, whose
from fedcap.cli.output import AsJson, print_json, save, users_code

NAMED = 12
"""How many classes are named."""


def export(
    directory: Directory,
    client: Client = None,
    reading: Reading = "personal",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="model.safetensors: weights; model.pt2: a whole program.")
    ] = Path("model.pt2"),
    as_json: AsJson = False,
) -> None:
    """Take a model out of a run, or a site of a federation, as a file that is used without fedcap.

    A .pt2 file is a program: raw inputs in, probabilities out. A .safetensors file has the weights by the
    names that the network's own module gives them.
    """
    from fedcap.cli.site_models import models_of
    from fedcap.simulation.export import exported

    with users_code():
        models, run, client = models_of(directory, client)
        content, about = exported(models, run, client, reading, out.suffix)
    save(out, content)
    if as_json:
        print_json({"file": str(out), **about})
        return
    shape = "×".join(map(str, about["shape"]))
    classes = about["classes"]
    names = ", ".join(classes[:NAMED]) + (f", … ({len(classes)} classes)" if len(classes) > NAMED else "")
    typer.echo(f"{out}: {whose(client, reading)}")
    typer.echo(f"  takes      n×{shape} {about['dtype']}\n  tells      {names}")
    if out.suffix == ".pt2":
        typer.echo(f'  use        torch.export.load("{out}").module()(x)  # probabilities, n×{len(classes)}')
    else:
        typer.echo(f'  use        module.load_state_dict(safetensors.torch.load_file("{out}"))')
