"""Direction: clients whose update goes against most of the others', much more so than other clients' updates.

    z_k = −(s_k − median) / max(1.4826 · MAD, floor),    s_k = m(cos(d_k, d_i))

over the updates as they were sent, if s_k is negative; m is the mean of the middle half over i. It finds
attackers that look like a victim in what the server compares, and pull against the direction in which all
clients want to go. A client whose data are unlike all others' may also go against the others. So this
detector suits federations in which no honest client should do so, and is not a default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Detector, Score, registry
from fedcap.detection.view import RoundView
from fedcap.matrix import deviations, evidence
from fedcap.state import Tensors

USUAL = 4.0


@registry.register("direction")
@dataclass(frozen=True)
class Direction(Detector):
    """How much more a client's update goes against the others than theirs go against each other."""

    revision: ClassVar[int] = 2

    limit: Annotated[float, Field(gt=0)] = 6.0
    """The largest accepted deviation in a round."""
    floor: Annotated[float, Field(gt=0)] = 0.05
    """The least spread of the cosines."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"direction": self.limit}

    def score(self, view: RoundView, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the deviations of clients that go against most others; 0 for all other clients."""
        support = _with_others(view)
        far = torch.where(support < 0, -deviations(support, view.votes, self.floor), 0.0)
        return [Score("direction", far, self.limit, SENTENCE, evidence(far, USUAL))], memory


def _with_others(view: RoundView) -> Tensor:
    """Return the mean of the middle half of each client's cosines with all rows but its duplicates, N.

    A quarter of the clients cannot move it far. It is 0 if all rows are duplicates.
    """
    others = view.update_cosines.double().masked_fill(view.duplicates, torch.inf).sort(dim=1).values
    count = (~view.duplicates).sum(dim=1, keepdim=True)
    rank = torch.arange(len(view))
    middle = (rank >= count // 4) & (rank < count - count // 4)
    return others.where(middle, 0.0).sum(dim=1) / middle.sum(dim=1).clamp_min(1)


SENTENCE = "against most others, by {value:.1f} times their spread (limit {limit:g})"
