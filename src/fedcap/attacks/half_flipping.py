"""Half flipping: train on samples half of which have a wrong label, and send an update of usual length.

As in label flipping, y ← (y + shift) mod C, but only for a random half of a client's samples. The update then
has an honest part, which points where honest updates point, and a harmful one. Its norm is set to the median
norm of the honest updates, so no test of norms finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, View, registry, unit, victims
from fedcap.state import Samples


@registry.register("half-flipping")
@dataclass(frozen=True)
class HalfFlipping(Attack):
    """Train on labels of which a share is moved to the next class; send an update of the median norm."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The share of a client's samples that get a wrong label."""
    shift: int = 1
    """The number of classes by which a label is moved."""

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        """Return the samples with a random share of wrong labels."""
        order = torch.randperm(len(samples.y), generator=generator).to(samples.y.device)
        wrong = order < round(self.share * len(order))
        return Samples(samples.x, torch.where(wrong, (samples.y + self.shift) % classes, samples.y))

    def craft(self, view: View) -> Tensor:
        """Return the updates trained on these samples, at the median norm of the honest ones."""
        usual = view.updates[victims(view)].norm(dim=1).median()
        rows: Tensor = usual * unit(view.updates[view.malicious])
        return rows
