"""What is read off a finished run, how it is written, and how near to the paper's figure agrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedcap.runs import Outcome

POINTS: Mapping[str, float] = {"wisdm": 1.5, "cifar10": 2.0, "emnist": 2.0}
"""How many points of accuracy still agree, by data set. On others the paper has no figures."""


@dataclass(frozen=True)
class Measure:
    """One figure of a run."""

    label: str
    of: Callable[[Outcome], float | None]
    digits: int = 1
    within: float | None = None
    """How far from the paper's figure still agrees; none for what is not judged. Accuracies have `POINTS`."""
    is_accuracy: bool = False

    def text(self, value: float | None) -> str:
        """Return a figure as it is written."""
        return "–" if value is None else f"{value:.{self.digits}f}"

    def tolerance(self, dataset: str) -> float | None:
        """Return how far from the paper's figure still agrees, none if it is not judged on this data set."""
        if dataset not in POINTS:
            return None
        return POINTS[dataset] if self.is_accuracy else self.within


def _accuracy(label: str, of: Callable[[Outcome], float | None]) -> Measure:
    return Measure(label, of, is_accuracy=True)


def _after(rounds: int) -> Measure:
    return _accuracy(f"accuracy after {rounds} rounds, %", lambda run: run.curve.after(rounds))


MEASURES: Mapping[str, Measure] = {
    "tacc": _accuracy("accuracy, %", lambda run: run.tacc),
    "tacc_shared": _accuracy("accuracy of the shared model, %", lambda run: run.tacc_shared),
    "tacc_personal": _accuracy("accuracy of the personal models, %", lambda run: run.tacc_personal),
    "tacc_after_12": _after(12),
    "tacc_after_14": _after(14),
    "tacc_after_25": _after(25),
    "dacc": Measure("clients rightly judged, %", lambda run: run.dacc, within=0.05),
    "fpr": Measure("honest clients removed, %", lambda run: run.fpr, within=0.05),
    "fnr": Measure("attackers not removed, %", lambda run: run.fnr, within=0.05),
    "rounds_to_removal": Measure("mean round of removal", lambda run: run.rounds_to_removal),
    "rounds_to_80": Measure("first round at 80 %", lambda run: run.rounds_to_80, digits=0, within=3),
    "clients_minutes": Measure("minutes of all clients", lambda run: (run.seconds - run.seconds_server) / 60),
    "server_seconds": Measure("seconds of the server", lambda run: run.seconds_server),
    "megabytes": Measure("MB a round, both ways", lambda run: run.bytes_per_round / 1e6, digits=0),
}
