"""How one vector of weights follows its gradients: SGD with the options of `torch.optim.SGD`.

    g ← ∇L(w) + pull · (w − anchor)          the whole loss: the pull towards an anchor is part of it
    g ← g · min(1, clip / (‖g‖ + 10⁻⁶))      as `torch.nn.utils.clip_grad_norm_` does
    g ← g + weight_decay · w                 after clipping, as in `torch.optim.SGD`
    v ← momentum · v + g                     heavy ball, from rest: v = 0 (Polyak, 1964)
    w ← w − lr · v

Without options this is w ← w − lr · g, and no memory is taken for the rest.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST = 1e-6
"""What `clip_grad_norm_` adds to a length, so that it can divide by it."""


class Descent:
    """One vector of weights, moved in place along gradients of the same length."""

    def __init__(self, weights: Tensor, anchor: Tensor | None = None, pull: float = 0.0) -> None:
        self._weights = weights
        self._anchor = None if pull == 0 else anchor
        self._pull = pull
        self.begin(0.0, 0.0, None)

    def begin(self, momentum: float, weight_decay: float, clip: float | None) -> None:
        """Take the options of the next steps, and start from rest."""
        self._momentum, self._weight_decay, self._clip = momentum, weight_decay, clip
        self._plain = not (momentum or weight_decay or clip)
        self._velocity: Tensor | None = None

    def step(self, gradient: Tensor, lr: float) -> None:
        """Move the weights by one step; the gradient is left as it is."""
        if not self._plain:
            self._weights.add_(self._direction(gradient), alpha=-lr)
            return
        if self._anchor is not None:
            self._weights.lerp_(self._anchor, lr * self._pull)
        self._weights.add_(gradient, alpha=-lr)

    def _direction(self, gradient: Tensor) -> Tensor:
        """Return what is to be subtracted, lr times, from the weights."""
        along, weights = gradient, self._weights
        if self._anchor is not None:
            along = torch.add(along, weights - self._anchor, alpha=self._pull)
        if self._clip is not None:
            length = torch.linalg.vector_norm(along)
            along = along * (self._clip / (length + SMALLEST)).clamp(max=1.0)
        if self._weight_decay:
            along = torch.add(along, weights, alpha=self._weight_decay)
        if not self._momentum:
            return along
        if self._velocity is None:
            self._velocity = along.clone()
        else:
            self._velocity.mul_(self._momentum).add_(along)
        return self._velocity
