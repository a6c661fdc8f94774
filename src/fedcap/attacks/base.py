"""The round as a server that knows all models sees it, for attackers who aim at what it compares.

A client's row, seen from the server's global model w, is what it received, plus the update it sent, minus w:
FedCAP's calibrated update. An attacker who knows what everybody received can choose its row there. A server
without a global model compares updates as they were sent.

What every attack is: a frozen set of options, and one function from a view of the round to malicious rows.

`View` is all that an attacker with full knowledge sees of a round. Most attacks look at the updates and at
who is malicious, and so can be called on a matrix alone: `attack(updates, malicious)`. Those that follow
their victims, know the defence, or remember earlier rounds use the rest of the view.

What Min-Max and Min-Sum share: d_m = mean + γ · d_p, γ the largest that keeps within a bound.

Reference: Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021. Both bounds are quadratic
in γ, so the largest γ is a root and needs no search. Rows are all N participants' honest updates.
Products are taken in double precision over blocks of columns: exact, whatever D is.

An attack round another one: what malicious clients send is the inner attack's, changed or held back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, InstanceOf
from torch import Tensor

from fedcap.errors import InputError
from fedcap.matrix import Values, column_blocks, to_floats, to_tensor
from fedcap.registry import Registry
from fedcap.state import Samples, Tensors, owned, under

RowsAt = Callable[[float], Tensor]
"""From a size to the rows that malicious clients send, M×D."""


@dataclass(frozen=True)
class Scene:
    """What everybody received and the point it is seen from; zeros where updates are compared as sent."""

    view: View
    received: Tensor
    """N×D, or zeros: the model each received, the mean if it received several."""
    reference: Tensor
    """D: the server's global model; for the blind, the mean of what malicious clients received."""

    @classmethod
    def of(cls, view: View, blind: bool = False) -> Scene:
        """Look at a round; the blind see what malicious clients receive, and nothing of the server."""
        server = None if blind else view.server.reference
        if view.look_at_received is None or (server is None and not blind):
            return cls(view, torch.zeros_like(view.updates), torch.zeros_like(view.updates[0]))
        received = torch.stack([_one(view.received(row)) for row in range(len(view.updates))]).to(
            view.updates
        )
        reference = received[view.malicious].mean(dim=0) if server is None else server.to(received)
        return cls(view, received, reference)

    @property
    def rows(self) -> Tensor:
        """The honest rows, N×D, as the server would see them."""
        return self.received + self.view.updates - self.reference

    def updates(self, rows: Tensor) -> Tensor:
        """Return what malicious clients must send, M×D, so that the server sees these rows."""
        return rows + self.reference - self.received[self.view.malicious]


def unit(rows: Tensor) -> Tensor:
    """Return the rows, or one vector, at length 1; a row of zeros stays as it is."""
    return torch.nn.functional.normalize(rows, dim=-1)


def victims(view: View) -> Tensor:
    """Return the rows at which the attack aims: the benign clients', or all if nobody is benign."""
    return (~view.malicious if bool((~view.malicious).any()) else view.malicious).nonzero().flatten()


def aim(view: View) -> Tensor:
    """Return the mean update of the victims, D: where they want to go."""
    return view.updates[victims(view)].mean(dim=0)


def noise(view: View, rows: int) -> Tensor:
    """Return independent random directions of length 1, one per row; without a generator, always the same."""
    generator = view.generator or torch.Generator().manual_seed(0)
    drawn = torch.randn(rows, view.updates.shape[1], generator=generator)
    return unit(drawn).to(view.updates)


def harm(view: View, before: Foresight, after: Foresight) -> float:
    """Return how far the victims' next models are thrown back, on average, along the way they want to go.

    `before` is what comes of the round if nobody lies.
    """
    aimed = victims(view)
    aimed = aimed[(before.served & after.served).to(aimed.device)[aimed]]
    if not len(aimed):
        return 0.0
    back = (before.models[aimed] - after.models[aimed]) * unit(view.updates[aimed])
    return float(back.sum(dim=1).mean())


def longest(view: View, rows_at: RowsAt, start: float, most: float = 64.0, steps: int = 6) -> float:
    """Return the largest size, in multiples of `start`, at which the server accuses no malicious client.

    Sizes are doubled while they pass, up to `most`; then the interval is halved, `steps` times. It is 0 if
    not even a small fraction of `start` passes.
    """
    bad = view.malicious.cpu()

    def passes(size: float) -> bool:
        return not bool(view.foresee(view.with_malicious(rows_at(size * start))).accused[bad].any())

    low, high = 0.0, 1.0
    while high <= most and passes(high):
        low, high = high, 2 * high
    if low >= most:
        return low * start
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low * start


def _one(models: Tensor) -> Tensor:
    return models[0] if len(models) == 1 else models.mean(dim=0)


@dataclass(frozen=True)
class ServerView:
    """What an attacker who knows the server sees of it."""

    reference: Tensor | None = None
    """D: the server's global model in this round, if it has one."""
    clients: tuple[str, ...] = ()
    """Whose models the server holds."""
    models: Tensor | None = None
    """P×D: the models it holds."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The detectors' limits by the names of their scores."""


@dataclass(frozen=True)
class Foresight:
    """What would come of a round if it ended with certain rows; a row per participant."""

    accused: Tensor
    """N flags: who would be removed or suspected."""
    models: Tensor
    """N×D: the model each would be sent next, the mean if it is sent several."""
    served: Tensor
    """N flags: who would be sent one at all; the models of the others are zeros."""


@dataclass(frozen=True)
class View:
    """One round as an attacker sees it: a row per participant."""

    updates: Tensor
    """N×D: the honest updates, the attackers' own included; zeros for attackers that did not train."""
    malicious: Tensor
    """N flags."""
    generator: torch.Generator | None = None
    round: int = 1
    request: bool = False
    """Whether these are newcomers' requests rather than the round's updates."""
    clients: tuple[str, ...] = ()
    """N: who they are."""
    memory: Tensors = field(default_factory=dict)
    """What the attack remembers of earlier rounds; it lies on the CPU."""
    look_at_received: Callable[[int], Tensor] | None = None
    look_at_server: Callable[[], ServerView] = ServerView
    look_ahead: Callable[[Tensor], Foresight] | None = None

    @property
    def benign(self) -> Tensor:
        """The honest clients' updates, B×D."""
        return self.updates[~self.malicious]

    @cached_property
    def server(self) -> ServerView:
        """What the server holds and which limits it has; computed when first used."""
        return self.look_at_server()

    def received(self, participant: int) -> Tensor:
        """Return the models that a participant, by its row, was sent, k×D."""
        if self.look_at_received is None:
            raise ValueError("this view does not say what was sent: it was made from updates alone")
        return self.look_at_received(participant)

    def foresee(self, rows: Tensor) -> Foresight:
        """Return what the server would make of all rows of the round, N×D; nothing changes by it.

        A view that was made from updates alone has no server: there the plain mean stands for it.
        """
        if self.look_ahead is not None:
            return self.look_ahead(rows)
        everybody = torch.ones(len(rows), dtype=torch.bool)
        return Foresight(~everybody, rows.mean(dim=0).expand_as(rows), everybody)

    def with_malicious(self, rows: Tensor) -> Tensor:
        """Return all rows of the round, N×D, with these, M×D or one D-vector, for the malicious ones."""
        sent = self.updates.clone()
        sent[self.malicious] = rows.to(sent)
        return sent


@dataclass(frozen=True)
class Crafted:
    """What an attack that remembers returns: the malicious rows, and its memory after the round."""

    rows: Tensor
    """M×D, or one D-vector that all malicious clients send."""
    memory: Tensors


@dataclass(frozen=True)
class Attack(ABC):
    """An attack on the updates of a round, or on the data behind them."""

    uses_honest_updates: ClassVar[bool] = True
    """Whether the attack needs what its own clients would have sent; if not, they need not train."""

    claim: Annotated[int, Field(gt=0)] | None = field(default=None, kw_only=True)
    """The number of samples malicious clients claim to have, if not the true one."""

    def poison_labels(self, labels: Tensor, classes: int) -> Tensor:
        """Return the labels a malicious client trains on: its own, unless an attack overrides this."""
        return labels

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        """Return what a malicious client trains on; an attack on inputs overrides this."""
        return Samples(samples.x, self.poison_labels(samples.y, classes))

    @abstractmethod
    def craft(self, view: View) -> Tensor | Crafted:
        """Return the malicious rows, M×D, or one D-vector that all malicious clients send.

        An attack that remembers returns `Crafted`, its rows and its memory; it finds the memory in
        `view.memory` the next time, which is empty at first.
        """

    def wire(self, row: Tensor) -> object:
        """Return what a malicious client transmits for its row: the row, unless an attack overrides this."""
        return row

    def strike(self, view: View) -> Crafted:
        """Return all rows of the round, N×D, with the malicious ones replaced, and the memory after it."""
        if not view.malicious.any():
            return Crafted(view.updates.clone(), view.memory)
        found = self.craft(view)
        crafted = found if isinstance(found, Crafted) else Crafted(found, view.memory)
        return Crafted(view.with_malicious(crafted.rows), crafted.memory)

    def __call__(
        self, updates: Values, malicious: Values, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return a new N×D matrix with the malicious rows replaced; lists and NumPy arrays are taken too."""
        updates, malicious = to_floats(updates), to_tensor(malicious)
        if updates.ndim != 2 or malicious.shape != updates.shape[:1]:
            raise ValueError(
                f"expected N×D updates and N flags, got {list(updates.shape)} and {list(malicious.shape)}"
            )
        malicious = malicious.to(device=updates.device, dtype=torch.bool)
        return self.strike(View(updates, malicious, generator)).rows


registry: Registry[Attack] = Registry("attack", Attack, "fedcap.attacks")


BLOCK = 1 << 16
SHORT_OF_THE_BOUND = 1 - 1e-6
"""γ stays a millionth short, so that rounding the row to single precision does not cross the bound
(unless the mean is hundreds of times longer than the spread, where single precision is too coarse)."""


@dataclass(frozen=True)
class Geometry:
    """Products of the centred updates c_i = mean − d_i and the perturbation p."""

    products: Tensor
    """N×N: c_i · c_j."""
    along: Tensor
    """N: p · c_i."""
    length: Tensor
    """Scalar: ‖p‖²."""

    def squared_distances(self) -> Tensor:
        """Return the N×N squared distances between the updates."""
        squares = self.products.diagonal()
        return (squares[:, None] + squares[None, :] - 2 * self.products).clamp_min(0)


def measure(updates: Tensor, mean: Tensor, perturbation: Tensor) -> Geometry:
    """Compute all products that either bound needs, one pass over the columns."""
    rows, columns = updates.shape
    products = updates.new_zeros((rows, rows), dtype=torch.float64)
    along = updates.new_zeros(rows, dtype=torch.float64)
    length = updates.new_zeros((), dtype=torch.float64)
    for block in column_blocks(columns, BLOCK):
        centred = mean[block].double() - updates[:, block].double()
        direction = perturbation[block].double()
        products += centred @ centred.T
        along += centred @ direction
        length += direction @ direction
    return Geometry(products, along, length)


@dataclass(frozen=True)
class PerturbationAttack(Attack):
    """mean + γ · d_p with the largest γ within a bound that the subclass states."""

    direction: Literal["std", "sign", "unit"] = "std"
    """d_p: minus the standard deviation, minus the mean's sign, or minus the mean's unit vector."""

    @abstractmethod
    def largest_gamma(self, geometry: Geometry) -> Tensor:
        """Return the largest γ ≥ 0 within the bound."""

    def craft(self, view: View) -> Tensor:
        """Return the one vector that all malicious clients send."""
        updates = view.updates
        std, mean = torch.std_mean(updates, dim=0, correction=0)
        if self.direction == "std":
            perturbation = -std
        elif self.direction == "sign":
            perturbation = -mean.sign()
        else:
            perturbation = -torch.nn.functional.normalize(mean, dim=0)
        geometry = measure(updates, mean, perturbation)
        if geometry.length == 0:
            return mean
        gamma = SHORT_OF_THE_BOUND * self.largest_gamma(geometry)
        return mean + gamma.to(mean.dtype) * perturbation


AttackChoice = str | dict[str, Any] | InstanceOf[Attack] | InstanceOf[type[Any]]
"""An attack's name, a table of its name and options, an object, or a class."""
BEYOND_ROWS = ("poison", "poison_labels", "wire")
"""What an attack overrides to change more than rows."""


@dataclass(frozen=True)
class AttackWrapper(Attack):
    """An attack that has another one, which is built at once, so that mistakes in it are found early."""

    attack: AttackChoice = "min-max"
    """The inner attack: a name, a table of its name and options, or an object."""

    def __post_init__(self) -> None:
        _ = self.inner

    @cached_property
    def inner(self) -> Attack:
        """The inner attack."""
        return build_inner(self.attack)

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, the inner attack's too."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**options, "attack": registry.canonical(self.attack)}

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        """Return what the inner attack trains on."""
        return self.inner.poison(samples, classes, generator)

    def wire(self, row: Tensor) -> object:
        """Return what the inner attack transmits."""
        return self.inner.wire(row)


def build_inner(choice: AttackChoice, rows_alone: bool = False) -> Attack:
    """Build an attack that is part of another one; refuse what would be lost there.

    With `rows_alone` it must be one that changes nothing but rows: those can be sent in some rounds alone.
    """
    inner = registry.build(choice)
    name = registry.named(choice)[0]
    if inner.claim is not None:
        raise InputError(f"{name} within another attack cannot claim samples: set claim on the outer one")
    innermost = inner
    while isinstance(innermost, AttackWrapper):
        innermost = innermost.inner
    beyond = (getattr(type(innermost), part) is not getattr(Attack, part) for part in BEYOND_ROWS)
    if rows_alone and any(beyond):
        raise InputError(f"{name} cannot be switched on and off by rounds: choose an attack on updates")
    return inner


def inner_rows(attack: Attack, view: View, name: str = "inner") -> Crafted:
    """Return the rows of an inner attack, M×D, with the memory of the outer one after it.

    What the inner attack remembers lies there under a name of its own.
    """
    found = attack.craft(replace(view, memory=owned(name, view.memory)))
    crafted = found if isinstance(found, Crafted) else Crafted(found, owned(name, view.memory))
    others = {key: kept for key, kept in view.memory.items() if not key.startswith(f"{name}.")}
    rows = crafted.rows.to(view.updates).expand(int(view.malicious.sum()), -1)
    return Crafted(rows, {**others, **under(name, crafted.memory)})
