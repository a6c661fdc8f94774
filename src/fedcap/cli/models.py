"""How commands name a model: the client whose it is, and the reading."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The directory of a run, or of a federation's site.")
]
Client = Annotated[
    str | None,
    typer.Option(help="Whose model: the client's name. The global model and a site's own need none."),
]
Reading = Annotated[
    str,
    typer.Option(
        help="personal: the client's own; shared: what the server would send it now; global: one for all."
    ),
]


def whose(client: str | None, reading: str) -> str:
    """Return a model in words."""
    return f"the {reading} model" + ("" if client is None or reading == "global" else f" of client {client}")
