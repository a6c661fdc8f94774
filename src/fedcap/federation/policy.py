"""policy.toml: what a site agrees to. What it does not agree to is refused in one line, and nothing is done.

The policy bounds what any plan may ask; which plans the site takes part in is for its people to say, plan by
plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedcap.errors import InputError, validation_message
from fedcap.federation.commented import commented
from fedcap.federation.messages import Order
from fedcap.federation.plan import Plan
from fedcap.registry import plain
from fedcap.runs import read_toml

Most = Annotated[int, Field(ge=0)]


class Policy(BaseModel):
    """The bounds of one site."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    methods: tuple[str, ...] | None = None
    """The methods that the site takes part in; if not given, all that come with fedcap."""
    code: tuple[str, ...] = ()
    """Code of one's own, as `module:name`, that a plan may name; the site runs no other."""
    weights: Most = 100_000_000
    """The most weights of a network."""
    epochs: Most = 50
    """The most epochs of training in a round."""
    rounds: Most = 10_000
    """The most rounds of a plan."""
    bytes: Most = 2_000_000_000
    """The most bytes of the models in one order."""
    accuracy: bool = True
    """Whether the site tells how many of its test samples are answered rightly."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a policy; without a file the site agrees to nothing."""
        if not path.exists():
            raise InputError(f"there is no {path.name}: without it the site agrees to nothing")
        try:
            return cls.model_validate(read_toml(path))
        except ValidationError as error:
            raise InputError(f"{path}: {validation_message(error)}") from None

    def text(self) -> str:
        """Return the content of the file, with a note at each entry."""
        return commented(
            self, "What this site agrees to; the rest is refused. It is read anew for every order."
        )

    def objection(self, plan: Plan) -> str | None:
        """Return why the site does not take part in a plan; none if it does."""
        for name in sorted(set(references(plan.model_dump(include={"method", "model"})))):
            if name not in self.code:
                return f"the plan names code of one's own, {name}, which this site's policy does not"
        if self.methods is not None and plain(plan.method.name) not in map(plain, self.methods):
            allowed = ", ".join(self.methods) or "none"
            return f"method {plan.method.name}: this site's policy has {allowed}"
        epochs = plan.training.get("epochs")
        if type(epochs) is not int:
            return "the plan does not say how many epochs a round has"
        for asked, most, what in (
            (plan.weights, self.weights, "weights"),
            (epochs, self.epochs, "epochs a round"),
            (plan.rounds, self.rounds, "rounds"),
        ):
            if asked > most:
                return f"{asked:,} {what}: this site's policy has at most {most:,}"
        return None

    def objection_to(self, order: Order) -> str | None:
        """Return why the site does not do what is asked; none if it does."""
        if order.models.nbytes > self.bytes:
            return f"{order.models.nbytes:,} bytes of models: this site's policy has at most {self.bytes:,}"
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
