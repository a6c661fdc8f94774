"""The content of a report on a run, a grid or a federation, as plain data without any HTML.

Accuracies and rates are in percent. Series and events refer to a client by its position in `RunData.clients`.
Arrays hold NaN where there is no value; `pack` writes it as null. The scripts in `assets` read these fields
by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Mark = Literal["ok", "warn", "bad", "none"]
Series = Sequence[float | None]


@dataclass(frozen=True)
class Fact:
    """A setting, or one entry of the provenance."""

    name: str
    value: str


@dataclass(frozen=True)
class ClassAccuracy:
    """The accuracy on the test samples of one class."""

    name: str
    accuracy: float | None
    """None if there is no test sample of the class."""


@dataclass(frozen=True)
class KeyFigure:
    """A figure at the top of the page."""

    value: str
    """As text: "97.2 %"."""
    label: str
    sentence: str


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    mark: Mark
    """`none`: there is nothing to check, or the answer is not known."""
    name: str
    text: str
    section: str = ""
    """The section of the page with the details; empty if there is none."""


@dataclass(frozen=True)
class Spread:
    """Accuracy in each evaluated round: over all test samples, and of single clients."""

    mean: Series
    worst: Series
    best: Series
    clients: np.ndarray
    """C×E: the accuracy of each client; malicious clients have none."""


@dataclass(frozen=True)
class AccuracyCurves:
    """Accuracy in the E evaluated rounds."""

    rounds: Sequence[int]
    shared: Spread | None
    """With the models that clients receive; None if nothing is shared."""
    personal: Spread


@dataclass(frozen=True)
class LocalCurve:
    """Accuracy over all test samples if each client trains alone on its own data."""

    rounds: Sequence[int]
    mean: Series


@dataclass(frozen=True)
class ScoreCurves:
    """The scores of one detector in the S rounds that have any."""

    name: str
    rounds: Sequence[int]
    limits: Series
    """A client above the limit is suspected; None in rounds in which the score had no limit."""
    values: np.ndarray
    """C×S: NaN for a client that did not take part, or whose score was not finite."""


EventKind = Literal["removed", "suspected", "not counted", "limited", "diverged"]


@dataclass(frozen=True)
class Event:
    """Something that happened to a client, in one round or in several."""

    round: int
    """The first round."""
    client: int
    kind: EventKind
    """`limited`: the server limited the client's sample count."""
    reason: str
    last: int
    count: int = 1
    """The last of the rounds, and how many there are."""


@dataclass(frozen=True)
class AttackCurves:
    """The malicious updates as they were sent, compared with the mean of the honest updates."""

    rounds: Sequence[int]
    length: Series
    honest_length: Series
    cosine: Series


@dataclass(frozen=True)
class Costs:
    """The cost of each round: seconds by part, and the bytes sent to and by the clients."""

    rounds: Sequence[int]
    train: Series
    evaluate: Series
    attack: Series
    server: Series
    total: Series
    bytes: Series


@dataclass(frozen=True)
class MixingMap:
    """The weights with which each client's model was mixed from the models of others, in T rounds."""

    rounds: Sequence[int]
    rows: Sequence[Sequence[int]]
    """The clients of each row and column: one, or several similar ones if there are too many clients.

    Similar clients are next to each other, so that groups are visible as blocks.
    """
    weights: np.ndarray = field(metadata={"bits": 8})
    """T×G×G: the weight of each column in the models of each row; NaN where either did not take part."""
    entropy: Series = ()
    """T: mean entropy of the weights, in nats."""


@dataclass(frozen=True)
class Client:
    """One client of the table of clients."""

    name: str
    role: Literal["honest", "malicious", "site"]
    """`site`: a client of a federation, where it is not known which clients are honest."""
    state: str
    """`active`, `suspected` or `removed`; in a federation the state in the operator's ledger."""
    samples: int | None
    """The number of training samples that it reported last; None if that was not recorded."""
    shared: float | None
    personal: float | None
    """Accuracy in the last evaluated round."""
    local: float | None
    """Personal accuracy in the same round if it trains alone, if that is known."""
    gain: float | None
    """`personal` − `local`."""
    share: float | None
    """Its mean share, in percent, in all models that were last sent, its own model included."""
    rounds: int
    """The number of rounds in which it took part."""
    not_counted: int
    """The number of rounds in which its update was not counted."""
    removed: int | None
    """The round in which it was removed."""
    reason: str
    """Why it was removed or is suspected; empty otherwise."""
    identity: str = ""
    """The fingerprint of its key, if that is not its name."""
    tested: int | None = None
    """The number of its test samples."""
    macro_f1: float | None = None
    balanced_accuracy: float | None = None
    auc: float | None = None
    calibration_error: float | None = None
    """Measures in the last round, in the better reading; None if they were not recorded."""


@dataclass(frozen=True)
class RunData:
    """All series of one run, and its clients."""

    clients: Sequence[Client]
    accuracy: AccuracyCurves | None = None
    local: LocalCurve | None = None
    scores: Sequence[ScoreCurves] = ()
    events: Sequence[Event] = ()
    attack: AttackCurves | None = None
    mixing: MixingMap | None = None
    costs: Costs | None = None
    classes: Sequence[ClassAccuracy] = ()
    """The accuracy on each class in the last round, in the better reading, if it was recorded."""
    measures: Sequence[Fact] = ()
    """Measures over all test samples in the last round, in the better reading, if they were recorded."""


@dataclass(frozen=True)
class GridCell:
    """One method under one attack, over seeds."""

    mean: float | None
    half_width: float | None
    """Half the width of the mean's 95 % interval; None with fewer than three seeds."""
    runs: Sequence[int]
    """Its runs, by position in `GridData.runs`, one per seed."""
    seeds: Sequence[str]
    missing: int = 0
    """How many of its runs have not finished."""
    diverged: int = 0
    stopped: int = 0
    worst_client: float | None = None
    """The mean over seeds of the accuracy of the worst client."""
    dacc: float | None = None
    """The mean over seeds of the share of clients that the detection judged rightly."""


@dataclass(frozen=True)
class GridTable:
    """Methods × attacks of a grid, where all other settings are the same."""

    title: str
    methods: Sequence[str]
    """The best under its worst attack first."""
    attacks: Sequence[str]
    """`no attack` is the first, if the grid has it."""
    cells: Sequence[Sequence[GridCell]]
    """Methods × attacks."""
    worst: Sequence[int | None]
    """For each method the position of its worst attack; None if no run with an attack has finished."""


@dataclass(frozen=True)
class GridData:
    """The tables of a grid, and a report on each of its runs."""

    tables: Sequence[GridTable]
    runs: Sequence[Report]
    failed: Sequence[Fact] = ()
    """Runs that failed: the name of each, and why."""


@dataclass(frozen=True, eq=False)
class Report:
    """The content of one page. A run and a federation have `run`, a grid has `grid`."""

    kind: Literal["run", "grid", "federation"]
    title: str
    summary: str
    """What ran, in a sentence."""
    state: Literal["finished", "stopped", "unfinished"]
    """`stopped`: it ended early, because no client was left. `unfinished`: it may still be running."""
    done: int
    planned: int
    """Rounds; of a grid, runs."""
    figures: Sequence[KeyFigure] = ()
    checks: Sequence[Check] = ()
    problems: Sequence[str] = ()
    """What could not be read."""
    omitted: Sequence[str] = ()
    """What was left out or rounded to keep the page small."""
    run: RunData | None = None
    grid: GridData | None = None
    settings: Sequence[Fact] = ()
    provenance: Sequence[Fact] = ()
    command: str = ""
    """The command that repeats it."""
    config: str = ""
    """The settings as TOML, which the command reads."""
