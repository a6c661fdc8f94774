"""Experiments of many runs: grids, their engines and comparison, tuning, and the demo."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcap.experiments.tuning import Tuned, tune

__all__ = ["Tuned", "tune"]


def __getattr__(name: str) -> Any:
    # Imported on first use: worker processes start with `python -m fedcap.experiments.local`.
    if name in __all__:
        return getattr(importlib.import_module("fedcap.experiments.tuning"), name)
    raise AttributeError(f"module 'fedcap.experiments' has no attribute {name!r}")
