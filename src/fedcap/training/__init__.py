"""Local training on flat weight vectors: one client at a bench, and the crew that trains many."""

from fedcap.training.bench import Bench, Job, Performed, Work
from fedcap.training.client import LocalClient, LocalData, Trained, Trainer
from fedcap.training.crew import Crew, Outcome, WorkerError, available_cores, make_crew, single_thread
from fedcap.training.descent import Descent
from fedcap.training.fit import SGD, Learner, fit
from fedcap.training.network import Layout, ModelError, Network, fresh_network
from fedcap.training.testing import Counts

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
