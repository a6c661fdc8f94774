"""The round loop, evaluation and checkpoints; an `Experiment` is all settings of a run, and runs it."""

from fedcap.simulation.experiment import Experiment, load_experiment
from fedcap.simulation.loop import Observer, Simulation
from fedcap.simulation.models import Run, read
from fedcap.simulation.settings import COMPUTES
from fedcap.training import WorkerPool, available_cores, make_pool

__all__ = [
    "COMPUTES",
    "Experiment",
    "Observer",
    "Run",
    "Simulation",
    "WorkerPool",
    "available_cores",
    "load_experiment",
    "make_pool",
    "read",
]
