"""The interface of attacks: frozen options, and one function from a view of a round to the malicious rows.

`View` is what an attacker with full knowledge sees of a round. Most attacks use only the updates and the
flags of malicious clients, and so can be called on a matrix alone: `attack(updates, malicious)`. Others also
use what each client received, what the server holds, a preview of the round, or named tensors that they
remember from earlier rounds. `Geometry` is the round as a server that compares recovered models sees it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, InstanceOf
from torch import Tensor

from fedcap.errors import InputError
from fedcap.matrix import Values, to_floats, to_tensor
from fedcap.registry import Registry
from fedcap.state import Samples, owned, under


@dataclass(frozen=True)
class ServerView:
    """What an attacker that knows the server sees of it."""

    reference: Tensor | None = None
    """D: the server's global model in this round, if it has one."""
    clients: tuple[str, ...] = ()
    """The clients whose models the server holds."""
    models: Tensor | None = None
    """P×D: these models."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The detectors' limits by the names of their scores."""


@dataclass(frozen=True)
class Preview:
    """The result of a round if it ended with certain rows; one row per participant."""

    accused: Tensor
    """N flags: clients that would be removed or suspected."""
    models: Tensor
    """N×D: the model that each would receive next, the mean if it receives several."""
    served: Tensor
    """N flags: clients that would receive a model; the models of the others are zeros."""


@dataclass(frozen=True)
class View:
    """One round as an attacker sees it: one row per participant."""

    updates: Tensor
    """N×D: the honest updates, the attackers' own included; zeros for attackers that did not train."""
    malicious: Tensor
    """N flags."""
    generator: torch.Generator | None = None
    """For the attack's random numbers, which depend on the run's seed and the round."""
    round: int = 1
    request: bool = False
    """Whether these are newcomers' requests rather than the round's updates."""
    clients: tuple[str, ...] = ()
    """N names."""
    memory: dict[str, Tensor] = field(default_factory=dict)
    """Named tensors that the attack may read and change; they are saved with the run."""
    read_received: Callable[[int], Tensor] | None = None
    """For `received`; None in a view that was made from updates alone."""
    read_server: Callable[[], ServerView] = ServerView
    """For `server`."""
    run_preview: Callable[[Tensor], Preview] | None = None
    """For `preview`; None if there is no server, or for requests."""

    @property
    def benign(self) -> Tensor:
        """The honest clients' updates, B×D."""
        return self.updates[~self.malicious]

    @cached_property
    def server(self) -> ServerView:
        """What the server holds and its limits; computed when first used."""
        return self.read_server()

    def received(self, participant: int) -> Tensor:
        """Return the models, k×D, that the participant in this row received."""
        if self.read_received is None:
            raise InputError(
                "this view was made from updates alone: it has no received models", code="no-models"
            )
        return self.read_received(participant)

    def preview(self, rows: Tensor) -> Preview:
        """Return how the round would end with these malicious rows, M×D or one D-vector; nothing changes.

        Without `run_preview`, no client is accused and each one receives the plain mean of the updates.
        """
        if self.run_preview is not None:
            return self.run_preview(rows)
        sent = self.updates.clone()
        sent[self.malicious] = rows.to(sent)
        all_rows = torch.ones(len(sent), dtype=torch.bool)
        return Preview(~all_rows, sent.mean(dim=0).expand_as(sent), all_rows)


@dataclass(frozen=True)
class Attack(ABC):
    """An attack on the updates of a round, or on the data behind them."""

    uses_honest_updates: ClassVar[bool] = True
    """Whether the attack needs its own clients' honest updates; if not, they need not train."""
    attacks_requests: ClassVar[bool] = True
    """Whether newcomers attack their requests too; if not, they send honest ones."""

    claim: Annotated[int, Field(gt=0)] | None = field(default=None, kw_only=True)
    """The number of samples malicious clients claim to have, if not the true one."""

    def poison_labels(self, labels: Tensor, classes: int) -> Tensor:
        """Return the labels a malicious client trains on: its own, unless an attack overrides this."""
        return labels

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        """Return the samples a malicious client trains on; an attack on inputs overrides this."""
        return Samples(samples.x, self.poison_labels(samples.y, classes))

    @abstractmethod
    def craft(self, view: View) -> Tensor:
        """Return the malicious rows, M×D, or one D-vector that all malicious clients send.

        An attack that remembers earlier rounds changes `view.memory`, which is empty in the first round.
        """

    def wire(self, row: Tensor) -> object:
        """Return what a malicious client transmits for its row: the row, unless an attack overrides this."""
        return row

    def rows(self, view: View) -> Tensor:
        """Return the malicious rows, M×D or one D-vector; the honest rows if it does not attack requests."""
        if view.request and not self.attacks_requests:
            return view.updates[view.malicious]
        return self.craft(view).to(view.updates)

    def apply(self, view: View) -> None:
        """Replace the malicious rows of the view's updates."""
        if view.malicious.any():
            view.updates[view.malicious] = self.rows(view).clone()  # the rows may share memory with updates

    def __call__(
        self, updates: Values, malicious: Values, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return a new N×D matrix with the malicious rows replaced; it takes lists and NumPy arrays too."""
        updates, malicious = to_floats(updates).clone(), to_tensor(malicious)
        if updates.ndim != 2 or malicious.shape != updates.shape[:1]:
            raise InputError(
                f"expected N×D updates and N flags, got {list(updates.shape)} and {list(malicious.shape)}",
                code="data-shape",
            )
        malicious = malicious.to(device=updates.device, dtype=torch.bool)
        self.apply(View(updates, malicious, generator))
        return updates


registry: Registry[Attack] = Registry("attack", Attack, "fedcap.attacks")


# Attacks within attacks


AttackChoice = str | dict[str, Any] | InstanceOf[Attack] | InstanceOf[type[Any]]
"""An attack's name, a table of its name and options, an object, or a class."""
BEYOND_ROWS = ("poison", "poison_labels", "wire")
"""The methods that an attack overrides to change more than rows."""


@dataclass(frozen=True)
class AttackWrapper(Attack):
    """An attack with an inner attack, which is built now, so that wrong options are reported early."""

    attack: AttackChoice = "min-max"
    """The inner attack: a name, a table of its name and options, or an object."""

    def __post_init__(self) -> None:
        _ = self.inner

    @cached_property
    def inner(self) -> Attack:
        """The inner attack."""
        return build_inner(self.attack)

    def settings(self) -> dict[str, Any]:
        """Return all options, including those of the inner attack, as plain values."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**options, "attack": registry.canonical(self.attack)}

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        """Return the samples the inner attack trains on."""
        return self.inner.poison(samples, classes, generator)

    def wire(self, row: Tensor) -> object:
        """Return what the inner attack transmits."""
        return self.inner.wire(row)


def build_inner(choice: AttackChoice, rows_alone: bool = False) -> Attack:
    """Build an attack that is part of another one; refuse options that would have no effect there.

    With `rows_alone`, refuse an attack that changes more than rows: it cannot be limited to some rounds.
    """
    inner = registry.build(choice)
    name = registry.named(choice)[0]
    if inner.claim is not None:
        raise InputError(
            f"{name} within another attack cannot claim samples: set claim on the outer one",
            code="unsuitable-attack",
        )
    innermost = inner
    while isinstance(innermost, AttackWrapper):
        innermost = innermost.inner
    beyond = (getattr(type(innermost), part) is not getattr(Attack, part) for part in BEYOND_ROWS)
    if rows_alone and any(beyond):
        raise InputError(
            f"{name} cannot be switched on and off by rounds: choose an attack on updates",
            code="unsuitable-attack",
        )
    return inner


def inner_rows(attack: Attack, view: View, name: str = "inner") -> Tensor:
    """Return the rows of an inner attack, M×D. Its memory is a part of the view's, with `name` as prefix."""
    inner_view = replace(view, memory=owned(name, view.memory))
    rows = attack.rows(inner_view)
    for key in under(name, owned(name, view.memory)):
        del view.memory[key]
    view.memory.update(under(name, inner_view.memory))
    return rows.expand(int(view.malicious.sum()), -1)


# The round as a server that compares recovered models sees it


@dataclass(frozen=True)
class Geometry:
    """The models that all clients received, and the point from which the server measures.

    A client's row, measured from the server's global model w, is what it received, plus the update it sent,
    minus w: FedCAP's calibrated update. An attacker that knows what all clients received can choose its row
    there. A server without a global model compares updates as they were sent; then both are zeros.
    """

    view: View
    received: Tensor
    """N×D, or zeros: the model each client received, the mean if it received several."""
    reference: Tensor
    """D: the server's global model; without knowledge of it, the mean of what malicious clients received."""

    @classmethod
    def of(cls, view: View, blind: bool = False) -> Geometry:
        """Read the geometry of a round.

        If `blind`, the reference is computed from what malicious clients received. `received` still has all
        clients' models: a blind attack must use only the rows of malicious clients.
        """
        server = None if blind else view.server.reference
        if view.read_received is None or (server is None and not blind):
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


def _one(models: Tensor) -> Tensor:
    return models[0] if len(models) == 1 else models.mean(dim=0)


def unit(rows: Tensor) -> Tensor:
    """Return the rows, or one vector, scaled to norm 1; a row of zeros stays as it is."""
    return torch.nn.functional.normalize(rows, dim=-1)


def victims(view: View) -> Tensor:
    """Return the rows of the clients to damage: the honest ones, or all if no client is honest."""
    return (~view.malicious if bool((~view.malicious).any()) else view.malicious).nonzero().flatten()


def target_mean(view: View) -> Tensor:
    """Return the mean update of the victims, D: the direction in which honest training moves them."""
    return view.updates[victims(view)].mean(dim=0)


def noise(view: View, rows: int) -> Tensor:
    """Return independent random directions of norm 1, one per row; without a generator, always the same."""
    generator = view.generator or torch.Generator().manual_seed(0)
    drawn = torch.randn(rows, view.updates.shape[1], generator=generator)
    return unit(drawn).to(view.updates)


def damage(view: View, before: Preview, after: Preview) -> float:
    """Return how far the attack moves the victims' next models against their own updates, on average.

    `before` is the result of the round without the attack, `after` with it.
    """
    targets = victims(view)
    targets = targets[(before.served & after.served).to(targets.device)[targets]]
    if not len(targets):
        return 0.0
    back = (before.models[targets] - after.models[targets]) * unit(view.updates[targets])
    return float(back.sum(dim=1).mean())


RowsAt = Callable[[float], Tensor]
"""A function from a size to the rows that malicious clients send, M×D."""


def longest(view: View, rows_at: RowsAt, start: float, most: float = 64.0, steps: int = 6) -> float:
    """Return the largest size, in multiples of `start`, at which the server accuses no malicious client.

    Sizes are doubled while they pass, up to `most`, a power of 2. Then the interval is halved, `steps` times.
    The result is 0 if no size that was tried passes.
    """
    bad = view.malicious.cpu()

    def passes(size: float) -> bool:
        return not bool(view.preview(rows_at(size * start)).accused[bad].any())

    low, high = 0.0, 1.0
    while high <= most and passes(high):
        low, high = high, 2 * high
    if low >= most:
        return low * start
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low * start
