"""Noisy colluders: another attack's rows, each with independent noise, so that no two of them are equal.

Published colluding attacks send one vector M times, and any test for equal rows finds them. Noise of a share
s of the row's norm increases the norm by √(1 + s²) and reduces the cosine of two copies to 1 / (1 + s²): 0.94
at s = 0.25, 0.65 at s = 0.73. Noise that is even over all weights differs from training; noise shaped like
the row itself does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import AttackWrapper, View, inner_rows, noise, registry, unit


@registry.register("noisy")
@dataclass(frozen=True)
class Noisy(AttackWrapper):
    """Another attack's rows, each with independent noise, so that colluders are not equal."""

    share: Annotated[float, Field(ge=0)] = 0.25
    """The norm of the noise, as a share of the row's norm."""
    shaped: bool = False
    """Whether noise is in proportion to the row's own weights, or even over all weights."""

    def craft(self, view: View) -> Tensor:
        """Return the inner attack's rows with noise."""
        rows = inner_rows(self.inner, view)
        drawn = noise(view, len(rows))
        drawn = unit(drawn * rows.abs()) if self.shaped else drawn
        noisy: Tensor = rows + self.share * rows.norm(dim=1, keepdim=True) * drawn
        return noisy
