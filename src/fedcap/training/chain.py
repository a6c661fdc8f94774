"""The gradient of a plain network by hand: no tape, no allocation, matrix products and little else.

A chain is an `nn.Sequential` of convolutions, max pools, ReLUs, flattenings and linear layers: what most
federated learning trains, on batches so small that a tape costs as much as the arithmetic. Each layer has
its buffers, for one shape of batch; `forward` fills them, `backward` goes back through them and leaves the
gradient of its weights where the network wants it. A convolution lays the patches that its kernels see
out as the rows of a matrix and is then two products, as a linear layer is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ROOM = 1 << 24
"""How many numbers the patches of a convolution may be: batches larger than that do not need a chain."""
FEW = 8
"""With fewer channels than this, patches are copied along the width of the image rather than its depth."""

WEIGHTED = (nn.Conv2d, nn.Linear)

_aten = torch.ops.aten


@dataclass(frozen=True)
class Place:
    """Where a layer's parameter lies in the flat vector of weights, and where its gradient goes."""

    weights: Tensor
    gradient: Tensor

    def rows(self, count: int) -> Place:
        """Return the same as a matrix of so many rows."""
        return Place(self.weights.view(count, -1), self.gradient.view(count, -1))


Places = Callable[[str], Place]
"""From a parameter's name to its place; a KeyError if it has none of its own to be trained."""


class NotPlainError(Exception):
    """The network is not a chain, or too much for one."""


class Layer(ABC):
    """One layer, for batches of one shape."""

    output: Tensor

    @abstractmethod
    def forward(self) -> None:
        """Fill `output` from the input that the layer was made for."""

    @abstractmethod
    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the input; leave that of the weights in their place."""


class Product:
    """rows · weightsᵀ + bias: all of a linear layer, and most of a convolution."""

    def __init__(self, rows: Tensor, weight: Place, bias: Place | None) -> None:
        self.rows = rows
        self.weight, self.bias = weight, bias
        self.output = rows.new_empty(len(rows), len(weight.weights))
        self._upright = rows.is_contiguous()
        """Rows that lie in memory as columns are multiplied from the other side, which is faster."""
        self._turned = rows.new_empty(rows.shape[1], len(weight.weights))

    def forward(self) -> None:
        """Multiply."""
        if self.bias is None:
            torch.mm(self.rows, self.weight.weights.T, out=self.output)
        else:
            torch.addmm(self.bias.weights, self.rows, self.weight.weights.T, out=self.output)

    def backward(self, gradient: Tensor) -> None:
        """Leave the gradients of weights and bias in their place."""
        if self._upright:
            torch.mm(gradient.T, self.rows, out=self.weight.gradient)
        else:
            self.weight.gradient.copy_(torch.mm(self.rows.T, gradient, out=self._turned).T)
        if self.bias is not None:
            torch.sum(gradient, 0, out=self.bias.gradient)


class Linear(Layer):
    """A linear layer."""

    def __init__(self, x: Tensor, weight: Place, bias: Place | None, first: bool) -> None:
        self._product = Product(x, weight, bias)
        self._back = None if first else torch.empty_like(x)
        self.output = self._product.output

    def forward(self) -> None:
        """Multiply."""
        self._product.forward()

    def backward(self, gradient: Tensor) -> Tensor:
        """Multiply back."""
        self._product.backward(gradient)
        if self._back is None:
            return gradient
        return torch.mm(gradient, self._product.weight.weights, out=self._back)


class Convolution(Layer):
    """A convolution of images: n×c×h×w in, n×o×H×W out, both with their channels last."""

    def __init__(self, layer: nn.Conv2d, x: Tensor, weight: Place, bias: Place | None, first: bool) -> None:
        self._how = [_pair(size) for size in (layer.stride, layer.padding, layer.dilation)]
        self._first = first
        (up, left), (down, right) = _pair(layer.padding), _pair(layer.stride)
        count, channels, height, width = x.shape
        self._x, self._inside = x, None
        if up or left:
            wide = x.new_zeros(count, channels, height + 2 * up, width + 2 * left)
            wide = wide if x.is_contiguous() else wide.contiguous(memory_format=torch.channels_last)
            self._inside, x = wide[:, :, up : up + height, left : left + width], wide
        tall, broad = _pair(layer.kernel_size)
        rows = (x.shape[2] - tall) // down + 1
        columns = (x.shape[3] - broad) // right + 1
        image, depth, below, beside = x.stride()
        self._windows = x.as_strided(
            (count, rows, columns, tall, broad, channels),
            (image, below * down, beside * right, below, beside, depth),
        )
        if self._windows.numel() > ROOM:
            raise NotPlainError
        if channels < FEW:
            patches = x.new_empty(tall, broad, channels, count, rows, columns)
            self._patches = patches.permute(3, 4, 5, 0, 1, 2)
            matrix = patches.view(tall * broad * channels, -1).T
        else:
            self._patches = x.new_empty(count, rows, columns, tall, broad, channels)
            matrix = self._patches.view(-1, tall * broad * channels)
        self._product = Product(matrix, weight, bias)
        outputs = layer.out_channels
        self.output = self._product.output.view(count, rows, columns, outputs).permute(0, 3, 1, 2)
        self._kernels = weight.weights.view(outputs, tall, broad, channels).permute(0, 3, 1, 2)

    def forward(self) -> None:
        """Lay out the patches, and multiply."""
        if self._inside is not None:
            self._inside.copy_(self._x)
        self._patches.copy_(self._windows)
        self._product.forward()

    def backward(self, gradient: Tensor) -> Tensor:
        """Multiply back; the way from patches to images is torch's own."""
        self._product.backward(gradient.permute(0, 2, 3, 1).reshape(self._product.output.shape))
        if self._first:
            return gradient
        back, _, _ = _aten.convolution_backward(
            gradient, self._x, self._kernels, None, *self._how, False, [0, 0], 1, [True, False, False]
        )
        return back  # type: ignore[no-any-return]


class Pool(Layer):
    """A max pool."""

    def __init__(self, layer: nn.MaxPool2d, x: Tensor) -> None:
        self._x = x
        self._how = [_pair(size) for size in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
        self.output, self._where = _aten.max_pool2d_with_indices(x, *self._how)
        self._back = torch.empty_like(x)

    def forward(self) -> None:
        """Keep the largest of each window, and where it was."""
        _aten.max_pool2d_with_indices.out(self._x, *self._how, out=self.output, indices=self._where)

    def backward(self, gradient: Tensor) -> Tensor:
        """Send each gradient where the largest was."""
        return _aten.max_pool2d_with_indices_backward.grad_input(  # type: ignore[no-any-return]
            gradient, self._x, *self._how, False, self._where, grad_input=self._back
        )


class Rectifier(Layer):
    """A ReLU, in place: no layer before it needs to know what it gave."""

    def __init__(self, x: Tensor) -> None:
        self.output = x

    def forward(self) -> None:
        """Cut off what is negative."""
        self.output.relu_()

    def backward(self, gradient: Tensor) -> Tensor:
        """Let pass what was let pass."""
        return _aten.threshold_backward.grad_input(  # type: ignore[no-any-return]
            gradient, self.output, 0, grad_input=gradient
        )


class Flattening(Layer):
    """Images to rows, in the order of an image whose channels come first."""

    def __init__(self, x: Tensor) -> None:
        self._x = x
        self._back = torch.empty_like(x)
        self.output = x.new_empty(len(x), x[0].numel())

    def forward(self) -> None:
        """Copy."""
        self.output.view(self._x.shape).copy_(self._x)

    def backward(self, gradient: Tensor) -> Tensor:
        """Copy back."""
        return self._back.copy_(gradient.view(self._x.shape))


class Chain:
    """A plain network's cross-entropy, for batches of one shape."""

    def __init__(self, module: nn.Module, shape: torch.Size, place: Places) -> None:
        layers = list(_leaves(module))
        if not all(_is_plain(layer) for _, layer in layers):
            raise NotPlainError
        self._first = next((at for at, (_, layer) in enumerate(layers) if isinstance(layer, WEIGHTED)), 0)
        self._input = x = _image(shape) if len(shape) == 4 else torch.empty(shape)
        self._layers: list[Layer] = []
        for at, (name, layer) in enumerate(layers):
            self._layers.append(_make(name, layer, x, place, at == self._first))
            x = self._layers[-1].output
        if x.ndim != 2:
            raise NotPlainError
        self._back = torch.empty_like(x)
        self._minus = torch.full((len(x), 1), -1.0)

    def backward(self, x: Tensor, y: Tensor) -> None:
        """Leave the gradient of the mean cross-entropy of a batch in its place."""
        with torch.no_grad(), _without_onednn():
            self._input.copy_(x)
            for layer in self._layers:
                layer.forward()
            back = torch.softmax(self._layers[-1].output, 1, out=self._back)
            back.scatter_add_(1, y[:, None], self._minus).div_(len(back))
            for layer in reversed(self._layers[self._first :]):
                back = layer.backward(back)


def chain(module: nn.Module, shape: torch.Size, place: Places) -> Chain | None:
    """Return the chain that a network is, for batches of one shape; none if it is not one."""
    try:
        return Chain(module, shape, place)
    except (NotPlainError, KeyError):
        return None


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Do without kernels that take longer to start than such batches take to compute."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def _make(name: str, layer: nn.Module, x: Tensor, place: Places, first: bool) -> Layer:
    if isinstance(layer, WEIGHTED):
        weight = place(f"{name}.weight").rows(len(layer.weight))
        bias = None if layer.bias is None else place(f"{name}.bias")
        if x.ndim != (2 if isinstance(layer, nn.Linear) else 4):
            raise NotPlainError
        if isinstance(layer, nn.Conv2d):
            return Convolution(layer, x, weight, bias, first)
        return Linear(x, weight, bias, first)
    if isinstance(layer, nn.MaxPool2d):
        return Pool(layer, x)
    return Rectifier(x) if isinstance(layer, nn.ReLU) else Flattening(x)


def _leaves(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested `nn.Sequential`s in order, with their names."""
    if type(module) is not nn.Sequential or _is_watched(module):
        yield name, module
        return
    for own, child in module._modules.items():  # `named_children` leaves out a layer that comes again
        yield from _leaves(child, f"{name}.{own}" if name else own)


def _is_watched(layer: nn.Module) -> bool:
    """Whether somebody has hooked on to a layer, and expects to be called."""
    return any(
        getattr(layer, f"_{way}_hooks") for way in ("forward", "forward_pre", "backward", "backward_pre")
    )


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is one of those above, in all of its options; what inherits from one may differ."""
    if _is_watched(layer):
        return False
    if type(layer) is nn.Conv2d:
        usual = layer.groups == 1 and _pair(layer.dilation) == (1, 1) and layer.padding_mode == "zeros"
        return usual and not isinstance(layer.padding, str)
    if type(layer) is nn.MaxPool2d:
        return not layer.ceil_mode and not layer.return_indices
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    return type(layer) in (nn.ReLU, nn.Linear)


def _image(shape: torch.Size) -> Tensor:
    """Return room for images, laid out so that their patches are copied in long runs."""
    deep = shape[1] >= FEW
    return torch.empty(shape, memory_format=torch.channels_last if deep else torch.contiguous_format)


def _pair(size: Any) -> tuple[int, int]:
    """Return a size as height and width."""
    return size if isinstance(size, tuple) else (size, size)
