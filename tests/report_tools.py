"""Reports made by hand, runs with made-up records, and the decoder of a packed report."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedcap
from fedcap.report.model import (
    AccuracyCurves,
    AttackCurves,
    Check,
    ClassAccuracy,
    Client,
    Costs,
    Event,
    Fact,
    GridCell,
    GridData,
    GridTable,
    KeyFigure,
    LocalCurve,
    MixingMap,
    Report,
    RunData,
    ScoreCurves,
    Spread,
)
from fedcap.runs import (
    Accuracy,
    ClientAccuracy,
    Mixing,
    Provenance,
    Reason,
    RoundRecord,
    RunDirectory,
    Seconds,
    summarise,
)

HOSTILE = ("</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "=1+1", "a&amp;b")


def a_run(
    clients: int = 8, rounds: int = 5, names: Sequence[str] = (), reason: str = "norm 9 over 6"
) -> Report:
    """Return a run in which the last quarter of the clients is malicious, and removed in round 2."""
    rng = np.random.default_rng(clients)
    bad = range(clients - clients // 4, clients)
    called = [*names, *(f"c{i}" for i in range(len(names), clients))]
    numbers = list(range(1, rounds + 1))
    accuracies = np.round(rng.uniform(60, 99, (clients, rounds)), 1)
    accuracies[bad] = np.nan
    honest = accuracies[: bad.start]
    spread = Spread([*honest.mean(0)], [*honest.min(0)], [*honest.max(0)], accuracies)
    scores = rng.uniform(1, 5, (clients, rounds))
    scores[bad] += 4
    scores[bad, 2:] = np.nan
    weights = rng.uniform(0.01, 1, (rounds, clients, clients))
    weights[2:, bad], weights[2:, :, bad] = np.nan, np.nan
    weights /= np.nansum(weights, axis=2, keepdims=True).clip(1e-9)
    removed = [Event(2, client, "removed", reason, 2) for client in bad if rounds > 1]
    lines = [
        Client(
            name=called[i],
            role="malicious" if i in bad else "honest",
            state="removed" if i in bad else "active",
            samples=100 + i,
            shared=None if i in bad else float(accuracies[i, -1]),
            personal=None if i in bad else float(accuracies[i, -1]),
            local=None if i in bad else 80.0,
            gain=None if i in bad else float(accuracies[i, -1]) - 80.0,
            share=100.0 / clients,
            rounds=2 if i in bad else rounds,
            not_counted=0,
            removed=2 if i in bad else None,
            reason=reason if i in bad else "",
        )
        for i in range(clients)
    ]
    ones = [1.0] * rounds
    run = RunData(
        clients=lines,
        accuracy=AccuracyCurves(numbers, spread, spread),
        local=LocalCurve(numbers, [80.0] * rounds),
        scores=[
            ScoreCurves("norm", numbers, [6.0] * rounds, scores),
            ScoreCurves("direction", numbers, [0.5 + 0.1 * i for i in range(rounds)], scores / 10),
        ],
        events=removed,
        attack=AttackCurves(numbers[:2], [9.0, 8.0][:rounds], [2.0, 2.0][:rounds], [-1.0, 0.5][:rounds]),
        mixing=MixingMap(numbers, [[i] for i in range(clients)], weights, ones),
        costs=Costs(numbers, ones, ones, [0.0] * rounds, ones, [3.5] * rounds, [1e6] * rounds),
        classes=[ClassAccuracy("zero", 97.0), ClassAccuracy("one", None)],
    )
    return Report(
        kind="run",
        title="fedcap · digits",
        summary="What ran.",
        state="finished",
        done=rounds,
        planned=rounds,
        figures=[KeyFigure("97.2 %", "accuracy", "Of all samples.")],
        checks=[Check("ok", "Honest clients removed", "None."), Check("bad", "Worst client", "It is lost.")],
        omitted=["Weights are rounded."],
        run=run,
        settings=[Fact("rounds", str(rounds))],
        provenance=[Fact("torch", "2")],
        command="fedcap run config.toml",
        config='name = "fedcap"\n',
    )


def a_grid(
    methods: Sequence[str] = ("fedavg", "fedcap"), attacks: Sequence[str] = ("no attack", "ipm")
) -> Report:
    """Return a grid of two seeds; the last method has not finished under the last attack."""
    runs: list[Report] = []
    cells = []
    for method in methods:
        row = []
        for attack in attacks:
            runs += [replace(a_run(), title=f"{method} · {attack} · seed {seed}") for seed in "01"]
            mean = 50.0 + 10 * len(row) + len(cells)
            row.append(GridCell(mean, 1.5, [len(runs) - 2, len(runs) - 1], ["0", "1"]))
        cells.append(row)
    cells[-1][-1] = GridCell(None, None, [], [], missing=2)
    table = GridTable("digits", list(methods), list(attacks), cells, [1, None])
    whole = replace(a_run(), kind="grid", title="a grid", run=None, state="unfinished", done=6, planned=8)
    return replace(whole, grid=GridData([table], runs))


LIMIT = 6.0


def reason(sentence: str = "norm 7 over 6", value: float | None = 7.0) -> Reason:
    return Reason("norm", value, LIMIT, sentence)


def record(number: int, names: Sequence[str], accuracy: float | None = 90.0, **more: Any) -> RoundRecord:
    """Return a round in which all of these took part, each as accurate as all."""
    own = None if accuracy is None else {name: ClientAccuracy(accuracy - 2, accuracy) for name in names}
    content: dict[str, Any] = {
        "round": number,
        "participants": list(names),
        "asked": [],
        "accuracy": None if own is None or accuracy is None else Accuracy(accuracy - 2, accuracy, own),
        "scores": {"norm": dict.fromkeys(names, 3.0)},
        "limits": {"norm": LIMIT},
        "weights_entropy": None,
        "refused": {},
        "bounded": {},
        "removed": {},
        "attack": None,
        "diverged": [],
        "bytes": 1000,
        "seconds": Seconds(1.0, 0.5, 0.1, 0.2, 2.0),
    }
    return RoundRecord(**(content | more))


def write(
    path: Path,
    records: Sequence[RoundRecord],
    names: Sequence[str],
    malicious: Sequence[str] = (),
    mixings: Sequence[Mixing] = (),
    finished: bool = True,
    **settings: Any,
) -> Path:
    """Write a run with these records."""
    given = {"rounds": max(1, len(records)), "attack": "ipm" if malicious else "none", **settings}
    weights = {mixing.round: mixing for mixing in mixings}
    with RunDirectory(path) as directory:
        directory.write_settings(fedcap.Experiment(**given).settings())
        facts = ("0" * 64, "data", "partition", 10, list(names), list(malicious))
        directory.write_provenance(Provenance({"fedcap": "1"}, 1, 0, *facts, course="made up"))
        for each in records:
            directory.append(each, weights.get(each.round))
        if finished:
            directory.write_result(summarise(records, names, malicious, detects=True))
    return path


def decoded(value: Any) -> Any:
    """Decode what `pack` made, as the docstring of its module says, without NumPy."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"z"}:
        return decoded(json.loads(_inflated(value["z"])))
    if "q" not in value:
        return {key: decoded(item) for key, item in value.items()}
    size = math.prod(value["shape"])
    content = _inflated(value["q"])
    codes = struct.unpack(f"<{size}{'B' if value['bits'] == 8 else 'H'}", content)
    return _shaped([_number(code, value) for code in codes], value["shape"])


def _number(code: int, about: dict[str, Any]) -> float | None:
    highest = 2 ** about["bits"] - 1
    if code == highest:
        return None
    t = about["min"] + (about["max"] - about["min"]) * code / (highest - 1)
    return math.copysign(math.expm1(abs(t)), t) if about["log"] else t


def _inflated(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text), wbits=-15)


def _shaped(numbers: list[Any], shape: list[int]) -> Any:
    if len(shape) == 1:
        return numbers
    step = len(numbers) // shape[0] if shape[0] else 0
    return [_shaped(numbers[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]
