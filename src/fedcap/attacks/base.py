"""What every attack is: a frozen set of options and one function, `craft`, that writes malicious rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.registry import Registry


@dataclass(frozen=True)
class Attack(ABC):
    """An attack on the N×D matrix of this round's updates, or on the data behind them."""

    uses_honest_updates: ClassVar[bool] = True
    """Whether the attack needs what its own clients would have sent; if not, they need not train."""

    def poison_labels(self, labels: Tensor, classes: int) -> Tensor:
        """Return the labels a malicious client trains on: its own, unless this attacks data."""
        return labels

    @abstractmethod
    def craft(self, updates: Tensor, malicious: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the malicious rows, M×D, or one D-vector that all malicious clients send."""

    def wire(self, row: Tensor) -> object:
        """Return what a malicious client puts on the wire for its row: the row, unless this is malformed."""
        return row

    def __call__(
        self, updates: Tensor, malicious: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return a new N×D matrix with the malicious rows replaced."""
        if updates.ndim != 2 or malicious.shape != updates.shape[:1]:
            raise ValueError(
                f"expected N×D updates and N flags, got {list(updates.shape)} and {list(malicious.shape)}"
            )
        malicious = malicious.to(device=updates.device, dtype=torch.bool)
        attacked = updates.clone()
        if malicious.any():
            attacked[malicious] = self.craft(updates, malicious, generator).to(updates.dtype)
        return attacked


registry: Registry[Attack] = Registry("attack", Attack, "fedcap.attacks")
