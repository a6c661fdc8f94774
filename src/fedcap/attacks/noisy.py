"""Noisy colluders: another attack's rows, each with noise of its own, so that no two of them are equal.

Published colluding attacks send one vector M times, and any test for equal rows finds them. Noise of a share
s of the row's length lengthens it by √(1 + s²) and brings the cosine of two copies down to 1 / (1 + s²): 0.94
at s = 0.25, 0.65 at s = 0.73. Noise that is the same in all weights can be told from training by that; shaped
like the row it goes with, it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedcap.attacks.base import AttackWrapper, Crafted, View, inner_rows, noise, registry, unit


@registry.register("noisy")
@dataclass(frozen=True)
class Noisy(AttackWrapper):
    """Another attack's rows, each with independent noise, so that colluders are not equal."""

    share: Annotated[float, Field(ge=0)] = 0.25
    """The length of the noise, as a share of the row's."""
    shaped: bool = False
    """Whether noise is in proportion to the row's own weights, or the same in all."""

    def craft(self, view: View) -> Crafted:
        """Return the inner attack's rows with noise."""
        crafted = inner_rows(self.inner, view)
        rows = crafted.rows
        drawn = noise(view, len(rows))
        drawn = unit(drawn * rows.abs()) if self.shaped else drawn
        return Crafted(rows + self.share * rows.norm(dim=1, keepdim=True) * drawn, crafted.memory)
