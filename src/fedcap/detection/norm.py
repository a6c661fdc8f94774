"""The paper's detector: a calibrated update that is too long reveals a malicious client.

    ‖d̃_k‖ > T_norm,    d̃_k = w̃_k − w

Reference: Li et al., "FedCAP", ACSAC 2024, section V-C. The limit is a length in weight space, so it depends
on the model's size, the learning rate and the number of steps. The paper's 10 fits its three networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedcap.detection.base import Detector, Score, registry
from fedcap.detection.view import RoundView
from fedcap.state import Tensors


@registry.register("norm")
@dataclass(frozen=True)
class Norm(Detector):
    """The norm of the calibrated update, which must not be over a fixed limit."""

    limit: Annotated[float, Field(gt=0)] = 10.0
    """T_norm: the largest accepted norm of a calibrated update."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest accepted norm."""
        return {"norm": self.limit}

    def score(self, view: RoundView, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the norms."""
        return [Score("norm", view.norms, self.limit)], memory
