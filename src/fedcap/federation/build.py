"""Build what a plan names: the method, the network, and the runner of the sites' tasks; propose a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from fedcap import methods, models
from fedcap.errors import InputError, invalid
from fedcap.federation.plan import Plan
from fedcap.methods import Method
from fedcap.rng import derived_seed
from fedcap.state import Tensors
from fedcap.training import SGD, Layout, TaskRunner, fresh_network

_SGD = TypeAdapter(SGD)


@dataclass(frozen=True)
class Built:
    """The method, network and task runner of a plan."""

    method: Method[Any]
    runner: TaskRunner
    layout: Layout
    weights: Tensor
    """D: the common start."""
    first_state: Tensors
    """The client state of a site before it ever trains."""

    @classmethod
    def of(cls, plan: Plan) -> Built:
        """Build what a plan names; refuse a network of another size or layout than the plan's."""
        built = _build(
            plan.method.model_dump(),
            plan.model,
            plan.shape,
            len(plan.classes),
            plan.training,
            plan.seed,
            bool(plan.integers),
        )
        if (built.layout.size, built.layout.digest()) != (plan.weights, plan.layout):
            raise InputError(
                f"model {plan.model} has {built.layout.size:,} weights here, {plan.weights:,} in the plan, or"
                " another layout: the code of the network is of another version",
                code="other-network",
            )
        return built


def propose(
    name: str,
    method: Any,
    model: str,
    classes: Sequence[str],
    shape: Sequence[int],
    training: dict[str, Any] | None = None,
    **more: Any,
) -> Plan:
    """Return a plan with all options of its method and its training, and the size of its network.

    `more` are further entries of the plan.
    """
    table = _plain(methods.registry.canonical(method))
    sgd = _plain(asdict(_sgd(training or {})))
    seed, integers = more.get("seed", 0), bool(more.get("integers"))
    built = _build(table, model, tuple(shape), len(classes), sgd, seed, integers)
    return Plan.of(
        {
            "name": name,
            "method": table,
            "model": model,
            "classes": tuple(classes),
            "shape": tuple(shape),
            "training": sgd,
            "weights": built.layout.size,
            "layout": built.layout.digest(),
            **more,
        }
    )


def _build(
    method: dict[str, Any],
    model: str,
    shape: tuple[int, ...],
    classes: int,
    training: dict[str, Any],
    seed: int,
    integers: bool,
) -> Built:
    made = methods.registry.build(method)
    build, called = models.builder(model, shape, classes, integers), models.label(model)
    network = fresh_network(build, derived_seed(seed, "weights"), name=called)
    runner = TaskRunner(build, made, _sgd(training), seed, network.layout.size, "cpu", called, classes)
    weights = network.weights.clone()
    return Built(made, runner, network.layout, weights, made.client_init(network))


def _sgd(training: dict[str, Any]) -> SGD:
    try:
        return _SGD.validate_python(training)
    except ValidationError as error:
        raise invalid(error).prefixed("training") from None


def _plain(value: Any) -> Any:
    """Return nested options without those that have no value, tuples as lists: as TOML has them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
