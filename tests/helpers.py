"""What several test files share: tiny networks, samples and clients, and comparisons."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from training_tools import CLASSES, INPUTS

from fedcap.cli import main
from fedcap.errors import InputError
from fedcap.methods.base import Conclusion, Dispatch, Method, Uploads, conclude
from fedcap.runs import Result, RoundRecord
from fedcap.training import SGD

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


def without_times(result: Result) -> dict[str, object]:
    content = json.loads(result.to_json())
    return {key: value for key, value in content.items() if not key.startswith("seconds")}


def end_round(
    method: Method, state: object, uploads: Uploads, dispatch: Dispatch | None = None
) -> Conclusion:
    """End a round; unless a dispatch is given, those who answered, and nobody else, took part."""
    memory = method.judge.start() if method.judge else {}
    sent = dispatch or method.dispatch(state, uploads.ids, {})
    return conclude(method, state, memory, sent, uploads)


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


@contextmanager
def refused(code: str, field: str | None = None) -> Iterator[None]:
    """Expect an `InputError` with a code, and with a field if one is given."""
    with pytest.raises(InputError) as error:
        yield
    assert error.value.code == code
    assert field in (None, error.value.field)


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err
