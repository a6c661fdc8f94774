"""The round loop, evaluation and checkpoints; an `Experiment` is all settings of a run, and runs it."""

from fedcap.simulation.experiment import Experiment, load_experiment
from fedcap.simulation.loop import Observer, Simulation
from fedcap.simulation.reading import Run, read
from fedcap.training import Crew, available_cores, make_crew

__all__ = [
    "Crew",
    "Experiment",
    "Observer",
    "Run",
    "Simulation",
    "available_cores",
    "load_experiment",
    "make_crew",
    "read",
]
