"""Attacks that move the mean by the largest multiple of a perturbation that a bound allows.

Min-Max and Min-Sum share them and differ in the bound (Shejwalkar, Houmansadr, "Manipulating the Byzantine",
NDSS 2021). Both bounds are quadratic in the multiple γ, so the largest γ is a root and needs no search.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcap.attacks.base import Attack, View
from fedcap.matrix import column_blocks

BLOCK = 1 << 16
"""The largest number of columns of which `measure` computes the products at a time."""
ENTRIES = 1 << 24
"""The largest number of entries of such a block: 128 MB in double precision."""
SHORT_OF_THE_BOUND = 1 - 1e-6
"""γ stays a millionth below the bound, so that rounding the row to single precision does not cross it
(unless the mean is hundreds of times longer than the spread, where single precision is too coarse)."""


@dataclass(frozen=True)
class Products:
    """Products of the centred updates c_i = mean − d_i and the perturbation p."""

    products: Tensor
    """N×N: c_i · c_j."""
    along: Tensor
    """N: p · c_i."""
    length: Tensor
    """Scalar: ‖p‖²."""


def measure(updates: Tensor, mean: Tensor, perturbation: Tensor) -> Products:
    """Compute all products that either bound needs, in one pass over the columns."""
    rows, columns = updates.shape
    products = updates.new_zeros((rows, rows), dtype=torch.float64)
    along = updates.new_zeros(rows, dtype=torch.float64)
    length = updates.new_zeros((), dtype=torch.float64)
    widest = min(BLOCK, max(1, ENTRIES // rows), columns)
    buffer = updates.new_empty(rows * widest, dtype=torch.float64)
    for block in column_blocks(columns, widest):
        width = block.stop - block.start
        centred = buffer[: rows * width].view(rows, width)  # one buffer: allocating each takes longer
        centred.copy_(updates[:, block])
        torch.sub(mean[block].double(), centred, out=centred)
        direction = perturbation[block].double()
        products += centred @ centred.T
        along += centred @ direction
        length += direction @ direction
    return Products(products, along, length)


@dataclass(frozen=True)
class PerturbationAttack(Attack):
    """mean + γ · d_p with the largest γ within a bound that the subclass computes."""

    direction: Literal["std", "sign", "unit"] = "std"
    """d_p: minus the standard deviation, minus the mean's sign, or minus the mean's unit vector."""

    @abstractmethod
    def largest_gamma(self, products: Products) -> Tensor:
        """Return the largest γ ≥ 0 within the bound."""

    def craft(self, view: View) -> Tensor:
        """Return the one vector that all malicious clients send."""
        updates = view.updates
        std, mean = torch.std_mean(updates, dim=0, correction=0)
        if self.direction == "std":
            perturbation = -std
        elif self.direction == "sign":
            perturbation = -mean.sign()
        else:
            perturbation = -torch.nn.functional.normalize(mean, dim=0)
        products = measure(updates, mean, perturbation)
        if products.length == 0:
            return mean
        gamma = SHORT_OF_THE_BOUND * self.largest_gamma(products)
        return mean + gamma.to(mean.dtype) * perturbation
