"""Local training on flat weight vectors, and the pool of workers that trains many clients."""

from fedcap.training.bench import Bench, Job, LocalClient, Performed, Trained, Trainer
from fedcap.training.fit import SGD, Learner, fit
from fedcap.training.network import Layout, Network, fresh_network
from fedcap.training.pool import Pool, make_pool, single_thread

__all__ = [
    "SGD",
    "Bench",
    "Job",
    "Layout",
    "Learner",
    "LocalClient",
    "Network",
    "Performed",
    "Pool",
    "Trained",
    "Trainer",
    "fit",
    "fresh_network",
    "make_pool",
    "single_thread",
]
