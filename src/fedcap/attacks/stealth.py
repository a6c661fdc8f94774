"""Stealth: the most harmful rows that pass, found by trying them on the server itself.

Each attacker starts from its own honest row as the server sees it, which is nobody's copy, cut to the length
of the median victim's: earlier harm has moved the model that it was sent. To this it adds as much of a
harmful direction as the server's detectors let pass; how much is found by bisection on the real pipeline. Of
a family of directions (against the victims' mean update, its sign, their deviation) the one is sent that
throws the victims' next models back the farthest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.attacks.base import Attack, RowsAt, Scene, View, aim, harm, longest, registry, unit, victims


@registry.register("stealth")
@dataclass(frozen=True)
class Stealth(Attack):
    """The most harm that passes the server's detectors, by bisection over a family of directions."""

    def craft(self, view: View) -> Tensor:
        """Return the best rows found, or those it starts from; of those asked for a request, honest ones."""
        if view.request:
            return view.updates[view.malicious]
        scene = Scene.of(view)
        usual = scene.rows[victims(view)].norm(dim=1).median()
        own = scene.rows[view.malicious]
        own = own * (usual / own.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1)
        before = view.foresee(view.updates)
        best, most = scene.updates(own), 0.0
        for way in _ways(view):
            rows_at = _along(scene, own, way)
            rows = rows_at(longest(view, rows_at, float(usual), most=8.0, steps=5))
            done = harm(view, before, view.foresee(view.with_malicious(rows)))
            if done > most:
                best, most = rows, done
        return best


def _ways(view: View) -> list[Tensor]:
    """Return the directions tried, of length 1."""
    mean = aim(view)
    spread = torch.std(view.updates[victims(view)], dim=0, correction=0)
    return [-unit(mean), -unit(mean.sign()), -unit(spread)]


def _along(scene: Scene, own: Tensor, way: Tensor) -> RowsAt:
    return lambda size: scene.updates(own + size * way)
