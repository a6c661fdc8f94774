"""Malformed rows: an attack not on the mean, but on the server that must read them.

Not in the paper. What is sent has absurd values such as NaN, or is not a vector of the right length or type.
A server that does not check it crashes, or ends up with NaN in its model. `form` says what is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedcap.attacks.base import Attack, View, registry

VALUES = {"nan": math.nan, "infinity": math.inf, "zero": 0.0, "huge": 1e30}


@registry.register("malformed")
@dataclass(frozen=True)
class Malformed(Attack):
    """Send what is no valid update: NaN, infinity, zeros, 1e30, too few weights, integers or text."""

    uses_honest_updates: ClassVar[bool] = False

    form: Literal["nan", "infinity", "zero", "huge", "short", "integer", "text"] = "nan"
    """What is wrong with the row."""

    def craft(self, view: View) -> Tensor:
        """Return one row, with the same value in every weight, for all malicious clients."""
        return torch.full_like(view.updates[0], VALUES.get(self.form, 1.0))

    def wire(self, row: Tensor) -> object:
        """Return the row cut short, as integers, as text, or as it is."""
        if self.form == "short":
            return row[:-1]
        if self.form == "integer":
            return row.long()
        return "an update" if self.form == "text" else row
