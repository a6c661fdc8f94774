"""Standardising: what is taken off each feature of an input, and what it is divided by.

It is learnt from a client's training part alone and applied to its training and its test part, after pixels
were scaled to [−1, 1]. Inputs that are vectors are standardised by feature, larger ones by channel, which is
their first axis (C×H×W, C×T).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """The mean and the deviation of each feature or channel, in a shape that broadcasts over one input."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Scaling:
        """Learn it from inputs, n×…; what does not vary has its own value as mean, and deviation 1."""
        axes = (0, *range(2, x.ndim))
        deviation, mean = torch.std_mean(x, dim=axes, keepdim=True, correction=0)
        low, high = x.amin(dim=axes, keepdim=True), x.amax(dim=axes, keepdim=True)
        varies = (high > low) & (deviation > 0)
        return cls(torch.where(varies, mean, low)[0], torch.where(varies, deviation, 1.0)[0])

    def apply(self, x: Tensor) -> Tensor:
        """Return inputs, one or n of them, standardised."""
        return (x - self.mean) / self.deviation
