"""Min-Sum: as far from the mean as the sum of squared distances to all updates allows.

That sum must not exceed the largest one that an update has:

    max_γ such that Σ_i ‖mean + γ d_p − d_i‖² ≤ max_i Σ_j ‖d_i − d_j‖²

Reference: Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcap.attacks.base import registry
from fedcap.attacks.perturbation import PerturbationAttack, Products
from fedcap.matrix import gram_to_squared_distances


@registry.register("min-sum", "minsum")
@dataclass(frozen=True)
class MinSum(PerturbationAttack):
    """Move the mean along −std until it is as far from all updates together as the outermost one."""

    def largest_gamma(self, products: Products) -> Tensor:
        """Return the root of Σ_i ‖c_i‖² + N γ² ‖p‖² = bound (the c_i sum to zero)."""
        bound = gram_to_squared_distances(products.products).sum(dim=1).max()
        slack = (bound - products.products.diagonal().sum()).clamp_min(0)
        return (slack / (len(products.along) * products.length)).sqrt()
