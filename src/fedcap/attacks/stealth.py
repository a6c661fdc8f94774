"""Stealth: the most damaging rows that pass, found by previews on the server itself.

Each attacker starts from its own honest row as the server sees it, which copies no other row, cut to the norm
of the median victim's: earlier damage has moved the model that it received. It adds as much of a damaging
direction as the server's detectors let pass, found by bisection on previews. Of several directions (against
the victims' mean update, its sign, their deviation), it sends the one that moves the victims' next models
back the furthest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.attacks.base import (
    Attack,
    Geometry,
    RowsAt,
    View,
    damage,
    longest,
    registry,
    target_mean,
    unit,
    victims,
)
from fedcap.matrix import SHORTEST


@registry.register("stealth")
@dataclass(frozen=True)
class Stealth(Attack):
    """The most damage that passes the server's detectors, by bisection over several directions."""

    attacks_requests: ClassVar[bool] = False

    def craft(self, view: View) -> Tensor:
        """Return the best rows found, or those it starts from."""
        geometry = Geometry.of(view)
        usual = geometry.rows[victims(view)].norm(dim=1).median()
        own = geometry.rows[view.malicious]
        own = own * (usual / own.norm(dim=1, keepdim=True).clamp_min(SHORTEST)).clamp_max(1)
        before = view.preview(view.updates[view.malicious])
        best, most = geometry.updates(own), 0.0
        for way in _ways(view):
            rows_at = _along(geometry, own, way)
            rows = rows_at(longest(view, rows_at, float(usual), most=8.0, steps=5))
            done = damage(view, before, view.preview(rows))
            if done > most:
                best, most = rows, done
        return best


def _ways(view: View) -> list[Tensor]:
    """Return the directions that are tried, of norm 1."""
    mean = target_mean(view)
    spread = torch.std(view.updates[victims(view)], dim=0, correction=0)
    return [-unit(mean), -unit(mean.sign()), -unit(spread)]


def _along(geometry: Geometry, own: Tensor, way: Tensor) -> RowsAt:
    return lambda size: geometry.updates(own + size * way)
