"""Options of the methods on each data set, used unless the user gives others.

They were chosen without attack. The paper's settings for single cells of its tables belong here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EMNIST = {"fedcap": {"alpha": 10.0, "phi": 0.1, "lambda_": 0.5, "t_norm": 10.0}}

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "digits": {
        "fedcap": {"alpha": 5.0, "phi": 0.1, "lambda_": 1.0, "t_norm": 6.0},
        "ditto": {"lambda_": 1.0},
    },
    "cifar10": {"fedcap": {"alpha": 10.0, "phi": 0.3, "lambda_": 1.0, "t_norm": 10.0}},
    "emnist": _EMNIST,
    "handwritten62": _EMNIST,
    "wisdm": {"fedcap": {"alpha": 2.0, "phi": 0.1, "lambda_": 0.1, "t_norm": 10.0}},
}
"""Data set → method → options, by registered names."""


def preset(dataset: str, method: str) -> dict[str, Any]:
    """Return the options of a method on a data set; empty if there are none."""
    return dict(PRESETS.get(dataset, {}).get(method, {}))
