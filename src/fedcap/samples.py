"""The unit of data that flows through everything: inputs and their labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """Inputs x, n×…, and class labels y, n."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> Samples:
        """Return the samples on a device, images with their channels last: convolutions are faster so."""
        layout = torch.channels_last if self.x.ndim == 4 else torch.contiguous_format
        return Samples(self.x.to(device, memory_format=layout), self.y.to(device))
