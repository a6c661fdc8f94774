"""What Min-Max and Min-Sum share: d_m = mean + γ · d_p, γ the largest that keeps within a bound.

Reference: Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021. Both bounds are quadratic
in γ, so the largest γ is a root and needs no search. Rows are all N participants' honest updates.
Products are taken in double precision over blocks of columns: exact, whatever D is.
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
SHORT_OF_THE_BOUND = 1 - 1e-6
"""γ stays a millionth short, so that rounding the row to single precision does not cross the bound
(unless the mean is hundreds of times longer than the spread, where single precision is too coarse)."""


@dataclass(frozen=True)
class Geometry:
    """Products of the centred updates c_i = mean − d_i and the perturbation p."""

    products: Tensor
    """N×N: c_i · c_j."""
    along: Tensor
    """N: p · c_i."""
    length: Tensor
    """Scalar: ‖p‖²."""

    def squared_distances(self) -> Tensor:
        """Return the N×N squared distances between the updates."""
        squares = self.products.diagonal()
        return (squares[:, None] + squares[None, :] - 2 * self.products).clamp_min(0)


def measure(updates: Tensor, mean: Tensor, perturbation: Tensor) -> Geometry:
    """Compute all products that either bound needs, one pass over the columns."""
    rows, columns = updates.shape
    products = updates.new_zeros((rows, rows), dtype=torch.float64)
    along = updates.new_zeros(rows, dtype=torch.float64)
    length = updates.new_zeros((), dtype=torch.float64)
    for block in column_blocks(columns, BLOCK):
        centred = mean[block].double() - updates[:, block].double()
        direction = perturbation[block].double()
        products += centred @ centred.T
        along += centred @ direction
        length += direction @ direction
    return Geometry(products, along, length)


@dataclass(frozen=True)
class PerturbationAttack(Attack):
    """mean + γ · d_p with the largest γ within a bound that the subclass states."""

    direction: Literal["std", "sign", "unit"] = "std"
    """d_p: minus the standard deviation, minus the mean's sign, or minus the mean's unit vector."""

    @abstractmethod
    def largest_gamma(self, geometry: Geometry) -> Tensor:
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
        geometry = measure(updates, mean, perturbation)
        if geometry.length == 0:
            return mean
        gamma = SHORT_OF_THE_BOUND * self.largest_gamma(geometry)
        return mean + gamma.to(mean.dtype) * perturbation
