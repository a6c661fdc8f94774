"""What every attack is: a frozen set of options, and one function from a view of the round to malicious rows.

`View` is all that an attacker with full knowledge sees of a round. Most attacks look at the updates and at
who is malicious, and so can be called on a matrix alone: `attack(updates, malicious)`. Those that follow
their victims, know the defence, or remember earlier rounds use the rest of the view.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedcap.matrix import Values, to_floats, to_tensor
from fedcap.registry import Registry
from fedcap.state import Samples, Tensors


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
