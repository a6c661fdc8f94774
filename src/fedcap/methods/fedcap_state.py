"""What FedCAP's server remembers from round to round."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


def _nothing() -> Tensor:
    return torch.empty(0, 0)


@dataclass(frozen=True)
class FedCAPState:
    """What the server remembers: the global model, and the pools of the last round's participants.

    Mixing can do without what may be empty: a state that was saved before there was such a thing can be read.
    """

    model: Tensor
    """D: the global model of the last round."""
    ids: Tensor
    """N: who is in the pools, ascending."""
    models: Tensor
    """N×D: their recovered models; `models − model` are their calibrated updates."""
    updates: Tensor
    """N×D: their updates as sent, if `calibrate` is off; else empty."""
    samples: Tensor
    """N: their sample counts."""
    compared: Tensor
    """Two numbers: start and stop of the columns that are compared."""
    norms: Tensor
    """N: the lengths of their calibrated updates."""
    votes: Tensor
    """N: how much each one's word counts: a share of one vote for those who sent the same, 0 on probation."""
    gains: Tensor = field(default_factory=_nothing)
    """N×N: what each of them, a row, would gain by each one's model, if mixing is guarded; else empty."""
    likeness: Tensor = field(default_factory=_nothing)
    """N×N: the cosines between their calibrated updates, if they were computed already; else empty."""

    def only(self, mask: Tensor) -> FedCAPState:
        """Return the pools with those clients alone for whom the mask holds."""
        if bool(mask.all()):
            return self
        return replace(
            self,
            ids=self.ids[mask],
            models=self.models[mask],
            updates=self.updates[mask] if len(self.updates) else self.updates,
            samples=self.samples[mask],
            norms=self.norms[mask],
            votes=self.votes[mask],
            gains=self.gains[mask][:, mask] if len(self.gains) else self.gains,
            likeness=self.likeness[mask][:, mask] if len(self.likeness) else self.likeness,
        )
