"""Personalised and Byzantine-robust federated learning, with FedCAP as its main method.

Public names are imported on first use, so `import fedcap` is fast.
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

_MODULES = {
    "Experiment": "fedcap.simulation",
    "Grid": "fedcap.experiments.grid",
    "InputError": "fedcap.errors",
    "Result": "fedcap.runs",
    "Run": "fedcap.simulation",
    "calibrate": "fedcap.methods.equations",
    "customization_weights": "fedcap.methods.equations",
    "read": "fedcap.simulation",
}
_PACKAGES = {
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
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(_PACKAGES[name])
    raise AttributeError(f"module 'fedcap' has no attribute {name!r}")
