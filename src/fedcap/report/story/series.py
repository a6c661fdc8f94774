"""The course of one run as a page tells it: series over rounds, what happened, and the clients.

Accuracies and rates are in percent. Series and events name a client by its place in `Course.clients`. Arrays
have NaN where there is nothing to tell; as JSON that is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Series = Sequence[float | None]


@dataclass(frozen=True)
class Fact:
    """A setting, or a piece of provenance."""

    name: str
    value: str


@dataclass(frozen=True)
class Spread:
    """Accuracy over the rounds that were evaluated: over all test samples, and of single clients."""

    mean: Series
    worst: Series
    best: Series
    clients: np.ndarray
    """C×E: each client's. Attackers have none."""


@dataclass(frozen=True)
class AccuracyCurves:
    """Accuracy in the E rounds that were evaluated."""

    rounds: Sequence[int]
    shared: Spread | None
    """With the models that clients receive; none if nothing is shared."""
    personal: Spread


@dataclass(frozen=True)
class LocalCurve:
    """What clients reach alone, each with its own data: the mean over all test samples."""

    rounds: Sequence[int]
    mean: Series
    source: str
    """Where that is known from, in a sentence."""


@dataclass(frozen=True)
class ScoreCurves:
    """One detector's scores in the rounds that have any."""

    name: str
    rounds: Sequence[int]
    limits: Series
    """Over which a client is accused; none where the score was not judged."""
    values: np.ndarray
    """C×S: each client's. None where a client was not there, or its score was not finite."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a client."""

    round: int
    client: int
    kind: Literal["removed", "suspected", "refused", "bounded", "diverged"]
    reason: str


@dataclass(frozen=True)
class AttackCurves:
    """What the attack came to: the malicious rows as sent, against the mean of the honest ones."""

    rounds: Sequence[int]
    length: Series
    benign_length: Series
    cosine: Series


@dataclass(frozen=True)
class Costs:
    """What each round cost."""

    rounds: Sequence[int]
    train: Series
    evaluate: Series
    attack: Series
    server: Series
    total: Series
    """Seconds."""
    bytes: Series
    """Sent to and by the clients."""


@dataclass(frozen=True)
class MixingMap:
    """Who is mixed from whom, round by round: from which clients' models each client's model was made."""

    rounds: Sequence[int]
    rows: Sequence[Sequence[int]]
    """The clients of each row, and of each column: one, or several neighbours if there are too many.

    They are in the order of likeness, so that groups lie together.
    """
    weights: np.ndarray = field(metadata={"bits": 8})
    """T×G×G: the weight of each column in the models of each row; none where either was not there."""
    entropy: Series = ()
    """T: mean entropy of the weights, in nats."""


@dataclass(frozen=True)
class Client:
    """A line of the clients' table."""

    name: str
    role: Literal["honest", "attacker", "site"]
    """`site`: of a federation, where nobody knows who is honest."""
    state: str
    """`kept`, `removed`, `suspected`; in a federation what the operator's ledger says."""
    shared: float | None
    personal: float | None
    """Accuracy in the last round that was evaluated."""
    local: float | None
    """Accuracy of the model that it trains alone, if known."""
    gain: float | None
    """The better of shared and personal, less local."""
    share: float | None
    """Its mean share, in percent, in all models that were last sent out, its own among them."""
    rounds: int
    """In how many rounds it took part."""
    refused: int
    """In how many of them what it sent did not count."""
    removed: int | None
    """The round in which it was removed."""
    reason: str
    """Why it was removed or is suspected; empty otherwise."""
    identity: str = ""
    """Its key's fingerprint, if that is not its name."""


@dataclass(frozen=True)
class Course:
    """The course of one run: all its series, and its clients."""

    clients: Sequence[Client]
    accuracy: AccuracyCurves | None
    local: LocalCurve | None
    scores: Sequence[ScoreCurves]
    events: Sequence[Event]
    attack: AttackCurves | None
    mixing: MixingMap | None
    costs: Costs | None
    classes: Sequence[Fact] = ()
    """The accuracy on each class in the last round, in the better reading, if it was counted."""
