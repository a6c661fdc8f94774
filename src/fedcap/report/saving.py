"""How every picture is saved."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from fedcap.files import aside

DOTS_PER_INCH = 130


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG; a picture that was there stays until the new one is whole."""
    with aside(path) as partial:
        figure.savefig(partial, dpi=DOTS_PER_INCH, format="png")
