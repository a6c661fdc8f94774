"""What the tests of stories share: runs whose records are made up, and a story's packed JSON decoded."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fedcap
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
    """Decode what `packed` made, as its docstring says, without NumPy."""
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
