"""The messages between server and sites: an `Order` to a site, and its `Answer`, and the transport that
carries them.

A message travels as one blob of safetensors. Received bytes are untrusted: reading them raises `Malformed`,
with one line, and no other error. No torch is needed, and nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
from safetensors.numpy import load, save

Kind = Literal["hello", "request", "train", "customise", "finished"]
KINDS: tuple[str, ...] = get_args(Kind)
Scalar = str | int | float | bool
Config = dict[str, Scalar | list[float]]
Arrays = dict[str, np.ndarray]
CONFIG = "config"
"""The name of a message's plain values among its arrays."""
MAX_TEXT = 500
"""Characters of a text that are read."""
MAX_FEEDBACK = 10_000
"""Numbers of feedback that are read."""
WISHES = (1.0,)
"""The feedback of a site's answer to a hello, if the site asks for a model made for it."""


class Malformed(ValueError):
    """Received bytes are not a message; the line says why."""


def fresh_nonce() -> str:
    """Return a text that no earlier message had and no client can guess."""
    return secrets.token_hex(16)


def encode(arrays: Arrays, config: Config) -> bytes:
    """Return a message as one blob of safetensors, in which `config` is JSON as bytes."""
    values = np.frombuffer(json.dumps(config).encode(), np.uint8)
    return save({CONFIG: values, **{name: np.ascontiguousarray(array) for name, array in arrays.items()}})


def decode(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and values of a blob; raise `Malformed` for any other bytes."""
    try:
        arrays = load(content)
        return arrays, dict(json.loads(arrays.pop(CONFIG).tobytes()))
    except Exception:  # untrusted bytes can break a parser in many ways
        raise Malformed("the message cannot be read") from None


@dataclass(frozen=True)
class Order:
    """An order of the server to one site.

    hello: reply whether you would take part. request: train an update from the model, for comparison only.
    train: take part in a round. customise: keep this model, which was made for you without your taking part
    in a round. finished: all rounds of the plan are done.
    """

    kind: Kind
    round: int
    nonce: str
    """The answer must repeat it."""
    plan: str
    """The digest of the plan of this order."""
    models: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """k×D, float32."""

    def to_bytes(self) -> bytes:
        """Return the order as it travels."""
        config: Config = {"kind": self.kind, "round": self.round, "nonce": self.nonce, "plan": self.plan}
        return encode({"models": self.models}, config)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the order of received bytes; raise `Malformed` if there is none."""
        arrays, config = decode(content)
        kind = _text(config, "kind")
        if kind not in KINDS:
            raise Malformed("the kind of order is unknown")
        return cls(
            kind,  # type: ignore[arg-type]
            _whole(config, "round"),
            _text(config, "nonce"),
            _text(config, "plan"),
            _array(arrays, "models", 2),
        )


@dataclass(frozen=True)
class Answer:
    """A site's answer to an order. All of it is the site's own claim."""

    nonce: str
    round: int
    update: np.ndarray | None = None
    """D, float32; none if nothing was trained, or nothing is shared."""
    samples: int = 0
    """The number of samples that the site trained on."""
    feedback: tuple[float, ...] = ()
    """Further values that the method asks for."""
    tested: int = 0
    """The number of samples that the site tested its models on; 0 if it does not report it."""
    shared_correct: int | None = None
    """How many of them the received model classifies correctly."""
    personal_correct: int | None = None
    """How many of them the site's own model classifies correctly."""
    refused: str | None = None
    """Why the site does not carry out the order."""
    seconds: float = 0.0
    """How long the site worked."""

    def to_bytes(self) -> bytes:
        """Return the answer as it travels."""
        config: Config = {
            "nonce": self.nonce,
            "round": self.round,
            "samples": self.samples,
            "feedback": list(self.feedback),
            "tested": self.tested,
            "seconds": self.seconds,
        }
        for name in ("shared_correct", "personal_correct", "refused"):
            if (value := getattr(self, name)) is not None:
                config[name] = value
        return encode({} if self.update is None else {"update": self.update}, config)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the answer of received bytes; raise `Malformed` if there is none."""
        arrays, config = decode(content)
        return cls(
            _text(config, "nonce"),
            _whole(config, "round"),
            _array(arrays, "update", 1) if "update" in arrays else None,
            _whole(config, "samples"),
            _numbers(config, "feedback"),
            _whole(config, "tested"),
            _whole(config, "shared_correct") if "shared_correct" in config else None,
            _whole(config, "personal_correct") if "personal_correct" in config else None,
            _text(config, "refused") if "refused" in config else None,
            _number(config.get("seconds"), "seconds"),
        )


def _text(config: Mapping[str, Any], name: str) -> str:
    value = config.get(name)
    if type(value) is not str:
        raise Malformed(f"{name} is not a text but {type(value).__name__}")
    return " ".join("".join(c if c.isprintable() else " " for c in value[:MAX_TEXT]).split())


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise Malformed(f"{name} is not a whole number from 0 to 2^63")
    return value


def _number(value: object, name: str) -> float:
    try:
        number = float(value) if type(value) in (int, float) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Malformed(f"{name} is not a finite number")
    return number


def _numbers(config: Mapping[str, Any], name: str) -> tuple[float, ...]:
    values = config.get(name)
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or len(values) > MAX_FEEDBACK:
        raise Malformed(f"{name} is not a short list of numbers")
    return tuple(_number(value, name) for value in values)


def _array(arrays: Arrays, name: str, axes: int) -> np.ndarray:
    array = arrays.get(name)
    if array is None:
        raise Malformed(f"there are no {name}")
    if array.dtype != np.float32:
        raise Malformed(f"{name} has dtype {array.dtype}, not float32"[:MAX_TEXT])
    if array.ndim != axes:
        raise Malformed(f"{name} has {array.ndim} axes, not {axes}")
    return array


# --- The transport


@dataclass(frozen=True)
class Failure:
    """The reason why there is no answer: unreadable bytes, an error, too many bytes."""

    why: str
    """One line."""


Reply = Answer | Failure


class Transport(Protocol):
    """Carries messages: Flower in a real federation, a loop in tests. A client is its key's fingerprint."""

    def nodes(self) -> Mapping[str, str]:
        """Return the clients that are online now, and the address of each."""

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Mapping[str, Reply]:
        """Send each client its order, and return the replies by the client to which the order was sent.

        It returns when all clients have replied, and after `seconds` at the latest, without the clients that
        have not. The transport itself knows from whom a reply is; what the reply says about that does not
        count. No client can make it raise, or wait longer. An answer with more than the plan's `most_bytes`
        is a `Failure` and is not read; a malformed one is a `Failure` too.
        """
