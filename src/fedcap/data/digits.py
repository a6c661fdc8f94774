"""Handwritten digits of scikit-learn: the default data set, which needs no network and no file.

1,797 grey images of 8×8 (Alpaydin, Kaynak, 1998), scaled to [−1, 1]. By default there are four groups of
clients with overlapping classes (0–4, 5–9, even, odd), and a client has 42 training samples. That is too few
to learn from alone and enough to learn from together, and a model for a client's own five classes is better
on them than a model for all ten. With two classes per client, clients would learn as well alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedcap.data.base import Amount, Dataset, Share, Source, registry
from fedcap.state import Samples


@registry.register("digits")
@dataclass(frozen=True)
class Digits(Source):
    """1,797 handwritten digits of 8×8 pixels, embedded: needs no file and no network."""

    model: ClassVar[str] = "cnn-digits"
    groups: ClassVar[Mapping[str, Any]] = {
        "groups": ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9), (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)),
        "dominant": 1.0,
    }
    defaults: ClassVar[Mapping[str, Any]] = {"rounds": 30, "training": {"lr": 0.1}}

    partition: str | dict[str, Any] = "groups"
    samples: Amount = 60
    train_share: Share = 0.7

    def load(self) -> Dataset:
        """Return all 1,797 images as 1×8×8."""
        rows = torch.from_numpy(_rows())
        x = rows[:, :-1].reshape(-1, 1, 8, 8).float() / 8 - 1
        y = rows[:, -1].long()
        return Dataset(Samples(x, y), tuple(str(digit) for digit in range(10)))


def _rows() -> np.ndarray:
    """Return the 64 pixels and the digit of each image.

    The file is read directly, because importing scikit-learn takes a second.
    """
    found = importlib.util.find_spec("sklearn")
    if found is not None and found.origin is not None:
        file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])
