"""Words as people read them."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a number and what it counts: "1 round", "30 rounds", "2 classes", "1,797 samples"."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"
