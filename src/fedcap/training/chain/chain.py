"""A plain network as a list of layers, and the gradient of its mean cross-entropy: forward, then backward.

All buffers are allocated once, for batches of one shape, so a step allocates almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcap.products import fast_products
from fedcap.training.chain.layers import Layer


class Chain:
    """The cross-entropy of a plain network, for batches of one shape."""

    def __init__(self, x: Tensor, layers: Sequence[Layer], first: int) -> None:
        """Take the buffer of the inputs, the layers, and the index of the first layer that has weights."""
        self._input = x
        self._layers = layers
        self._first = first
        self._logits = layers[-1].output
        self._back = torch.empty_like(self._logits)
        self._minus = torch.full((len(x), 1), -1.0)

    def backward(self, x: Tensor, y: Tensor) -> None:
        """Write the gradient of a batch's mean cross-entropy into the layers' places."""
        with torch.no_grad(), fast_products():
            before = torch.backends.mkldnn.enabled  # the layers switch oneDNN on and off
            try:
                self._backward(x, y)
            finally:
                torch.backends.mkldnn.enabled = before

    def _backward(self, x: Tensor, y: Tensor) -> None:
        self._input.copy_(x)
        for layer in self._layers:
            layer.forward()
        back = torch.softmax(self._logits, 1, out=self._back)
        back.scatter_add_(1, y[:, None], self._minus).div_(len(back))
        for layer in reversed(self._layers[self._first :]):
            back = layer.backward(back)
