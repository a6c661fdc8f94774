"""Local training on flat weight vectors: one client at a bench, and the crew that trains many."""

from fedcap.training.evaluation import Counts
from fedcap.training.network import Layout, ModelError, Network, fresh_network
from fedcap.training.sgd import SGD, Descent, Learner, fit
from fedcap.training.task import Bench, Job, LocalClient, LocalData, Performed, Trained, Trainer, Work
from fedcap.training.workers import Crew, Outcome, WorkerError, available_cores, make_crew, single_thread

__all__ = [
    "SGD",
    "Bench",
    "Counts",
    "Crew",
    "Descent",
    "Job",
    "Layout",
    "Learner",
    "LocalClient",
    "LocalData",
    "ModelError",
    "Network",
    "Outcome",
    "Performed",
    "Trained",
    "Trainer",
    "Work",
    "WorkerError",
    "available_cores",
    "fit",
    "fresh_network",
    "make_crew",
    "single_thread",
]
