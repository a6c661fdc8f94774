"""The work of the speed benchmark in plain PyTorch, written as most projects write it.

A loop over clients with a deep copy of the model, a DataLoader and an optimiser for each. Weights are passed
as state dicts, and all clients are tested twice per round through a DataLoader. Torch uses all cores, its
default. The network is the same function, with its layers in the usual order: ReLU, then pool. Clients,
samples, epochs, steps and tests are the same as in fedcap.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.work import Work

Weights = dict[str, Tensor]


class PlainCNN(nn.Module):
    """A network of the paper's, given one of ours to take the sizes and the first weights from."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        self.conv1, self.conv2 = (layer for layer in ours.modules() if isinstance(layer, nn.Conv2d))
        self.fc1, self.fc2 = (layer for layer in ours.modules() if isinstance(layer, nn.Linear))
        self.pool = next(layer for layer in ours.modules() if isinstance(layer, nn.MaxPool2d))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)  # type: ignore[no-any-return]


@dataclass
class PlainClient:
    """A client as an object with its data, its loaders and, for FedCAP, its personal model."""

    train: TensorDataset
    test: TensorDataset
    personal: nn.Module
    batch_size: int = 10
    epochs: int = 5
    lr: float = 0.01

    def fit(self, model: nn.Module, pull: float | None) -> None:
        """Train the model; with `pull`, first the personal one on each batch, held near what was received."""
        received = [p.detach().clone() for p in model.parameters()]
        optimiser = torch.optim.SGD(model.parameters(), lr=self.lr)
        own = torch.optim.SGD(self.personal.parameters(), lr=self.lr)
        loader = DataLoader(self.train, batch_size=self.batch_size, shuffle=True, drop_last=True)
        model.train()
        self.personal.train()
        for _ in range(self.epochs):
            for x, y in loader:
                if pull is not None:
                    own.zero_grad()
                    loss = functional.cross_entropy(self.personal(x), y)
                    for parameter, anchor in zip(self.personal.parameters(), received, strict=True):
                        loss = loss + pull / 2 * (parameter - anchor).pow(2).sum()
                    loss.backward()
                    own.step()
                optimiser.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                optimiser.step()

    def test_accuracy(self, model: nn.Module) -> float:
        """Test a model in batches."""
        model.eval()
        hits = 0
        with torch.no_grad():
            for x, y in DataLoader(self.test, batch_size=self.batch_size):
                hits += int((model(x).argmax(dim=1) == y).sum())
        return hits / len(self.test)


def plain_network(work: Work) -> PlainCNN:
    return PlainCNN(work.build())


def plain_clients(work: Work) -> list[PlainClient]:
    x, y = work.data
    clients = []
    for k in range(work.clients):
        mine = work.owners == k
        train, test = mine & ~work.tests, mine & work.tests
        clients.append(
            PlainClient(
                TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test]), plain_network(work)
            )
        )
    return clients


def mean_of(states: Sequence[Weights], shares: Sequence[float]) -> Weights:
    """Return the weighted mean of state dicts, key by key."""
    return {
        key: sum(share * state[key] for share, state in zip(shares, states, strict=True))  # type: ignore[misc]
        for key in states[0]
    }


def flat(state: Weights) -> Tensor:
    """Return a state dict as one vector."""
    return torch.cat([tensor.flatten() for tensor in state.values()])


def fedavg_round(model: nn.Module, clients: Sequence[PlainClient]) -> float:
    """Play one round of FedAvg: test, train, test, average; return the mean accuracy."""
    states, scores = [], []
    for client in clients:
        local = copy.deepcopy(model)
        client.test_accuracy(local)
        client.fit(local, None)
        scores.append(client.test_accuracy(local))
        states.append(local.state_dict())
    model.load_state_dict(mean_of(states, [1 / len(states)] * len(states)))
    return sum(scores) / len(scores)


def fedcap_round(
    model: nn.Module, received: list[Weights], clients: Sequence[PlainClient], alpha: float, phi: float
) -> tuple[float, list[Weights]]:
    """Play one round of FedCAP; return the mean accuracy and the models for the next round."""
    states, scores = [], []
    for client, weights in zip(clients, received, strict=True):
        local = copy.deepcopy(model)
        local.load_state_dict(weights)
        client.test_accuracy(local)
        client.fit(local, 0.1)
        scores.append(client.test_accuracy(client.personal))
        states.append(copy.deepcopy(local.state_dict()))
    reference = flat(model.state_dict())
    updates = [flat(state) - reference for state in states]
    customised = []
    for k, mine in enumerate(updates):
        likeness = torch.tensor(
            [float(functional.cosine_similarity(mine, other, dim=0)) for other in updates]
        )
        likeness[k] = -torch.inf
        shares = (1 - phi) * torch.softmax(alpha * likeness, dim=0)
        shares[k] = phi
        customised.append(mean_of(states, shares.tolist()))
    model.load_state_dict(mean_of(states, [1 / len(states)] * len(states)))
    return sum(scores) / len(scores), customised
