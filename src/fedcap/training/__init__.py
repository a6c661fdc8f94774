"""Local training on flat weight vectors: a task for one client, and worker pools for many tasks."""

from fedcap.training.evaluation import AnswerCounts
from fedcap.training.network import Layout, ModelError, Network, fresh_network
from fedcap.training.sgd import SGD, Descent, Learner, fit
from fedcap.training.task import ClientUpdate, LocalClient, LocalData, Task, TaskResult, TaskRunner
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
    "AnswerCounts",
    "ClientUpdate",
    "Descent",
    "Layout",
    "Learner",
    "LocalClient",
    "LocalData",
    "ModelError",
    "Network",
    "Task",
    "TaskResult",
    "TaskResults",
    "TaskRunner",
    "WorkerError",
    "WorkerPool",
    "available_cores",
    "fit",
    "fresh_network",
    "make_pool",
    "single_thread",
]
