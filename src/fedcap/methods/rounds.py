"""What a server tells its driver in the course of a round; clients are identities here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.detection import Reason
from fedcap.methods.dispatch import Dispatch


@dataclass(frozen=True)
class Opening:
    """A round that begins."""

    round: int
    clients: tuple[str, ...]
    """Who takes part, in the order of the roster."""
    asked: tuple[str, ...]
    """Who of them must send a request before there can be a model for them."""
    start: Tensor | None
    """D: the model from which those asked train their request."""


@dataclass(frozen=True)
class Offer:
    """Models for some clients."""

    clients: tuple[str, ...]
    """Who is served, in the order of the dispatch's rows."""
    dispatch: Dispatch
    refused: Mapping[str, str]
    """Who is not served, and why."""


@dataclass(frozen=True)
class Serving:
    """What goes to the participants of a round, and what they are asked for besides their update."""

    round: int
    offer: Offer
    extra: int
    """How many numbers each client sends besides its update."""
    root_start: Tensor | None
    """D: the model from which the server must train an update on its own root set, if the method has one."""
    pool: tuple[str, ...] = ()
    """From whose models each client's was mixed, in the order of the mixing weights' columns."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Who is served, in the order of the dispatch's rows."""
        return self.offer.clients

    @property
    def dispatch(self) -> Dispatch:
        """The models, and which of them go to whom."""
        return self.offer.dispatch

    @property
    def mixing_entropy(self) -> float | None:
        """Mean entropy, in nats, of the weights from which each client's model was mixed, if they were."""
        mixing = self.dispatch.mixing
        if mixing is None or not len(mixing):
            return None
        return float(torch.special.entr(mixing).sum(dim=1).mean())


@dataclass(frozen=True)
class Closing:
    """What the server found at the end of a round."""

    round: int
    scores: Mapping[str, Mapping[str, float]]
    """Every score's name, and each client's value; `norm` is always there."""
    limits: Mapping[str, float]
    """The limit of each score that was judged."""
    removed: Mapping[str, Reason]
    """Who is out for good, and why."""
    suspected: Mapping[str, Reason]
    """Who is accused and not removed, and why; they are among the refused."""
    refused: Mapping[str, str]
    """Whose upload did not count this round, and why."""
    ignored: Sequence[tuple[str, str]]
    """What came besides an upload that counts, as (client, why): late, repeated."""
    bounded: Mapping[str, str]
    """Whose claims were cut down, and how."""
    notes: Sequence[str]
    """What the server had to do otherwise than asked: a smaller M, another rule."""
