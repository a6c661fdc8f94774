"""The paper's settings: data sets, options by method, data set and attack, and the columns of its tables.

FedCAP's and Ditto's options were picked for each attack, which no defender can do. So every table has a
second FedCAP column with the same options under every attack: fedcap's defaults for the data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Method = Mapping[str, Any]
"""A method's name and options, as `Experiment` takes them."""

DATASETS = ("cifar10", "emnist", "wisdm")
STAND_IN = {"emnist": "handwritten62"}
"""The data set that replaces another where that is not available, under its own name."""
SET_UP_OF = {stand_in: dataset for dataset, stand_in in STAND_IN.items()}

SCALARS: Mapping[str, Mapping[str, Any]] = {"emnist": {"eval_every": 5}, "handwritten62": {"eval_every": 5}}
"""Settings other than the defaults: testing all 100 clients costs more than training 20 of them."""

BRIEFLY, UNTIL_REMOVED, LETTERS, A_WHILE = 12, 14, 20, 25
"""Rounds of runs that are shorter than a hundred, and after which accuracy is read."""
SLOW = 0.01
"""EMNIST's learning rate, also for the data set that replaces it."""

ATTACKS = ("sign-flipping", "model-replacement", "lie", "min-max", "min-sum", "ipm")
"""The attacks of Tables I and III."""
STRONG = ("lie", "min-max", "min-sum", "ipm")
"""The four attacks that the paper calls strong."""

TEST_SAMPLES: Mapping[str, int] = {"digits": 252, "cifar10": 1050, "handwritten62": 1466, "wisdm": 1038}
"""The test samples of the honest clients of seed 0, with 30 % malicious clients."""

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
"""The rows of Table IV, as options of FedCAP. Rows without calibration have no detection either, as in the
authors' runs. The second row, personal training alone, is Ditto."""

SWEEPS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "alpha": {"cifar10": (2, 5, 10), "emnist": (2, 5, 10), "wisdm": (1, 2, 3, 4)},
    "phi": dict.fromkeys(DATASETS, (0.1, 0.2, 0.3)),
    "lambda_": dict.fromkeys(DATASETS, (0.1, 0.5, 1.0)),
}
SHARES = (0.1, 0.2, 0.3, 0.4)
"""The shares of malicious clients in the paper."""


def fedcap(dataset: str, attack: str, **others: Any) -> Method:
    """Return FedCAP with the paper's options for this cell; `others` replace them."""
    alpha, phi, lambda_ = _FEDCAP[_set_up(dataset)][attack]
    return {"name": "fedcap", "alpha": alpha, "phi": phi, "lambda_": lambda_, **others}


def ditto(dataset: str, attack: str, rule: str | None = None) -> Method:
    """Return Ditto with the paper's lambda for this cell, with a rule or the mean."""
    dataset = _set_up(dataset)
    if rule is None:
        return {"name": "ditto", "lambda_": _DITTO[dataset].get(attack, 0.1)}
    return {"name": "ditto", "rule": rule, "lambda_": _DITTO_WITH.get((dataset, attack, rule), 0.1)}


def fedfomo(dataset: str) -> Method:
    """Return FedFomo; each client receives half as many models as there are participants."""
    return {"name": "fedfomo", "models": 18 if dataset == "wisdm" else 10}


def fedavg(rule: str) -> Method:
    """Return FedAvg with a rule, such as `median` or `bucketing(median)`.

    By default, as in the paper, the size of buckets is 2 and the number of GAS's sub-vectors 1,000.
    """
    return {"name": "fedavg", "rule": rule}


def _set_up(dataset: str) -> str:
    return SET_UP_OF.get(dataset, dataset)


# --- Columns

Columns = Mapping[str, Callable[[str, str], Method]]
"""The name of a column → from data set and attack to the method."""


def always(method: Method) -> Callable[[str, str], Method]:
    """Return a column with the same method for every data set and attack."""
    return lambda dataset, attack: method


ONE_SETTING = "FedCAP, one setting"
FEDCAP: Columns = {"FedCAP": fedcap, ONE_SETTING: always({"name": "fedcap"})}
ROBUST: Columns = {
    **{name: always(fedavg(rule)) for name, rule in RULES.items()},
    "FLTrust": always({"name": "fltrust"}),
}
PERSONAL: Columns = {
    "FedAvg-FT": always(fedavg("mean")),
    "Ditto": lambda dataset, attack: ditto(dataset, attack),
    "FedRoD": always({"name": "fedrod"}),
}
FEDFOMO: Columns = {"FedFomo": lambda dataset, attack: fedfomo(dataset)}


def with_stand_ins(datasets: Iterable[str] = DATASETS) -> Iterator[str]:
    """Yield the data sets, each followed by the one that replaces it."""
    for dataset in datasets:
        yield dataset
        if dataset in STAND_IN:
            yield STAND_IN[dataset]
