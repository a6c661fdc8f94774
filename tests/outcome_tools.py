"""What several test files share: finished cells of a grid, made up."""

from __future__ import annotations

from typing import Any

from fedcap import Experiment
from fedcap.experiments.cells import Cell
from fedcap.runs.outcome import Curve, Outcome
from fedcap.simulation import COMPUTES

_EXPERIMENT = Experiment()


def outcome(tacc: float, **more: Any) -> Outcome:
    """Return what a run of that accuracy came to."""
    made: dict[str, Any] = {
        "digest": "0123abcd",
        "settings": {},
        "provenance": {"computes": COMPUTES},
        "tacc": tacc,
        "tacc_shared": tacc - 2,
        "tacc_personal": tacc,
        "tacc_worst_client": tacc - 8,
        "tacc_p10": tacc - 4,
        "dacc": None,
        "fpr": None,
        "fnr": None,
        "rounds": 30,
        "rounds_to_removal": None,
        "rounds_to_80": 5,
        "diverged": False,
        "stopped": None,
        "seconds": 3.0,
        "seconds_server": 0.5,
        "bytes_per_round": 1e6,
        "curve": Curve([], [], []),
    }
    return Outcome(**(made | more))


def cell(method: str, attack: str, seed: int, rule: str = "", dataset: str = "digits", **axes: str) -> Cell:
    """Return a cell at a place."""
    place = {"dataset": dataset, "method": method, "rule": rule, "attack": attack, "seed": str(seed), **axes}
    return Cell(place, _EXPERIMENT)


def over_seeds(method: str, attack: str, *taccs: float, **more: Any) -> list[tuple[Cell, Outcome]]:
    """Return finished cells with these accuracies, of seeds 0, 1, …"""
    return [(cell(method, attack, seed), outcome(tacc, **more)) for seed, tacc in enumerate(taccs)]
