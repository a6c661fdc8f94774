"""The round loop, evaluation and checkpoints; an `Experiment` is all settings of a run, and runs it."""

from fedcap.simulation.experiment import Experiment, load_experiment
from fedcap.simulation.loop import Observer, Simulation
from fedcap.simulation.models import Run, read
from fedcap.simulation.settings import COMPUTES
from fedcap.training import WorkerPool, available_cores, make_pool
from fedcap.training.workers.base import NotPortableError, carried
from fedcap.training.workers.ray import RayCluster, ray_module

__all__ = [
    "COMPUTES",
    "Experiment",
    "NotPortableError",
    "Observer",
    "RayCluster",
    "Run",
    "Simulation",
    "WorkerPool",
    "available_cores",
    "carried",
    "load_experiment",
    "make_pool",
    "ray_module",
    "read",
]
