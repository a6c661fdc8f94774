"""Federated learning that is personal and Byzantine-robust, with FedCAP as its flagship method.

The public surface is imported on first use, so that `import fedcap` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcap import aggregators, attacks, methods
    from fedcap import detection as detectors
    from fedcap.errors import InputError
    from fedcap.experiments.grid import Grid
    from fedcap.methods.equations import calibrate, customization_weights
    from fedcap.runs import Result
    from fedcap.simulation import Experiment, Run, read

__version__ = "0.1.0"

_HOMES = {
    "Experiment": "fedcap.simulation",
    "Grid": "fedcap.experiments.grid",
    "InputError": "fedcap.errors",
    "Result": "fedcap.runs",
    "Run": "fedcap.simulation",
    "calibrate": "fedcap.methods.equations",
    "customization_weights": "fedcap.methods.equations",
    "read": "fedcap.simulation",
}
_ROOMS = {
    "aggregators": "fedcap.aggregators",
    "attacks": "fedcap.attacks",
    "detectors": "fedcap.detection",
    "methods": "fedcap.methods",
}

__all__ = [
    "Experiment",
    "Grid",
    "InputError",
    "Result",
    "Run",
    "__version__",
    "aggregators",
    "attacks",
    "calibrate",
    "customization_weights",
    "detectors",
    "methods",
    "read",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(_ROOMS[name])
    raise AttributeError(f"module 'fedcap' has no attribute {name!r}")
