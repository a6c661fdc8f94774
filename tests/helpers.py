"""What several test files share: tiny networks, samples and clients, and comparisons."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training_tools import CLASSES, INPUTS

from fedcap.cli import main
from fedcap.detection import Batch, RoundView, Verdict
from fedcap.errors import InputError
from fedcap.methods.base import Method, Sent
from fedcap.runs import Result, RoundRecord, Seconds
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


def round_record(number: int, participants: Sequence[str], **facts: Any) -> RoundRecord:
    """Return a record in which nothing happened but the given facts."""
    plain = RoundRecord(
        round=number,
        participants=participants,
        asked=[],
        accuracy=None,
        scores={},
        limits={},
        weights_entropy=None,
        refused={},
        bounded={},
        removed={},
        attack=None,
        diverged=[],
        bytes=0,
        seconds=Seconds(),
    )
    return replace(plain, **facts)


@dataclass
class Ended:
    """A round after its end."""

    state: Any
    memory: Any
    view: RoundView
    verdict: Verdict

    @property
    def uncounted(self) -> set[int]:
        """Clients that are not removed, and whose upload does not count."""
        left = ~self.view.counting(self.verdict)
        return set(self.view.ids[left].tolist()) - set(self.verdict.removed)

    @property
    def notes(self) -> list[str]:
        return [*self.verdict.notes, *self.view.notes]


def end_round(
    method: Method, state: object, batch: Batch, sent: Sent | None = None, memory: object = None
) -> Ended:
    """End a round; unless `sent` is given, exactly the clients that answered took part."""
    sent = method.send(state, batch.ids, {}) if sent is None else sent
    view = method.view(state, sent, batch)
    verdict = Verdict()
    if method.defence is not None:
        memory = method.defence.start() if memory is None else memory
        verdict, memory = method.defence(view, memory)
    return Ended(method.update(state, sent, view, verdict), memory or {}, view, verdict)


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
def refused(code: str, field: str | None = None) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Expect an `InputError` with a code, and with a field if one is given."""
    with pytest.raises(InputError) as error:
        yield error
    assert error.value.code == code
    assert field in (None, error.value.field)


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


class CountingName(str):
    """A name that counts how often it is compared with another one."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountingName.compared += 1
        return str.__eq__(self, other)
