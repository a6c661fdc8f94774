"""How every picture is saved: as PNG, PDF or SVG, and the same bits each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from fedcap.files import aside

DOTS_PER_INCH = 130
UNDATED = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""The formats, and what to leave out of each, so that the same picture is the same file."""
REPRODUCIBLE: Any = {"svg.hashsalt": "fedcap", "pdf.fonttype": 42}
"""Names inside an SVG are not random; letters of a PDF stay letters."""


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure in the format of the path's ending; without one of them, in all three.

    A picture that was there stays until the new one is whole. Return what was written.
    """
    every = [path] if path.suffix in UNDATED else [path.with_name(path.name + kind) for kind in UNDATED]
    for to in every:
        with rc_context(REPRODUCIBLE), aside(to) as partial:
            figure.savefig(partial, dpi=DOTS_PER_INCH, format=to.suffix[1:], metadata=UNDATED[to.suffix])
    return every
