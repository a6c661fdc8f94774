"""Experiments of many runs: grids, their engines and comparison, tuning, and the demo.

A `Grid` has cells, an engine plays them, and a `Comparison` has their means and tables. `tune` chooses the
options of a method.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcap.experiments.comparison import Comparison
    from fedcap.experiments.grid import Cell, Grid
    from fedcap.experiments.local import LocalEngine
    from fedcap.experiments.ray import RayEngine
    from fedcap.experiments.tuning import Tuned, tune

_MODULES = {
    "Cell": "grid",
    "Comparison": "comparison",
    "Grid": "grid",
    "LocalEngine": "local",
    "RayEngine": "ray",
    "Tuned": "tuning",
    "tune": "tuning",
}

__all__ = ["Cell", "Comparison", "Grid", "LocalEngine", "RayEngine", "Tuned", "tune"]


def __getattr__(name: str) -> Any:
    # Imported on first use: worker processes start with `python -m fedcap.experiments.local`.
    if name in _MODULES:
        return getattr(importlib.import_module(f"fedcap.experiments.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'fedcap.experiments' has no attribute {name!r}")
