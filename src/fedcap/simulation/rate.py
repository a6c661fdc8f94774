"""`training.lr = "auto"`: choose a learning rate by a short comparison without an attack.

Each of `RATES` plays a few rounds of the experiment's own method with a few clients. A part of the clients'
training samples is held out for the comparison, so the test samples have no part in it. Of the rates that
remove the fewest clients, the one with the lowest loss on the held-out samples is chosen. The number of
samples depends on the cost of the network, so that the comparison is short. All of it is a function of the
settings and the data.
"""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedcap import models
from fedcap.data import FederatedData
from fedcap.data.base import ClientSamples
from fedcap.fingerprint import written
from fedcap.rng import derive
from fedcap.runs import digest
from fedcap.simulation.loop import Simulation
from fedcap.simulation.settings import Setup
from fedcap.state import Samples
from fedcap.training import fresh_network, single_thread
from fedcap.training.workers import InProcessPool

LOG = logging.getLogger("fedcap")
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
USUAL = 0.01
"""The rate if no client has enough samples for a comparison."""
CLIENTS, ROUNDS, MOST_EPOCHS = 4, 3, 5
HELD_OUT = 0.25
FEWEST, MOST = 8, 80
"""The number of training samples of a client: clients with fewer are left out, of more a part is used."""
OPERATIONS = 2e10
"""The number of operations of all forward passes of a comparison."""


@dataclass(frozen=True)
class Trial:
    """The result of one rate."""

    rate: float
    loss: float
    """The mean cross-entropy of the held-out samples with the better model; infinite if it diverged."""
    removed: int
    """The number of clients that were removed."""


_CHOSEN: dict[str, float] = {}
"""The rates that were chosen in this process: experiments that differ only in the attack share one."""


def choose_rate(setup: Setup) -> float:
    """Return the learning rate of an experiment; the choice is logged, once in a process."""
    decides = {
        "dataset": setup.source.settings(),
        "method": written(setup.method.name, setup.trainer),
        "model": setup.model_name,
        "training": asdict(setup.training),
        "holdout": setup.holdout,
        "seed": setup.seed,
    }
    key = digest(decides, setup.source.fingerprint(), setup.dataset.name)
    if key not in _CHOSEN:
        _CHOSEN[key] = _compare(setup)
    return _CHOSEN[key]


def _compare(setup: Setup) -> float:
    """Return the rate with the best short run."""
    data = setup.load_data()
    with single_thread():
        part = _few_clients(data, setup)
        if part is None:
            LOG.warning("training.lr is %g: clients have too few samples to compare rates", USUAL)
            return USUAL
        trials = [_play(setup, part, rate) for rate in RATES]
    best = min(trials, key=lambda trial: (trial.removed, trial.loss, trial.rate))
    found = ", ".join(f"{trial.rate:g}: {trial.loss:.3f}" for trial in trials)
    LOG.warning(
        "training.lr is %g, chosen by %d short rounds: it has the lowest loss on held-out samples (%s)",
        best.rate,
        ROUNDS,
        found,
    )
    return best.rate


def _few_clients(data: FederatedData, setup: Setup) -> FederatedData | None:
    """Return the data of a few clients, with held-out samples in place of their test samples."""
    order = torch.randperm(len(data), generator=derive(setup.seed, "rate"))
    chosen = sorted(order[data.sizes[0][order] >= FEWEST][:CLIENTS].tolist())
    if not chosen:
        return None
    most = _most_samples(data, setup)
    clients = [_hold_out(data.train[row], most) for row in chosen]
    sizes = [torch.tensor([len(part[at]) for part in clients]) for at in (0, 1)]
    names = tuple(data.names[row] for row in chosen)
    return replace(data, names=names, clients=clients, sizes=(sizes[0], sizes[1]))


def _hold_out(train: Samples, most: int) -> ClientSamples:
    """Return a part of a client's training samples, divided into training and held-out samples."""
    x, y = train.x[:most], train.y[:most]
    count = len(x) - round(HELD_OUT * len(x))
    return Samples(x[:count], y[:count]), Samples(x[count:], y[count:])


def _most_samples(data: FederatedData, setup: Setup) -> int:
    """Return the number of samples per client that the network's cost allows."""
    build = models.builder(setup.network, data.shape, data.classes, data.integers)
    network = fresh_network(build, 0, name=setup.model_name)
    with FlopCounterMode(display=False) as counter:
        network.logits(network.weights.clone(), data.train[0].x[:1])
    passes = len(RATES) * CLIENTS * ROUNDS * min(setup.training.epochs, MOST_EPOCHS)
    affordable = OPERATIONS / (max(1, counter.get_total_flops()) * passes)
    return int(min(MOST, max(FEWEST, affordable)))


def _play(setup: Setup, data: FederatedData, rate: float) -> Trial:
    """Play a few rounds with a learning rate."""
    training = asdict(setup.training) | {"lr": rate, "epochs": min(setup.training.epochs, MOST_EPOCHS)}
    trial = Setup.model_validate(
        {
            "dataset": {"name": setup.dataset.name, **setup.dataset.options},
            "method": {"name": setup.method.name, **setup.method.options},
            "model": setup.network,
            "training": training,
            "rounds": ROUNDS,
            "eval_every": ROUNDS,
            "seed": setup.seed,
            "device": setup.device,
        }
    )
    with InProcessPool() as pool:
        simulation = Simulation(trial, pool, data)
        while not simulation.is_finished:
            simulation.play()
    result = simulation.result()
    assert result.metrics is not None
    readings = (result.metrics.shared, result.metrics.personal)
    losses = [reading.loss for reading in readings if reading is not None and reading.loss is not None]
    return Trial(rate, math.inf if result.diverged else min(losses, default=math.inf), len(result.removed))
