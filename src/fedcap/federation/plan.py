"""The plan of a federation: what the operator proposes, and what every site agrees to before it takes part.

It is a file, plan.toml, that a person can read. Its digest covers every entry, so whoever agreed to one plan
has agreed to no other. Reading a plan builds nothing and needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedcap.errors import InputError, validation_message
from fedcap.federation.commented import commented
from fedcap.runs import Named, read_toml

PLAN = "plan.toml"
FREE_TO_CHANGE = ("rounds", "least", "deadline", "customised", "bundle")
"""What may change while a federation goes on, once its sites have agreed; the rest is its course."""
SLACK = 1 << 16
"""Bytes of a message besides its models."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1)]


class Plan(BaseModel):
    """What is to be learnt, by which method, with which network, for how long, and under which rules."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^\P{C}+$")]
    """What the federation is called."""
    model: str
    """The network: a name, or `module:function` that every site has."""
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    """What the classes are called, in the order of the network's answers."""
    shape: Annotated[tuple[Size, ...], Field(min_length=1)]
    """The shape of one input."""
    pixels: bool = False
    """Whether inputs are bytes, which are scaled to [−1, 1]."""
    seed: Annotated[int, Field(ge=0)] = 0
    """What every draw follows from: the common start, who takes part, the order of samples."""
    rounds: Size = 30
    """How many rounds are played."""
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the sites that are there which take part in a round."""
    assumed: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """The share of the participants that the server assumes to be malicious; some rules need a number."""
    least: Size = 2
    """A round with fewer answers than this counts for nothing, and is played again."""
    deadline: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 600.0
    """How many seconds a site has for its answer, a day at most."""
    customised: Annotated[int, Field(ge=0)] = 1
    """How many models a site may be given that it does not take part in rounds for; each tells it something
    about the sites most like it."""
    weights: Size
    """How many weights the network has."""
    layout: Sha256
    """The digest of how the weights lie in a model."""
    bundle: Sha256 | None = None
    """The SHA-256 of the Flower bundle that sites run for this plan, and of no other."""
    method: Named
    """The method, with all of its options."""
    training: dict[str, Any]
    """How a site trains in a round, with all options."""

    @classmethod
    def of(cls, content: dict[str, Any], where: str = "the plan") -> Self:
        """Return a plan from the content of its file; a mistake is an `InputError` of one line."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise InputError(f"{where}: {validation_message(error)}") from None

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a plan's file."""
        return cls.of(read_toml(path), str(path))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a plan from text."""
        try:
            return cls.of(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"the plan is not valid TOML: {error}") from None

    def text(self) -> str:
        """Return the plan as the content of its file."""
        return commented(self, "What every site agrees to. Any change gives it another digest.")

    @property
    def digest(self) -> str:
        """The SHA-256 of all entries, in hex: what a site agrees to."""
        return _digest(self.model_dump(mode="json", exclude_none=True))

    @property
    def course(self) -> str:
        """The SHA-256 of what must not change on the way: state of one course is used with no other."""
        return _digest(self.model_dump(mode="json", exclude=set(FREE_TO_CHANGE), exclude_none=True))

    @property
    def most_bytes(self) -> int:
        """The size of the largest answer that is looked at."""
        return self.weights * 4 + SLACK


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
