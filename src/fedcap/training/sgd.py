"""Local SGD: one vector of weights with the options of `torch.optim.SGD`, and the loop over mini-batches.

    g ← ∇L(w) + pull · (w − anchor)          the gradient of L(w) + pull/2 · ‖w − anchor‖²
    g ← g · min(1, clip / (‖g‖ + 10⁻⁶))      as `torch.nn.utils.clip_grad_norm_` does
    g ← g + weight_decay · w                 after clipping, as in `torch.optim.SGD`
    v ← momentum · v + g                     heavy ball, from v = 0 (Polyak, 1964)
    w ← w − lr · v

Without options this is w ← w − lr · g, and no memory is allocated for the rest. Another optimiser of
`torch.optim` takes the place of the last three lines; its state starts from nothing in each round.

A `Learner` is a weight vector, D, with its loss: the cross-entropy, and the pull if it has an anchor. With
`class_weights = "balanced"`, the loss of a mini-batch of B samples is

    1/B Σ_i w_{y_i} · cross-entropy_i    with  w_c = n / (C n_c)    over the client's n training samples,

of which n_c are of class c, and C is the number of classes that it has. So each class has the same total
weight, and the mean weight is 1: the learning rate and the pull need no other values. On each mini-batch
`fit` lets every learner take one step. FedCAP trains two learners: the personal one, then the shared one.
Each has an optimiser, and the pull is a part of the gradient that the optimiser receives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, ConfigDict, Field
from torch import Tensor

from fedcap.errors import nearest
from fedcap.state import Samples
from fedcap.training.network import Network

SMALLEST = 1e-6
"""What `clip_grad_norm_` adds to a norm before it divides by it."""


class Descent:
    """One vector of weights, moved in place along gradients of the same length."""

    def __init__(self, weights: Tensor, anchor: Tensor | None = None, pull: float = 0.0) -> None:
        self._weights = weights
        self._anchor = None if pull == 0 else anchor
        self._pull = pull
        self._optimiser: torch.optim.Optimizer | None = None
        self.begin(0.0, 0.0, None)

    def begin(
        self,
        momentum: float,
        weight_decay: float,
        clip: float | None,
        optimiser: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the options of the next steps; the velocity, or the optimiser's state, starts from nothing."""
        self._momentum, self._weight_decay, self._clip = momentum, weight_decay, clip
        self._plain = not (momentum or weight_decay or clip)
        self._velocity: Tensor | None = None
        self._optimiser = None
        if optimiser is not None:
            self._parameter = torch.nn.Parameter(self._weights)
            self._optimiser = make_optimiser(optimiser, self._parameter)

    def step(self, gradient: Tensor, lr: float) -> None:
        """Move the weights by one step; the gradient is left as it is."""
        if self._optimiser is not None:
            self._parameter.grad = self._direction(gradient)
            for group in self._optimiser.param_groups:
                group["lr"] = lr
            self._optimiser.step()
            return
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


UNSUITABLE = ("adafactor", "lbfgs", "muon", "optimizer", "sparseadam")
"""Classes of torch.optim that need more than a vector of gradients."""


def optimiser_names() -> list[str]:
    """Return the names of the optimisers of torch.optim that can train a vector of weights."""
    classes = [name for name, value in vars(torch.optim).items() if isinstance(value, type)]
    return sorted(name.lower() for name in classes if name.lower() not in UNSUITABLE)


def make_optimiser(table: Mapping[str, Any], parameter: Tensor) -> torch.optim.Optimizer:
    """Return an optimiser of torch.optim, given its name and its options."""
    classes = {name.lower(): value for name, value in vars(torch.optim).items()}
    options = {key: value for key, value in table.items() if key != "name"}
    return classes[table["name"]]([parameter], lr=SGD.lr, **options)  # type: ignore[no-any-return]


def _checked_optimiser(value: Any) -> dict[str, Any] | None:
    """Return a table of an optimiser's name and options; a mistake is a `ValueError`."""
    if not isinstance(value, str | Mapping | None):
        raise ValueError(f"optimiser must be a name, or a table of a name and options (got {value!r})")
    table = {"name": value} if isinstance(value, str) else dict(value or {})
    if not table:
        return None
    table["name"] = str(table.get("name", "")).lower()
    if table == {"name": "sgd"}:
        return None
    if table["name"] not in optimiser_names():
        raise ValueError(f"unknown optimiser {table['name']!r}: {nearest(table['name'], optimiser_names())}")
    if "lr" in table:
        raise ValueError("the learning rate is training.lr, not an option of the optimiser")
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    try:
        make_optimiser(table, parameter).step()
    except Exception as error:  # an option that the class does not have, or a value that it refuses
        first = str(error).partition("\n")[0]
        raise ValueError(f"optimiser {table['name']} refuses its options: {first}") from None
    return table


@dataclass(frozen=True)
class SGD:
    """How a client trains in one round; pydantic checks the values where they come from a user."""

    __pydantic_config__ = ConfigDict(extra="forbid", revalidate_instances="always")

    lr: Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)] = 0.01
    """The learning rate: how far a step follows the gradient."""
    epochs: Annotated[int, Field(ge=1)] = 5
    """The number of passes over the client's samples in a round."""
    batch_size: Annotated[int, Field(ge=1)] = 10
    """The number of samples of a mini-batch."""
    shuffle: bool = True
    """Draw a new order of the samples each epoch; otherwise their order is fixed."""
    drop_last: bool = True
    """Leave out a last batch that is short, unless it is the only one."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of the last step's direction in the next; each round starts with a velocity of zero."""
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """How strongly all trained weights are pulled towards zero: this times the weights joins the gradient."""
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The largest norm of a gradient, all weights together; a larger one is scaled down to it."""
    decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The learning rate of round t is lr · decay^(t − 1)."""
    optimiser: Annotated[dict[str, Any] | None, BeforeValidator(_checked_optimiser)] = None
    """A class of torch.optim in place of SGD: a name such as adamw, or a table of its name and options. Its
    state starts from nothing in each round."""
    class_weights: Literal["balanced"] | None = None
    """`balanced` gives each class of a client's training samples the same total weight in its loss."""

    def __post_init__(self) -> None:
        if self.optimiser is not None and (self.momentum or self.weight_decay):
            raise ValueError(
                "momentum and weight_decay are options of SGD: give those of the optimiser in its table,"
                " such as training.optimiser.weight_decay"
            )

    def in_round(self, number: int) -> SGD:
        """Return the settings of one round, the first being 1: the learning rate has decayed."""
        if self.decay == 1:
            return self
        return replace(self, lr=self.lr * self.decay ** (number - 1), decay=1.0)

    def batches(self, count: int, generator: torch.Generator) -> Iterator[Tensor | slice]:
        """Yield the indices of each mini-batch of each epoch, out of `count` samples."""
        full = count // self.batch_size * self.batch_size
        end = full if self.drop_last and full else count
        for _ in range(self.epochs):
            order = torch.randperm(count, generator=generator) if self.shuffle else None
            for start in range(0, end, self.batch_size):
                batch = slice(start, min(start + self.batch_size, end))
                yield batch if order is None else order[batch]


class Learner:
    """Weights in training, in a network, with an optional anchor that pulls them towards it."""

    def __init__(
        self, network: Network, weights: Tensor, anchor: Tensor | None = None, pull: float = 0.0
    ) -> None:
        self.network = network
        self.weights = network.weights
        self.class_weights: Tensor | None = None
        """The weight of each class in the loss; None if all samples count alike."""
        network.load(weights)
        trainable = network.layout.trainable
        self._descent = Descent(
            self.weights[:trainable], None if anchor is None else anchor[:trainable], pull
        )

    def begin(self, sgd: SGD) -> None:
        """Prepare for the steps of one `fit`: set their options, and the velocity to zero."""
        self.network.module.train()
        self._descent.begin(sgd.momentum, sgd.weight_decay, sgd.clip, sgd.optimiser)

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the loss on a mini-batch, one number per trainable weight."""
        return self.network.cross_entropy_gradient(x, y, self.class_weights)

    def step(self, x: Tensor, y: Tensor, lr: float) -> None:
        """Take one SGD step on a mini-batch."""
        self._descent.step(self.gradient(x, y), lr)


def balanced_weights(labels: Tensor) -> Tensor:
    """Return n / (C n_c) for each class c up to the largest label; 0 for classes that do not occur."""
    counts = torch.bincount(labels)
    weights = len(labels) / (int((counts > 0).sum()) * counts.double())
    return torch.where(counts > 0, weights, 0).float()


def fit(
    learners: Sequence[Learner],
    samples: Samples,
    sgd: SGD,
    generator: torch.Generator,
    class_weights: Tensor | None = None,
) -> None:
    """Train the learners in place, each on the same mini-batches, in the order given."""
    for learner in learners:
        learner.class_weights = class_weights
        learner.begin(sgd)
    for batch in sgd.batches(len(samples), generator):
        x, y = _select(samples.x, batch), _select(samples.y, batch)
        for learner in learners:
            learner.step(x, y, sgd.lr)


def _select(rows: Tensor, batch: Tensor | slice) -> Tensor:
    """Return the rows of a batch; `index_select` is faster than indexing with a tensor."""
    return rows[batch] if isinstance(batch, slice) else rows.index_select(0, batch.to(rows.device))
