"""What a page tells of a run, a grid or a federation: plain data, without any HTML.

Accuracies and rates are in percent. Series and events name a client by its place in `Course.clients`. Arrays
have NaN where there is nothing to tell; as JSON that is null. `packing` makes the JSON that a page holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Mark = Literal["ok", "warn", "bad", "none"]
Series = Sequence[float | None]


@dataclass(frozen=True)
class Headline:
    """A figure that stands at the top."""

    value: str
    """As it is written: "97.2 %"."""
    label: str
    sentence: str


@dataclass(frozen=True)
class Check:
    """Something that a reader wants to be sure of."""

    mark: Mark
    """`none`: there is nothing to check, or nobody knows."""
    name: str
    words: str


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
    """Its mean share, in percent, in the models that were last sent to others."""
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


@dataclass(frozen=True)
class Field:
    """A field of a grid's map: one method under one attack, over seeds."""

    mean: float | None
    half_width: float | None
    """Half the width of the mean's 95 % interval; one seed has none."""
    cells: Sequence[int]
    """The runs behind it, by their place in `Map.cells`: one for each seed."""
    seeds: Sequence[str]
    missing: int = 0
    """How many of its runs have not finished."""
    diverged: int = 0
    stopped: int = 0
    worst_client: float | None = None
    """The mean over seeds of the worst client's accuracy."""
    dacc: float | None = None
    """The mean over seeds of the share of clients rightly judged, if any were."""
    published: float | None = None
    """The paper's figure, if there is one; it is of the same reading as `read`."""
    read: float | None = None
    """Our figure in the reading that the paper prints."""
    source: str = ""
    """Where in the paper."""


@dataclass(frozen=True)
class Panel:
    """One map of a grid: methods × attacks, where all else is the same."""

    title: str
    methods: Sequence[str]
    attacks: Sequence[str]
    """`no attack` is the first, if it is there."""
    fields: Sequence[Sequence[Field]]
    """Methods × attacks."""
    worst: Sequence[int | None]
    """For each method, the place of the attack that hurts it most; none if no attack has finished."""


@dataclass(frozen=True)
class Failed:
    """A run of a grid that failed."""

    title: str
    why: str


@dataclass(frozen=True)
class Map:
    """A grid: its maps, and the story of each of its runs."""

    panels: Sequence[Panel]
    cells: Sequence[Story]
    failed: Sequence[Failed] = ()


@dataclass(frozen=True)
class Story:
    """All that one page tells. A run and a federation have a `course`, a grid has a `map`."""

    kind: Literal["run", "grid", "federation"]
    title: str
    sentence: str
    """What ran."""
    state: Literal["finished", "stopped", "unfinished"]
    """`stopped`: it ended early, since nobody was left. `unfinished`: it may be going on."""
    played: int
    planned: int
    """Rounds; of a grid, runs."""
    headlines: Sequence[Headline] = ()
    checks: Sequence[Check] = ()
    troubles: Sequence[str] = ()
    """What could not be read, and so is not told."""
    thinned: Sequence[str] = ()
    """What was left out or made coarse, a sentence each."""
    course: Course | None = None
    map: Map | None = None
    settings: Sequence[Fact] = ()
    provenance: Sequence[Fact] = ()
    command: str = ""
    """What repeats it."""
    config: str = ""
    """The settings as TOML, which the command reads."""
