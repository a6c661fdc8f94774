"""The unit of data that flows through everything: inputs and their labels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """Inputs x, n×…, and class labels y, n."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> Samples:
        """Return the samples on a device; the same ones if they are there already."""
        return Samples(self.x.to(device), self.y.to(device))
