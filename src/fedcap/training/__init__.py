"""Local training on flat weight vectors: a task for one client, and worker pools for many tasks."""

from fedcap.training.evaluation import Counts
from fedcap.training.network import Layout, ModelError, Network, fresh_network
from fedcap.training.sgd import SGD, Descent, Learner, fit
from fedcap.training.task import Bench, Job, LocalClient, LocalData, Performed, Trained, Trainer, Work
from fedcap.training.workers import (
    TaskResults,
    WorkerError,
    WorkerPool,
    available_cores,
    make_pool,
    single_thread,
)

__all__ = [
    "SGD",
    "Bench",
    "Counts",
    "Descent",
    "Job",
    "Layout",
    "Learner",
    "LocalClient",
    "LocalData",
    "ModelError",
    "Network",
    "Performed",
    "TaskResults",
    "Trained",
    "Trainer",
    "Work",
    "WorkerError",
    "WorkerPool",
    "available_cores",
    "fit",
    "fresh_network",
    "make_pool",
    "single_thread",
]
