"""plan.toml, which all sites agree to, and policy.toml, which limits what one site agrees to.

Both are files that people read and change. The plan's digest covers every entry, so agreeing to one plan is
agreeing to no other. The policy bounds what any plan may ask of the site; the site's people agree plan by
plan. Reading these files builds nothing and needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedcap.errors import InputError, invalid
from fedcap.registry import plain
from fedcap.runs import Named, read_toml, to_toml

PLAN = "plan.toml"
FREE_TO_CHANGE = ("rounds", "least", "deadline", "customised", "bundle")
"""What may change during a federation, once its sites have agreed; the rest is its course."""
MAX_BYTES = 1_000_000
"""The size of the largest file that is read."""
SLACK = 1 << 16
"""Bytes of a message in addition to its models."""
COMMENT_WIDTH = 98

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1)]
Limit = Annotated[int, Field(ge=0)]


class ConfigFile(BaseModel):
    """A TOML file in which each entry stands below the docstring of its field."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    HEADING: ClassVar[str] = ""

    @classmethod
    def of(cls, content: Mapping[str, Any], where: str | None = None) -> Self:
        """Check the content of a file; a mistake is an `InputError` of one line that begins with `where`."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise invalid(error).prefixed(where or cls.__name__.lower()) from None

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read the file; if that fails, raise an `InputError` of one line."""
        path = Path(path)
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} has more than {MAX_BYTES:,} bytes", code="too-large", field=str(path))
        return cls.of(read_toml(path), str(path))

    def text(self) -> str:
        """Return the content of the file: entries first, then tables; what is not set is a comment."""
        entries, tables = [_comment(self.HEADING)], list[str]()
        content = self.model_dump(mode="json", exclude_none=True)
        for name, field in type(self).model_fields.items():
            comment = _comment(field.description or "")
            if name not in content:
                entries.append(f"{comment}# {name} is not set\n")
            else:
                table = isinstance(content[name], dict)
                (tables if table else entries).append(comment + to_toml({name: content[name]}))
        return "\n".join([*entries, *tables])


def _comment(text: str) -> str:
    lines = textwrap.wrap(" ".join(text.split()), COMMENT_WIDTH, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)


class Plan(ConfigFile):
    """What is learned, with which method and network, for how many rounds, and under which rules."""

    HEADING = "What every site agrees to. Any change gives the plan another digest."

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^\P{C}+$")]
    """The name of the federation."""
    model: str
    """The network: a name, or `module:function` that every site has."""
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    """The names of the classes, in the order of the network's outputs."""
    shape: Annotated[tuple[Size, ...], Field(min_length=1)]
    """The shape of one input."""
    pixels: bool = False
    """Whether inputs are bytes, which are scaled to [−1, 1]."""
    integers: bool | None = None
    """Whether inputs are integers, for networks that begin with nn.Embedding."""
    features: tuple[str, ...] | None = None
    """The names of the features of a table, in order. A site's columns are matched to them by name."""
    levels: dict[str, tuple[str, ...]] | None = None
    """The categories of each column of categories, which are public. A site with another category uses the
    input "other". Missing numbers become the median of the site's own training samples, which stays there."""
    means: tuple[float, ...] | None = None
    """The mean of each feature, or of each channel, in the operator's samples. A site's check compares its
    own samples with it."""
    deviations: tuple[float, ...] | None = None
    """The standard deviation of each feature, or of each channel, in the operator's samples."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The seed of all random numbers: the common start, the participants, the order of samples."""
    rounds: Size = 30
    """The number of rounds."""
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the connected clients that take part in a round."""
    assumed: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """The share of the participants that the server assumes to be malicious; some rules need a number."""
    least: Size = 2
    """A round with fewer answers than this does not count, and is played again."""
    deadline: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 600.0
    """The seconds that a site has for its answer, a day at most."""
    customised: Annotated[int, Field(ge=0)] = 1
    """The number of models that a site may receive without taking part in rounds for them; each reveals
    something about the sites most similar to it."""
    weights: Size
    """The number of weights of the network."""
    layout: Sha256
    """The digest of the layout of the weights in a model."""
    bundle: Sha256 | None = None
    """The SHA-256 of the only Flower bundle that sites run for this plan."""
    method: Named
    """The method, with all of its options."""
    training: dict[str, Any]
    """How a site trains in a round, with all options."""

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """The categories of each feature, in order, empty for numbers; empty if tables are not prepared."""
        return () if self.levels is None else tuple(self.levels.get(name, ()) for name in self.features or ())

    @property
    def digest(self) -> str:
        """The SHA-256 of all entries, in hex: what a site agrees to."""
        return _digest(self.model_dump(mode="json", exclude_none=True))

    @property
    def course(self) -> str:
        """The SHA-256 of what must not change during a federation: a state belongs to one course."""
        return _digest(self.model_dump(mode="json", exclude=set(FREE_TO_CHANGE), exclude_none=True))

    @property
    def most_bytes(self) -> int:
        """The size of the largest answer that the server reads."""
        return self.weights * 4 + SLACK


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class SitePolicy(ConfigFile):
    """The limits of one site."""

    HEADING = "What this site agrees to; the rest is refused. It is read again for every order."

    methods: tuple[str, ...] | None = None
    """The methods that the site takes part in; if not set, all that are part of fedcap."""
    code: tuple[str, ...] = ()
    """Custom code, as `module:name`, that a plan may name; the site runs no other."""
    weights: Limit = 100_000_000
    """The largest number of weights of a network."""
    epochs: Limit = 50
    """The largest number of epochs of training in a round."""
    rounds: Limit = 10_000
    """The largest number of rounds of a plan."""
    bytes: Limit = 2_000_000_000
    """The largest number of bytes of the models in one order."""
    accuracy: bool = True
    """Whether the site reports how many of its test samples are classified correctly."""

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a policy; without a file the site agrees to nothing."""
        if not Path(path).exists():
            raise InputError(
                f"there is no {Path(path).name}: without it the site agrees to nothing", code="no-policy"
            )
        return super().read(path)

    def objection(self, plan: Plan, model_bytes: int = 0) -> str | None:
        """Return why the site does not carry out an order of a plan with models of this size, or none."""
        for name in sorted(set(references(plan.model_dump(include={"method", "model"})))):
            if name not in self.code:
                return f"the plan names custom code, {name}, that this site's policy does not allow"
        if self.methods is not None and plain(plan.method.name) not in map(plain, self.methods):
            return f"method {plan.method.name}: this site's policy allows {', '.join(self.methods) or 'none'}"
        epochs = plan.training.get("epochs")
        if type(epochs) is not int:
            return "the plan does not give the number of epochs of a round"
        for value, limit, what in (
            (plan.weights, self.weights, "weights"),
            (epochs, self.epochs, "epochs a round"),
            (plan.rounds, self.rounds, "rounds"),
            (model_bytes, self.bytes, "bytes of models"),
        ):
            if value > limit:
                return f"{value:,} {what}: this site's policy allows at most {limit:,}"
        return None


def references(settings: Any) -> Iterator[str]:
    """Yield everything in nested settings that names code, as `module:name` does."""
    if isinstance(settings, Mapping):
        settings = settings.values()
    if isinstance(settings, str):
        if ":" in settings:
            yield settings
    elif isinstance(settings, Iterable):
        for part in settings:
            yield from references(part)
