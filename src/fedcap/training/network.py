"""Any `nn.Module` as a function of one flat weight vector.

`Network` moves a module's weights into one vector of D numbers, and their gradients into another, so that an
SGD step is one operation on a vector. The trainable parameters come first in the vector. Then come the values
that are sent and mixed but not trained: frozen parameters, and floating-point buffers such as the statistics
of a batch norm.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcap.errors import InputError
from fedcap.training.fast_gradient import FastGradient, Place, fast_gradient_of


class ModelError(RuntimeError):
    """A network fails in its own code; the message names it, and the cause has the traceback."""


@dataclass(frozen=True)
class Slot:
    """Where one named tensor of the module lies in the flat vector."""

    name: str
    shape: torch.Size
    start: int
    stop: int

    def of(self, vector: Tensor) -> Tensor:
        """Return this tensor as a view of the vector; a tensor of 4 dimensions lies there channels last."""
        part = vector[self.start : self.stop]
        if len(self.shape) != 4:
            return part.view(self.shape)
        outputs, inputs, height, width = self.shape
        return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Layout:
    """How a module's tensors lie in its flat vector of `size` weights."""

    slots: tuple[Slot, ...]
    trainable: int
    """The number of weights that SGD moves; they come first."""
    size: int

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Return the layout of a module's weights."""
        slots: list[Slot] = []
        stop = trainable = 0
        for name, tensor, learns in _weights(module):
            start, stop = stop, stop + tensor.numel()
            slots.append(Slot(name, tensor.shape, start, stop))
            trainable = stop if learns else trainable
        return cls(tuple(slots), trainable, stop)

    def digest(self) -> str:
        """Return a hash of the layout; vectors of different digests cannot be exchanged."""
        text = f"channels-last {self.trainable} {self.slots}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def last_module(self) -> str:
        """The name of the last module that has trainable weights of its own: the classifier."""
        trained = [slot for slot in self.slots if slot.stop <= self.trainable]
        return trained[-1].name.rpartition(".")[0]

    @property
    def last_layer(self) -> slice:
        """The columns of the last module."""
        trained = [slot for slot in self.slots if slot.stop <= self.trainable]
        own = [slot for slot in trained if slot.name.rpartition(".")[0] == self.last_module]
        return slice(own[0].start, own[-1].stop)


def _weights(module: nn.Module) -> list[tuple[str, Tensor, bool]]:
    """List a module's weights as (name, tensor, learns), the learning ones first."""
    parameters = [(name, p, p.requires_grad) for name, p in module.named_parameters()]
    buffers = [(name, b, False) for name, b in module.named_buffers() if b.is_floating_point()]
    return sorted([*parameters, *buffers], key=lambda weight: not weight[2])


class Network:
    """A module whose weights are views of one flat vector, `weights`, and their gradients of another."""

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        name: str = "",
        classes: int | None = None,
    ) -> None:
        self.name = name or f"model {type(module).__name__}"
        """The name in error messages."""
        self.module = module.to(device)
        self.layout = Layout.of(module)
        if self.layout.trainable == 0:
            raise InputError(f"{type(module).__name__} has no weights to train", code="no-weights")
        self.weights = torch.empty(self.layout.size, device=device)
        self._counters = [(b, b.clone()) for b in module.buffers() if not b.is_floating_point()]
        self.gradient = torch.zeros(self.layout.trainable, device=device)
        for slot, (_, tensor, learns) in zip(self.layout.slots, _weights(module), strict=True):
            view = slot.of(self.weights)
            view.copy_(tensor.detach())
            tensor.data = view
            if learns:
                tensor.grad = slot.of(self.gradient)
        self._fast: dict[torch.Size, FastGradient | None] = {}
        self._classes = classes
        """The number of logits; if not given, as many as at first."""

    def load(self, weights: Tensor) -> None:
        """Copy the given weights in; reset counters, which are not in the vector, to their first values."""
        self.weights.copy_(weights)
        for buffer, value in self._counters:
            buffer.copy_(value)

    def backward(self, loss: Tensor) -> Tensor:
        """Return the gradient of a loss computed with this module, one number per trainable weight."""
        self.gradient.zero_()
        with _named_errors(self.name, "failed in backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        return self.gradient

    def answer(self, x: Tensor, module: nn.Module | None = None) -> Tensor:
        """Return the logits for inputs x, of the module or of one made from it; they must be n×classes."""
        with _named_errors(self.name, "failed in forward"):
            logits = (module or self.module)(x)
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if self._classes is None and isinstance(logits, Tensor) and logits.ndim == 2:
            self._classes = logits.shape[1]
        if found != (len(x), self._classes):
            wanted = f"({len(x)}, {self._classes or 'classes'})"
            raise ModelError(f"{self.name} answers {len(x)} inputs with {found}: it should be {wanted}")
        return logits  # type: ignore[no-any-return]

    def cross_entropy_gradient(self, x: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
        """Return the gradient of `mean_cross_entropy` of a batch, without autograd for plain networks."""
        if x.shape not in self._fast:
            on_cpu = self.weights.device.type == x.device.type == "cpu" and x.dtype == torch.float32
            self._fast[x.shape] = fast_gradient_of(self.module, x.shape, self._place) if on_cpu else None
        fast = self._fast[x.shape]
        if fast is None:
            return self.backward(mean_cross_entropy(self.answer(x), y, class_weights))
        fast.backward(x, y, class_weights)
        return self.gradient

    def _place(self, name: str) -> Place:
        """Return where a trainable parameter lies; raise KeyError if there is none of that name."""
        slots = {slot.name: slot for slot in self.layout.slots if slot.stop <= self.layout.trainable}
        part = slice(slots[name].start, slots[name].stop)
        return Place(self.weights[part], self.gradient[part])

    def logits(self, weights: Tensor, x: Tensor) -> Tensor:
        """Return the outputs for inputs x under the given weights, in evaluation mode."""
        self.load(weights)
        self.module.eval()
        with torch.no_grad():
            return self.answer(x)

    def release(self) -> nn.Module:
        """Return the module with weights of its own, contiguous; the network cannot be used afterwards."""
        for _, tensor, _ in _weights(self.module):
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
            tensor.grad = None
        return self.module


def mean_cross_entropy(logits: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Return the mean over all samples of the cross-entropy times the weight of the sample's class."""
    if class_weights is None:
        return functional.cross_entropy(logits, y)
    return (class_weights[y] * functional.cross_entropy(logits, y, reduction="none")).mean()


PROCESS_WIDE = threading.RLock()
"""Hold this lock while changing settings of the whole process: random state, threads, kernels."""


def fresh_network(
    build: Callable[[], nn.Module],
    seed: int,
    device: str = "cpu",
    name: str = "",
    classes: int | None = None,
) -> Network:
    """Return a newly built network; it depends on the seed alone, and no global state is changed."""
    with PROCESS_WIDE, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with _named_errors(name or "the model", "could not be built"):
            module = build()
        return Network(module, device, name, classes)


@contextmanager
def _named_errors(name: str, how: str) -> Iterator[None]:
    """Raise a `ModelError` if the network's own code, run in the block, raises anything."""
    try:
        yield
    except (InputError, ModelError):
        raise
    except Exception as error:
        raise ModelError(f"{name} {how}: {type(error).__name__}: {error}") from error
