"""FedRoD: a shared body and generic head for all classes alike, and a personal head for the client's own.

Reference: Chen, Chao, "On bridging generic and personalized federated learning for image classification",
ICLR 2022. With features z = body(x), every mini-batch moves

    body, generic head:  cross-entropy of  generic(z) + log n_c    (balanced softmax, Ren et al., 2020)
    personal head:       cross-entropy of  generic(z) + personal(z)    with z and generic(z) held fixed

where n_c counts the client's training samples of class c; a class it has none of is left out. The balanced
softmax treats all classes alike, so `training.class_weights` is for the personal head's loss alone. Body and
generic head are aggregated as FedAvg's model is, by any rule. The personal head never leaves the client,
so a client keeps its trained model, D, and its head, H; the personal model answers
generic(z) + personal(z). Momentum, weight decay and clipping apply to either loss's gradient on its own, as
with two optimisers.

Malicious clients send attacked updates of body and generic head together; these reach other clients'
personal heads only through the features and the generic logits. Under label flipping n_c counts flipped
labels.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedcap.errors import InputError, nearest
from fedcap.methods.base import registry
from fedcap.methods.fedavg import FedAvg
from fedcap.state import Tensors
from fedcap.training import SGD, ClientUpdate, Descent, Layout, Learner, LocalClient, Network
from fedcap.training.network import mean_cross_entropy


class Head:
    """The last layers of a network, which can also be run with other weights, a flat vector of H."""

    def __init__(self, network: Network, name: str | None) -> None:
        self._network = network
        self._layers = _last_layers(network.module, name)
        self._named = [(key, p) for key, p in self._layers.named_parameters() if p.requires_grad]

    @property
    def weights(self) -> Tensor:
        """A copy of the head's own weights, H."""
        return torch.cat([parameter.detach().flatten() for _, parameter in self._named])

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the network's logits for inputs x, and the features that came into the head."""
        return _split(self._network.answer, self._layers[0], x)

    def answer(self, weights: Tensor, features: Tensor) -> Tensor:
        """Return the logits of a head with these weights; the network's own weights are not changed."""
        parts = torch.split(weights, [parameter.numel() for _, parameter in self._named])
        tensors = {key: part.view_as(p) for (key, p), part in zip(self._named, parts, strict=True)}
        tensors |= {key: buffer.clone() for key, buffer in self._layers.named_buffers()}
        return functional_call(self._layers, tensors, (features,))  # type: ignore[no-any-return]


def _split(answer: Callable[[Tensor], Tensor], first: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a network's logits for inputs x, and what came into the first layer of its head."""
    seen: list[Tensor] = []
    hook = first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = answer(x)
    finally:
        hook.remove()
    return logits, seen[0]


def _last_layers(module: nn.Module, name: str | None) -> nn.Sequential:
    """Return the layers from the named one to the end; by default the last that has weights."""
    modules = dict(module.named_modules())
    name = Layout.of(module).last_module if name is None else name
    if name not in modules:
        raise InputError(
            f"the model has no layer {name!r}: {nearest(name, filter(None, modules))}",
            code="unknown-name",
            field="head",
        )
    parent, _, own = name.rpartition(".")
    layers = [modules[name]]
    if name and isinstance(modules[parent], nn.Sequential):
        children = dict(modules[parent].named_children())
        layers = list(children.values())[list(children).index(own) :]
    head = nn.Sequential(*layers)
    trained = [p for p in module.parameters() if p.requires_grad]
    inside = {id(p) for p in head.parameters()}
    first = next((place for place, p in enumerate(trained) if id(p) in inside), None)
    if first is None or any(id(p) not in inside for p in trained[first:]):
        raise InputError(
            f"the layers from {name!r} on are not the model's end: a head is one module, or the end of an"
            " nn.Sequential, and has weights to train",
            code="unsuitable-layer",
        )
    return head


class BothHeads(nn.Module):
    """A network with a second, personal head; it returns the sum of both heads' logits."""

    def __init__(self, network: nn.Module, name: str | None, weights: Tensor) -> None:
        super().__init__()
        layers = _last_layers(network, name)
        self.network = network
        self.personal = deepcopy(layers)
        self._first = (layers[0],)  # a tuple, because it is a part of the network already
        trained = [p for p in self.personal.parameters() if p.requires_grad]
        parts = torch.split(weights, [p.numel() for p in trained])
        for parameter, part in zip(trained, parts, strict=True):
            parameter.data = part.view_as(parameter).clone()

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both heads' logits."""
        generic, features = _split(self.network, self._first[0], x)
        return generic + self.personal(features)  # type: ignore[no-any-return]


class TwoHeads(Learner):
    """Body and generic head on the balanced softmax, and a personal head."""

    def __init__(
        self, network: Network, weights: Tensor, head: Head, personal: Tensor, labels: Tensor
    ) -> None:
        super().__init__(network, weights)
        self.personal = personal.clone().requires_grad_()
        self._own = Descent(self.personal.data)
        self._head = head
        self._labels = labels

    def begin(self, sgd: SGD) -> None:
        """Get ready for the steps of one `fit`, with both heads."""
        super().begin(sgd)
        self._own.begin(sgd.momentum, sgd.weight_decay, sgd.clip, sgd.optimiser)

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the generic head's balanced softmax loss."""
        logits, features = self._head.split(x)
        self._seen = logits.detach(), features.detach()
        return self.network.backward(balanced_softmax(logits, y, self._labels))

    def step(self, x: Tensor, y: Tensor, lr: float) -> None:
        """Take a step with body and generic head, and with the personal head on their outputs before it."""
        super().step(x, y, lr)
        generic, features = self._seen
        answer = generic + self._head.answer(self.personal, features)
        loss = mean_cross_entropy(answer, y, self.class_weights)
        (gradient,) = torch.autograd.grad(loss, self.personal)
        self._own.step(gradient, lr)


def balanced_softmax(logits: Tensor, y: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of logits + log n_c, where n_c counts class c among the labels."""
    counts = torch.bincount(labels, minlength=logits.shape[1]).to(logits.dtype)
    return functional.cross_entropy(logits + counts.log(), y)


@registry.register("fedrod")
@dataclass(frozen=True)
class FedRoD(FedAvg):
    """A shared model trained on all classes alike, and a personal head on top of its features."""

    head: str | None = None
    """The layer at which the head begins, by its name in the model; the last with weights if not given."""

    def client_init(self, network: Network) -> Tensors:
        """Return the common weights, and a personal head that starts as the generic one does."""
        return {"personal": network.weights, "head": Head(network, self.head).weights}

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        """Train body, generic head and personal head together."""
        network = client.network()
        head = Head(network, self.head)
        learner = TwoHeads(network, received[0], head, own["head"], client.samples.y)
        client.fit(learner)
        state = {"personal": learner.weights, "head": learner.personal.detach()}
        return ClientUpdate(learner.weights - received[0], state)

    def predictor(self, network: Network, own: Tensors) -> nn.Module:
        """Return the network with both heads."""
        network.load(own["personal"])
        return BothHeads(network.module, self.head, own["head"])
