"""Min-Max: as far from the mean as possible, but from no update further than two updates are apart at most.

    max_γ such that max_i ‖mean + γ d_p − d_i‖ ≤ max_{i,j} ‖d_i − d_j‖

Reference: Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcap.attacks.base import registry
from fedcap.attacks.perturbation import PerturbationAttack, Products
from fedcap.matrix import gram_to_squared_distances


@registry.register("min-max", "minmax")
@dataclass(frozen=True)
class MinMax(PerturbationAttack):
    """Move the mean along −std until an update is as far from it as the two updates farthest apart."""

    def largest_gamma(self, products: Products) -> Tensor:
        """Return the least, over i, of the positive roots of ‖c_i + γ p‖² = bound."""
        bound = gram_to_squared_distances(products.products).max()
        slack = (bound - products.products.diagonal()).clamp_min(0)
        roots = (products.along.square() + products.length * slack).sqrt() - products.along
        return (roots / products.length).min()
