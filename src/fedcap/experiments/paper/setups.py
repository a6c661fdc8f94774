"""The settings that the paper's cells were run with: data sets, and options by method, data set and attack.

FedCAP's and Ditto's options were picked for each attack, which no defender can do. So every table has a
second FedCAP column, whose options are the same under every attack: those of `simulation/presets.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Method = Mapping[str, Any]
"""A method's name and options, as `Experiment` takes them."""

DATASETS = ("cifar10", "emnist", "wisdm")
STAND_IN = {"emnist": "handwritten62"}
"""What is run where a data set cannot be had; under its own name, with the settings of the other."""
SET_UP_OF = {stand_in: dataset for dataset, stand_in in STAND_IN.items()}

SCALARS: Mapping[str, Mapping[str, Any]] = {"emnist": {"eval_every": 5}, "handwritten62": {"eval_every": 5}}
"""Settings besides the defaults: testing all 100 clients costs more than training 20 of them."""

ATTACKS = ("sign-flipping", "model-replacement", "lie", "min-max", "min-sum", "ipm")
"""The attacks of Tables I and III."""
STRONG = ("lie", "min-max", "min-sum", "ipm")
"""The four attacks that the paper calls strong."""

RULES = {
    "Mean": "mean",
    "M-Krum": "multi-krum",
    "Median": "median",
    "RFA": "geometric-median",
    "Trim.": "trimmed-mean",
    "ClusteredFL": "clustered",
}
"""The paper's names of the rules."""

_FEDCAP = {
    "cifar10": {
        "none": (10, 0.3, 1.0),
        "label-flipping": (10, 0.3, 0.1),
        "sign-flipping": (10, 0.1, 1.0),
        "model-replacement": (10, 0.3, 10),
        "lie": (10, 0.2, 0.1),
        "min-max": (10, 0.3, 0.1),
        "min-sum": (10, 0.3, 0.1),
        "ipm": (10, 0.3, 0.1),
    },
    "emnist": {
        "none": (10, 0.1, 0.5),
        "label-flipping": (10, 0.2, 0.1),
        "sign-flipping": (10, 0.3, 0.1),
        "model-replacement": (10, 0.1, 0.1),
        "lie": (10, 0.1, 0.5),
        "min-max": (10, 0.3, 0.5),
        "min-sum": (10, 0.1, 0.5),
        "ipm": (10, 0.1, 0.5),
    },
    "wisdm": {
        "none": (2, 0.1, 0.1),
        "label-flipping": (4, 0.2, 0.1),
        "sign-flipping": (2, 0.2, 0.1),
        "model-replacement": (2, 0.1, 0.1),
        "lie": (1, 0.2, 0.1),
        "min-max": (2, 0.2, 0.5),
        "min-sum": (2, 0.3, 0.5),
        "ipm": (2, 0.1, 0.1),
    },
}
"""alpha, phi and lambda."""

_DITTO: Mapping[str, Mapping[str, float]] = {
    "cifar10": {
        "none": 1.0,
        "sign-flipping": 0.01,
        "model-replacement": 0.01,
        "lie": 1.0,
        "min-max": 0.01,
        "ipm": 0.01,
    },
    "emnist": {"lie": 0.01, "model-replacement": 0.01, "ipm": 0.01},
    "wisdm": {"sign-flipping": 0.01, "model-replacement": 0.01},
}
_DITTO_WITH: Mapping[tuple[str, str, str], float] = {
    ("cifar10", "lie", "median"): 0.5,
    ("cifar10", "lie", "clustered"): 0.5,
    ("cifar10", "min-max", "clustered"): 1.0,
    ("emnist", "ipm", "clustered"): 0.5,
}
"""Ditto's lambda, alone and with a rule, where it is not 0.1."""

ABLATION: Mapping[str, Mapping[str, Any]] = {
    "customised": {"calibrate": False, "detect": False, "personalise": False},
    "personal": {"customise": False, "calibrate": False, "detect": False},
    "customised + calibrated": {"personalise": False},
    "customised + personal": {"calibrate": False, "detect": False},
    "FedCAP": {},
}
"""The rows of Table IV, as options of FedCAP. Those without calibration have no detection either, as in the
runs behind the published figures; the second, personal training alone, is Ditto."""

SWEEPS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "alpha": {"cifar10": (2, 5, 10), "emnist": (2, 5, 10), "wisdm": (1, 2, 3, 4)},
    "phi": dict.fromkeys(DATASETS, (0.1, 0.2, 0.3)),
    "lambda_": dict.fromkeys(DATASETS, (0.1, 0.5, 1.0)),
}
SHARES = (0.1, 0.2, 0.3, 0.4)
"""The shares of malicious clients that the paper tries."""


def fedcap(dataset: str, attack: str, **others: Any) -> Method:
    """Return FedCAP with the paper's options for this cell; `others` go before them."""
    alpha, phi, lambda_ = _FEDCAP[_set_up(dataset)][attack]
    return {"name": "fedcap", "alpha": alpha, "phi": phi, "lambda_": lambda_, **others}


def ditto(dataset: str, attack: str, rule: str | None = None) -> Method:
    """Return Ditto with the paper's lambda for this cell, with a rule or the mean."""
    dataset = _set_up(dataset)
    if rule is None:
        return {"name": "ditto", "lambda_": _DITTO[dataset].get(attack, 0.1)}
    return {"name": "ditto", "rule": rule, "lambda_": _DITTO_WITH.get((dataset, attack, rule), 0.1)}


def fedfomo(dataset: str) -> Method:
    """Return FedFomo with as many models for each client as half of the participants."""
    return {"name": "fedfomo", "models": 18 if dataset == "wisdm" else 10}


def fedavg(rule: str) -> Method:
    """Return FedAvg with a rule, such as `median` or `bucketing(median)`.

    Bucketing's size is 2 and GAS's number of sub-vectors 1,000 unless given, as the paper has them.
    """
    return {"name": "fedavg", "rule": rule}


def _set_up(dataset: str) -> str:
    return SET_UP_OF.get(dataset, dataset)
