"""The round loop, evaluation, checkpoints and the record of a run."""

from fedcap.simulation.experiment import Experiment
from fedcap.simulation.record import Result, RoundRecord

__all__ = ["Experiment", "Result", "RoundRecord"]
