"""Label flipping (LF), an attack on data: every label becomes the next one, y ← (y + 1) mod C.

Reference: Tolpegin et al., "Data poisoning attacks against federated learning systems", ESORICS 2020; all
labels, each to the next, as in Li et al., "FedCAP", ACSAC 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcap.attacks.base import Attack, View, registry


@registry.register("label-flipping", "LF")
@dataclass(frozen=True)
class LabelFlipping(Attack):
    """Train on labels moved by one, y ← (y + shift) mod C; the update is sent unchanged."""

    shift: int = 1
    """The number of classes by which every label is moved."""

    def poison_labels(self, labels: Tensor, classes: int) -> Tensor:
        """Return (labels + shift) mod classes."""
        return (labels + self.shift) % classes

    def craft(self, view: View) -> Tensor:
        """Return the updates unchanged: the damage is already in them."""
        return view.updates[view.malicious]
