"""Play recorded runs again and compare: the evidence that recorded outcomes come from this code.

On the same model of processor, with the same library of matrix products, the final weights must be equal, bit
for bit. Elsewhere, and for outcomes that were recorded without a hash of their weights, sums may be rounded
differently: then the accuracy must be within `TOLERANCE`, and a run must diverge as it did.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcap import Experiment, InputError
from fedcap.experiments.engine import Engine, Watcher
from fedcap.experiments.grid import Cell
from fedcap.experiments.store import CellStore, prepare, read_any_outcomes
from fedcap.report.panel import derive_places
from fedcap.runs import Outcome, Settings

TOLERANCE = 2.0
"""The largest difference of accuracies, in points, where weights cannot be compared."""


@dataclass(frozen=True)
class Replayed:
    """A recorded outcome, and the outcome of the same run played again."""

    cell: Cell
    recorded: Outcome
    again: Outcome | None
    """None if the run failed."""
    why: str = ""
    """Why it failed."""

    @property
    def compares_weights(self) -> bool:
        """Whether both outcomes have a hash of their weights, from the same processor and matrix products."""
        if self.again is None or self.recorded.evidence is None or self.again.evidence is None:
            return False
        products = [run.provenance.get("products") for run in (self.recorded, self.again)]
        return self.recorded.evidence.cpu == self.again.evidence.cpu and products[0] == products[1]

    @property
    def agrees(self) -> bool:
        """Whether the run played again has the same weights or, where they cannot be compared, accuracy."""
        if self.again is None:
            return False
        if self.compares_weights:
            assert self.recorded.evidence is not None
            assert self.again.evidence is not None
            return self.recorded.evidence.weights_hash == self.again.evidence.weights_hash
        close = abs(self.recorded.tacc - self.again.tacc) <= TOLERANCE
        return self.recorded.diverged == self.again.diverged and (close or self.recorded.diverged)

    def __str__(self) -> str:
        if self.again is None:
            return f"{self.cell}: failed: {self.why}"
        if self.compares_weights:
            return f"{self.cell}: {'the same' if self.agrees else 'OTHER'} weights"
        verdict = "agrees" if self.agrees else "DIFFERS"
        return f"{self.cell}: accuracy {self.again.tacc:.2f}, recorded {self.recorded.tacc:.2f}: {verdict}"


def choose(places: Iterable[Path], sample: int | None = None, seed: int = 0) -> list[tuple[Cell, Outcome]]:
    """Return recorded runs that can be played here, or a random sample of them, with their outcomes.

    Left out are runs whose data or user code is not here, and those of versions that computed otherwise.
    """
    outcomes = {outcome.digest: outcome for place in places for outcome in read_any_outcomes(place)}
    every = list(outcomes.values())
    random.Random(seed).shuffle(every)
    found: list[tuple[Cell, Outcome]] = []
    for cell, outcome in _playable(every):
        if sample is not None and len(found) == sample:
            break
        found.append((cell, outcome))
    return found


def _playable(outcomes: Iterable[Outcome]) -> Iterator[tuple[Cell, Outcome]]:
    for outcome in outcomes:
        try:
            experiment = Experiment(**outcome.settings)
            if experiment.digest(outcome.settings) != outcome.digest:
                continue
        except InputError:
            continue
        derived = derive_places([Settings.model_validate(experiment.settings())])
        yield Cell(outcome.places[0] if outcome.places else derived[0][0], experiment), outcome


def replay(
    chosen: Sequence[tuple[Cell, Outcome]], out: Path, engine: Engine, watcher: Watcher
) -> list[Replayed]:
    """Play recorded runs again, in a folder, and return how they compare."""
    store = CellStore(out)
    engine.run(prepare([cell for cell, _ in chosen], store).left, store, watcher)
    found = []
    for cell, recorded in chosen:
        failure = store.failure(cell)
        found.append(Replayed(cell, recorded, store.outcome(cell), failure.why if failure else ""))
    return found
