"""What server and sites say to each other: an `Order` to a site, and its `Answer`.

Both turn into arrays and plain values by name, and back. What comes back may be anything: turning it into a
message raises `Malformed`, with one line, and nothing else. No torch is needed, and nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from safetensors.numpy import load, save

Kind = Literal["hello", "request", "train", "customise"]
KINDS: tuple[str, ...] = get_args(Kind)
Scalar = str | int | float | bool
Config = dict[str, Scalar | list[float]]
Arrays = dict[str, np.ndarray]
LONGEST_TEXT = 500
"""Characters of a text that are looked at."""
MOST_EXTRA = 10_000
"""Numbers besides an update that are looked at."""

WISHES = (1.0,)
"""What a site's answer to a hello has as `extra` if it wishes for a model made for it."""


class Malformed(ValueError):
    """Something that came is no message; the line says why."""


def fresh_nonce() -> str:
    """Return what no earlier message had and nobody can guess."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Order:
    """What the server asks of one site.

    hello: say whether you would take part. request: train an update from the model, to be compared by. train:
    take part in a round. customise: here is a model made for you, which you did not take part for.
    """

    kind: Kind
    round: int
    nonce: str
    """The answer must repeat it."""
    plan: str
    """The digest of the plan that this is part of."""
    models: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """k×D, float32."""

    def pack(self) -> tuple[Arrays, Config]:
        """Return the order as arrays and plain values."""
        config: Config = {"kind": self.kind, "round": self.round, "nonce": self.nonce, "plan": self.plan}
        return {"models": self.models}, config

    def to_bytes(self) -> bytes:
        """Return the order as it travels."""
        return encode(*self.pack())

    @classmethod
    def from_bytes(cls, content: bytes) -> Order:
        """Return the order that `to_bytes` turned into these."""
        return cls.unpack(*decode(content))

    @classmethod
    def unpack(cls, arrays: Mapping[str, Any], config: Mapping[str, Any]) -> Order:
        """Return the order that `pack` turned into these."""
        kind = _text(config, "kind")
        if kind not in KINDS:
            raise Malformed("kind is none that there is")
        return cls(
            kind,  # type: ignore[arg-type]
            _whole(config, "round"),
            _text(config, "nonce"),
            _text(config, "plan"),
            _array(arrays, "models", 2),
        )


@dataclass(frozen=True)
class Answer:
    """What a site says to an order. All of it is the site's own word."""

    nonce: str
    round: int
    update: np.ndarray | None = None
    """D, float32; none if nothing was trained, or nothing is shared."""
    samples: int = 0
    """How many samples it trained on."""
    extra: tuple[float, ...] = ()
    """What else the method asks for."""
    tested: int = 0
    """How many samples it tested its models on; 0 if it does not tell."""
    shared_correct: int | None = None
    """How many of them the model it received answers rightly."""
    personal_correct: int | None = None
    """How many of them its own model answers rightly."""
    refused: str | None = None
    """Why it does not do what was asked."""
    seconds: float = 0.0
    """How long it worked."""

    def pack(self) -> tuple[Arrays, Config]:
        """Return the answer as arrays and plain values."""
        config: Config = {
            "nonce": self.nonce,
            "round": self.round,
            "samples": self.samples,
            "extra": list(self.extra),
            "tested": self.tested,
            "seconds": self.seconds,
        }
        for name in ("shared_correct", "personal_correct", "refused"):
            if (value := getattr(self, name)) is not None:
                config[name] = value
        return {} if self.update is None else {"update": self.update}, config

    def to_bytes(self) -> bytes:
        """Return the answer as it travels."""
        return encode(*self.pack())

    @classmethod
    def from_bytes(cls, content: bytes) -> Answer:
        """Return the answer that `to_bytes` turned into these."""
        return cls.unpack(*decode(content))

    @classmethod
    def unpack(cls, arrays: Mapping[str, Any], config: Mapping[str, Any]) -> Answer:
        """Return the answer that `pack` turned into these."""
        return cls(
            _text(config, "nonce"),
            _whole(config, "round"),
            _array(arrays, "update", 1) if "update" in arrays else None,
            _whole(config, "samples"),
            _numbers(config, "extra"),
            _whole(config, "tested"),
            _whole(config, "shared_correct") if "shared_correct" in config else None,
            _whole(config, "personal_correct") if "personal_correct" in config else None,
            _text(config, "refused") if "refused" in config else None,
            _number(config.get("seconds"), "seconds"),
        )


CONFIG = "config"


def encode(arrays: Arrays, config: Config) -> bytes:
    """Return a message as it travels: one blob of safetensors, in which `config` is JSON as bytes."""
    values = np.frombuffer(json.dumps(config).encode(), np.uint8)
    return save({CONFIG: values, **{name: np.ascontiguousarray(array) for name, array in arrays.items()}})


def decode(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and values of a blob; raise `Malformed` for any other bytes."""
    try:
        arrays = load(content)
        return arrays, dict(json.loads(arrays.pop(CONFIG).tobytes()))
    except Exception:  # untrusted bytes can break a parser in many ways
        raise Malformed("the message cannot be read") from None


def _text(config: Mapping[str, Any], name: str) -> str:
    value = config.get(name)
    if type(value) is not str:
        raise Malformed(f"{name} is not a text but {type(value).__name__}")
    return " ".join("".join(c if c.isprintable() else " " for c in value[:LONGEST_TEXT]).split())


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise Malformed(f"{name} is not a whole number that makes sense")
    return value


def _number(value: object, name: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise Malformed(f"{name} is not a finite number")
    return float(value)  # type: ignore[arg-type]


def _numbers(config: Mapping[str, Any], name: str) -> tuple[float, ...]:
    values = config.get(name)
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or len(values) > MOST_EXTRA:
        raise Malformed(f"{name} is not a short list of numbers")
    return tuple(_number(value, name) for value in values)


def _array(arrays: Mapping[str, Any], name: str, axes: int) -> np.ndarray:
    array = arrays.get(name)
    if type(array) is not np.ndarray:
        raise Malformed(f"{name} is not an array but {type(array).__name__}")
    if array.dtype != np.float32:
        raise Malformed(f"{name} has dtype {array.dtype}, not float32"[:LONGEST_TEXT])
    if array.ndim != axes:
        raise Malformed(f"{name} has {array.ndim} axes, not {axes}")
    return array
