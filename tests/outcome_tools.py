"""What several test files share: finished cells of a grid, made up."""

from __future__ import annotations

from typing import Any

from fedcap.report.panel import Finished
from fedcap.runs.outcome import Curve, Outcome, Place
from fedcap.simulation import COMPUTES


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


def place(method: str, attack: str, seed: int, rule: str = "", dataset: str = "digits", **axes: str) -> Place:
    """Return a place in a grid."""
    return {"dataset": dataset, "method": method, "rule": rule, "attack": attack, "seed": str(seed), **axes}


def over_seeds(method: str, attack: str, *taccs: float, **more: Any) -> Finished:
    """Return finished cells with these accuracies, of seeds 0, 1, …"""
    return [(place(method, attack, seed), outcome(tacc, **more)) for seed, tacc in enumerate(taccs)]
