"""What several test files share: tiny networks, samples and clients, and comparisons."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor, nn

from fedcap.methods.base import Method, Uploads
from fedcap.methods.conclude import Conclusion, conclude
from fedcap.records import Result, RoundRecord
from fedcap.samples import Samples
from fedcap.training import SGD, LocalClient, Network

INPUTS, CLASSES = 5, 3
IN_ORDER = SGD(lr=0.2, epochs=2, batch_size=4, shuffle=False)
STEPS = [slice(0, 4), slice(4, 8), slice(8, 12)] * 2
"""The mini-batches of twelve samples in that order."""


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, CLASSES))


class Own(nn.Module):
    """A user's network, whose layers are attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.neck = nn.Linear(8, 8)
        self.classifier = nn.Sequential(
            OrderedDict(hidden=nn.Linear(8, 6), act=nn.ReLU(), out=nn.Linear(6, CLASSES))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.neck(self.body(x))))


def samples_of(number: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, INPUTS, generator=generator)
    return Samples(x, torch.randint(CLASSES, (number,), generator=generator))


def client_of(build: Callable[[], nn.Module], samples: Samples, sgd: SGD) -> LocalClient:
    generator = torch.Generator().manual_seed(0)
    return LocalClient(samples, sgd, generator, (Network(build()) for _ in count()))


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def without_times(result: Result) -> dict[str, object]:
    content = json.loads(result.to_json())
    return {key: value for key, value in content.items() if not key.startswith("seconds")}


def end_round(method: Method, state: object, uploads: Uploads, **sent: object) -> Conclusion:
    """End a round in which those who answered, and nobody else, took part."""
    memory = method.judge.start() if method.judge else {}
    dispatch = sent.get("dispatch") or method.dispatch(state, uploads.ids, {})
    return conclude(method, state, memory, dispatch, uploads)


class Killed(Exception):
    """What `Killer` ends a run with."""


class Killer:
    """An observer that ends a run after a round, before anything else of it is written."""

    def __init__(self, after: int) -> None:
        self._after = after

    def started(self, simulation: object) -> None:
        pass

    def round_done(self, simulation: object, record: RoundRecord) -> None:
        if record.round == self._after:
            raise Killed

    def finished(self, result: Result) -> None:
        pass
