"""The gradient of a plain network's mean cross-entropy, computed layer by layer without autograd.

A plain network is an `nn.Sequential`, nested or not, of convolutions, max pools, ReLUs, flattenings and
linear layers with their usual options. Each layer computes its output and the gradients of its input and
weights in buffers that are allocated once for batches of one shape. A convolution copies the patch under each
position of its kernel into a row of a matrix; the rest is the same matrix products as in a linear layer.
`fast_gradient_of` returns None for any other network, which is left to autograd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedcap.products import current_products, fast_products

LARGEST_PATCHES = 1 << 24
"""The largest number of values in the patches of a convolution; autograd is as fast on larger batches."""
FEW = 8
"""With fewer channels than this, patches are copied along the width of an image, not along its channels."""
LARGE = 1 << 20
"""The number of multiplications from which oneDNN is faster, in spite of the time that it takes to start."""

_aten = torch.ops.aten


@dataclass(frozen=True)
class Place:
    """Where a layer's parameter lies in the flat vector of weights, and where its gradient goes."""

    weights: Tensor
    gradient: Tensor

    def rows(self, count: int) -> Place:
        """Return both as matrices with this number of rows."""
        return Place(self.weights.view(count, -1), self.gradient.view(count, -1))


Places = Callable[[str], Place]
"""From a parameter's name to its place; raises KeyError for a parameter that is frozen, tied or unknown."""


class NotPlainError(Exception):
    """The network is not plain, or its batch is too large."""


class Layer(ABC):
    """One layer, for batches of one shape."""

    output: Tensor

    @abstractmethod
    def forward(self) -> None:
        """Fill `output` from the input that the layer was made for."""

    @abstractmethod
    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the input; write that of the weights into their place."""


class Product:
    """rows · weightsᵀ + bias: all of a linear layer, and most of a convolution."""

    def __init__(self, rows: Tensor, weight: Place, bias: Place | None) -> None:
        self.rows = rows
        self.weight, self.bias = weight, bias
        self.output = rows.new_empty(len(rows), len(weight.weights))
        # If the matrix is stored by columns, its transpose comes first in the product: that is faster.
        self._by_rows = rows.is_contiguous()
        self._transposed = rows.new_empty(rows.shape[1], len(weight.weights))
        self.is_large = rows.numel() * len(weight.weights) >= LARGE

    def forward(self) -> None:
        """Multiply."""
        _choose_kernels(self.is_large)
        if self.bias is None:
            torch.mm(self.rows, self.weight.weights.T, out=self.output)
        else:
            torch.addmm(self.bias.weights, self.rows, self.weight.weights.T, out=self.output)

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of weights and bias into their place."""
        _choose_kernels(self.is_large)
        if self._by_rows:
            torch.mm(gradient.T, self.rows, out=self.weight.gradient)
        else:
            self.weight.gradient.copy_(torch.mm(self.rows.T, gradient, out=self._transposed).T)
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
        """Multiply the gradient by the weights."""
        self._product.backward(gradient)
        if self._back is None:
            return gradient
        return torch.mm(gradient, self._product.weight.weights, out=self._back)


class Convolution(Layer):
    """A convolution of images: n×c×h×w in, n×o×H×W out, both with their channels last."""

    def __init__(self, layer: nn.Conv2d, x: Tensor, weight: Place, bias: Place | None, first: bool) -> None:
        self._how = [pair(size) for size in (layer.stride, layer.padding, layer.dilation)]
        self._first = first
        (up, left), (down, right) = pair(layer.padding), pair(layer.stride)
        count, channels, height, width = x.shape
        self._x, self._inside = x, None
        if up or left:
            wide = x.new_zeros(count, channels, height + 2 * up, width + 2 * left)
            wide = wide if x.is_contiguous() else wide.contiguous(memory_format=torch.channels_last)
            self._inside, x = wide[:, :, up : up + height, left : left + width], wide
        tall, broad = pair(layer.kernel_size)
        rows = (x.shape[2] - tall) // down + 1
        columns = (x.shape[3] - broad) // right + 1
        image, depth, down_stride, right_stride = x.stride()
        self._windows = x.as_strided(
            (count, rows, columns, tall, broad, channels),
            (image, down_stride * down, right_stride * right, down_stride, right_stride, depth),
        )
        if self._windows.numel() > LARGEST_PATCHES:
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
        """Copy the patches, and multiply."""
        if self._inside is not None:
            self._inside.copy_(self._x)
        self._patches.copy_(self._windows)
        self._product.forward()

    def backward(self, gradient: Tensor) -> Tensor:
        """Multiply by hand for the weights; the gradient of the images is torch's own."""
        self._product.backward(gradient.permute(0, 2, 3, 1).reshape(self._product.output.shape))
        if self._first:
            return gradient
        _choose_kernels(self._product.is_large)
        back, _, _ = _aten.convolution_backward(
            gradient, self._x, self._kernels, None, *self._how, False, [0, 0], 1, [True, False, False]
        )
        return back  # type: ignore[no-any-return]


class MaxPool(Layer):
    """A max pool."""

    def __init__(self, layer: nn.MaxPool2d, x: Tensor) -> None:
        self._x = x
        self._how = [pair(size) for size in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
        self.output, self._where = _aten.max_pool2d_with_indices(x, *self._how)
        self._back = torch.empty_like(x)

    def forward(self) -> None:
        """Keep the largest of each window, and its index."""
        _aten.max_pool2d_with_indices.out(self._x, *self._how, out=self.output, indices=self._where)

    def backward(self, gradient: Tensor) -> Tensor:
        """Give each gradient to the largest of its window."""
        return _aten.max_pool2d_with_indices_backward.grad_input(  # type: ignore[no-any-return]
            gradient, self._x, *self._how, False, self._where, grad_input=self._back
        )


class Rectifier(Layer):
    """A ReLU, in place: the layer before it does not use its output again."""

    def __init__(self, x: Tensor) -> None:
        self.output = x

    def forward(self) -> None:
        """Set what is negative to 0."""
        self.output.relu_()

    def backward(self, gradient: Tensor) -> Tensor:
        """Set the gradient to 0 wherever the output is 0."""
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


def _choose_kernels(large: bool) -> None:
    """Use oneDNN in the next operations if it is chosen and the product is large.

    `FastGradient.backward` restores the caller's setting.
    """
    torch.backends.mkldnn.enabled = large and current_products() == "onednn"  # type: ignore[assignment]


def pair(size: Any) -> tuple[int, int]:
    """Return a size as height and width."""
    return size if isinstance(size, tuple) else (size, size)


class FastGradient:
    """The cross-entropy of a plain network, for batches of one shape."""

    def __init__(self, x: Tensor, layers: Sequence[Layer], first: int) -> None:
        """Take the buffer of the inputs, the layers, and the index of the first layer that has weights."""
        self._input = x
        self._layers = layers
        self._first = first
        self._logits = layers[-1].output
        self._back = torch.empty_like(self._logits)
        self._minus = torch.full((len(x), 1), -1.0)

    def backward(self, x: Tensor, y: Tensor, class_weights: Tensor | None = None) -> None:
        """Write the gradient of a batch's mean cross-entropy into the layers' places.

        With weights, the cross-entropy of each sample is multiplied by that of its class before the mean.
        """
        with torch.no_grad(), fast_products():
            before = torch.backends.mkldnn.enabled  # the layers switch oneDNN on and off
            try:
                self._backward(x, y, class_weights)
            finally:
                torch.backends.mkldnn.enabled = before

    def _backward(self, x: Tensor, y: Tensor, class_weights: Tensor | None) -> None:
        self._input.copy_(x)
        for layer in self._layers:
            layer.forward()
        back = torch.softmax(self._logits, 1, out=self._back)
        back.scatter_add_(1, y[:, None], self._minus).div_(len(back))
        if class_weights is not None:
            back.mul_(class_weights[y][:, None])
        for layer in reversed(self._layers[self._first :]):
            back = layer.backward(back)


WEIGHTED = (nn.Conv2d, nn.Linear)


def fast_gradient_of(module: nn.Module, shape: torch.Size, place: Places) -> FastGradient | None:
    """Return the fast gradient of a network for batches of one shape; None if the network is not plain."""
    try:
        return _build(module, shape, place)
    except (NotPlainError, KeyError):
        return None


def _build(module: nn.Module, shape: torch.Size, place: Places) -> FastGradient:
    modules = list(_leaves(module))
    if not all(_is_plain(layer) for _, layer in modules):
        raise NotPlainError
    first = next((at for at, (_, layer) in enumerate(modules) if isinstance(layer, WEIGHTED)), 0)
    x = output = _image(shape) if len(shape) == 4 else torch.empty(shape)
    layers: list[Layer] = []
    for at, (name, layer) in enumerate(modules):
        layers.append(_make(name, layer, output, place, at == first))
        output = layers[-1].output
    if output.ndim != 2:
        raise NotPlainError
    return FastGradient(x, layers, first)


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
        return MaxPool(layer, x)
    return Rectifier(x) if isinstance(layer, nn.ReLU) else Flattening(x)


def _leaves(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested `nn.Sequential`s in order, with their names."""
    if type(module) is not nn.Sequential or _has_hooks(module):
        yield name, module
        return
    for own, child in module._modules.items():  # `named_children` yields a layer that is used twice only once
        yield from _leaves(child, f"{name}.{own}" if name else own)


def _has_hooks(layer: nn.Module) -> bool:
    """Whether a layer has hooks, which only autograd would call."""
    return any(
        getattr(layer, f"_{way}_hooks") for way in ("forward", "forward_pre", "backward", "backward_pre")
    )


def _is_plain(layer: nn.Module) -> bool:
    """Whether there is a layer here that does exactly the same; a subclass may do something else."""
    if _has_hooks(layer):
        return False
    if type(layer) is nn.Conv2d:
        usual = layer.groups == 1 and pair(layer.dilation) == (1, 1) and layer.padding_mode == "zeros"
        return usual and not isinstance(layer.padding, str)
    if type(layer) is nn.MaxPool2d:
        return not layer.ceil_mode and not layer.return_indices
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    return type(layer) in (nn.ReLU, nn.Linear)


def _image(shape: torch.Size) -> Tensor:
    """Return a buffer for images; many channels come last, so that patches are copied in long runs."""
    deep = shape[1] >= FEW
    return torch.empty(shape, memory_format=torch.channels_last if deep else torch.contiguous_format)
