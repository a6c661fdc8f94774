"""Stealth: the most harmful rows that pass, found by trying them on the server itself.

Each attacker starts from its own honest update, which is nobody's copy, and adds as much of a harmful
direction as the server's detectors let pass; how much is found by bisection on the real pipeline. Of a family
of directions (against the victims' mean update, its sign, their deviation) the one is sent that throws the
victims' next models back the farthest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedcap.attacks.base import Attack, View, registry
from fedcap.attacks.scene import aim, harm, longest, unit, victims


@registry.register("stealth")
@dataclass(frozen=True)
class Stealth(Attack):
    """The most harm that passes the server's detectors, by bisection over a family of directions."""

    def craft(self, view: View) -> Tensor:
        """Return the best rows found; honest ones, if nothing harmful passes or a request is asked for."""
        own = view.updates[view.malicious]
        if view.request:
            return own
        usual = float(view.updates[victims(view)].norm(dim=1).median())
        before = view.foresee(view.updates)
        best, most = own, 0.0
        for way in _ways(view):
            at = partial(_moved, own, way)
            rows = at(longest(view, at, usual, most=8.0, steps=5))
            done = harm(view, before, view.foresee(view.with_malicious(rows)))
            if done > most:
                best, most = rows, done
        return best


def _ways(view: View) -> list[Tensor]:
    """Return the directions tried, of length 1."""
    mean = aim(view)
    spread = torch.std(view.updates[victims(view)], dim=0, correction=0)
    return [-unit(mean), -unit(mean.sign()), -unit(spread)]


def _moved(own: Tensor, way: Tensor, size: float) -> Tensor:
    return own + size * way
