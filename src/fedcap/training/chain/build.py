"""Which networks are chains, and the layers they are made of.

A chain is an `nn.Sequential`, nested or not, of convolutions, max pools, ReLUs, flattenings and linear
layers with their usual options. Anything else is left to autograd.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedcap.training.chain.chain import Chain
from fedcap.training.chain.layers import (
    FEW,
    Convolution,
    Flattening,
    Layer,
    Linear,
    MaxPool,
    NotPlainError,
    Places,
    Rectifier,
    pair,
)

WEIGHTED = (nn.Conv2d, nn.Linear)


def chain_of(module: nn.Module, shape: torch.Size, place: Places) -> Chain | None:
    """Return a network as a chain for batches of one shape; none if it is not a chain."""
    try:
        return _build(module, shape, place)
    except (NotPlainError, KeyError):
        return None


def _build(module: nn.Module, shape: torch.Size, place: Places) -> Chain:
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
    return Chain(x, layers, first)


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
    """Whether `chain.layers` has a layer that does exactly the same; a subclass may do something else."""
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
