"""Drawings as SVG that stands in a page: extra.css gives it the page's colours, light or dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

CELL = 13
"""The side of a cell of a map."""


def drawing(width: float, height: float, about: str, parts: Iterable[str]) -> str:
    """Return a figure, as one block without an empty line; `about` says in words what it shows."""
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(about)}">'
    )
    lines = ["<figure class='drawing'>", head, *parts, "</svg>", "</figure>"]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return words at a place; `anchor` is start, middle or end."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(a: tuple[float, float], b: tuple[float, float], kind: str = "") -> str:
    """Return a line between two places."""
    return f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" class="{kind}"/>'


def mark(x: float, y: float, group: int | None, title: str = "", hollow: bool = False) -> str:
    """Return the mark of a client: a shape for each of four groups, a cross for an attacker (no group)."""
    r = 6.0
    if group is None:
        path = f"M{-r} {-r}L{r} {r}M{-r} {r}L{r} {-r}"
        kind = "attacker"
    else:
        turns = {0: (), 1: (4, math.pi / 4), 2: (3, -math.pi / 2), 3: (4, 0.0)}[group]
        path = _polygon(r * 1.15, *turns) if turns else f"M{-r} 0A{r} {r} 0 1 1 {r} 0A{r} {r} 0 1 1 {-r} 0Z"
        kind = f"group{group}{' hollow' if hollow else ''}"
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<path d="{path}" transform="translate({x:.1f} {y:.1f})" class="mark {kind}">{inside}</path>'


def _polygon(radius: float, corners: int, turn: float) -> str:
    angles = (turn + 2 * math.pi * corner / corners for corner in range(corners))
    points = (f"{radius * math.cos(angle):.2f} {radius * math.sin(angle):.2f}" for angle in angles)
    return f"M{'L'.join(points)}Z"


def heat(x: float, y: float, values: Sequence[Sequence[float]], titles: Sequence[Sequence[str]]) -> list[str]:
    """Return a map of values from −1 to 1: the stronger, the fuller; those below 0 in another colour."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{CELL * len(values[0])}" height="{CELL * len(values)}" class="frame"/>'
    ]
    for row, (numbers, said) in enumerate(zip(values, titles, strict=True)):
        for column, (number, title) in enumerate(zip(numbers, said, strict=True)):
            kind = "below" if number < 0 else "above"
            place = f'x="{x + CELL * column:g}" y="{y + CELL * row:g}" width="{CELL}" height="{CELL}"'
            fill = f'class="{kind}" fill-opacity="{min(1, abs(number)):.2f}"'
            parts.append(f"<rect {place} {fill}><title>{escape(title)}</title></rect>")
    return parts
