"""Experiments of many runs: the demo, grids, tuning."""

from fedcap.experiments.tuning import Tuned, tune

__all__ = ["Tuned", "tune"]
