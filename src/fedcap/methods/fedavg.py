"""What FedAvg, Ditto, FedRoD and FLTrust share: a server with one model, which it sends to everybody.

FedAvg: one global model, moved each round by the (weighted mean) update of the participants.

Reference: McMahan et al., AISTATS 2017. Its personal reading, the model a client has after training
locally from the global one, is FedAvg-FT (Cheng et al., "Fine-tuning is fine in federated learning").
Any aggregation rule may stand in the mean's place. Malicious clients send attacked updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from fedcap import aggregators
from fedcap.aggregators import Aggregator, Robust
from fedcap.detection import Look
from fedcap.methods.base import Choice, Dispatch, Judged, Method, Uploads, registry
from fedcap.training import Layout


@dataclass(frozen=True)
class GlobalState:
    """The server of a single model."""

    model: Tensor
    """D: the global model."""

    def moved(self, step: Tensor | None) -> GlobalState:
        """Return the state after a step, or the same if there is none to take."""
        return self if step is None else GlobalState(self.model + step)


@dataclass(frozen=True)
class GlobalModel(Method[GlobalState]):
    """A method whose server has one model for all."""

    state_type: ClassVar[type[Any]] = GlobalState

    def start(self, weights: Tensor, layout: Layout) -> GlobalState:
        """Start from the common weights."""
        return GlobalState(weights)

    def dispatch(self, state: GlobalState, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Send everybody the global model."""
        return Dispatch.to_all(ids, state.model)

    def look(self, state: GlobalState, dispatch: Dispatch, uploads: Uploads) -> Look:
        """See the updates as they were sent: all of them start at the global model already."""
        seen = super().look(state, dispatch, uploads)
        return replace(seen, reference=state.model)

    def global_model(self, state: GlobalState) -> Tensor:
        """Return the one model."""
        return state.model


FALLBACK = "median"
"""The rule for rounds that have too few rows for the one asked for: it works with any number."""


def combine(rule: Aggregator, uploads: Uploads) -> tuple[Tensor | None, Sequence[str]]:
    """Return the rule's aggregate of the rows, none if there are none, and notes.

    A round may have too few rows for the M assumed, or for the rule at all; then M is lowered, or the
    median takes the rule's place. The notes say so, and also that a rule withstands fewer than M.
    """
    rows, assumed = len(uploads), uploads.malicious
    if not rows:
        return None, ()
    notes = []
    if rule.max_malicious(rows) < 0:
        notes.append(f"{rows} rows are too few for {type(rule).__name__}: {FALLBACK} used")
        rule = aggregators.make(FALLBACK)
    told = min(assumed, rule.max_malicious(rows))
    withstood = rule.tolerates(rows, told)
    if isinstance(rule, Robust) and withstood < assumed:  # the mean promises nothing
        who = f"{type(rule).__name__}, told {told}, withstands {withstood}"
        notes.append(f"{assumed} malicious of {rows} rows assumed: {who}")
    return rule(uploads.updates, uploads.samples, told), notes


@registry.register("fedavg", "fedavg-ft")
@dataclass(frozen=True)
class FedAvg(GlobalModel):
    """One global model, the mean of all clients' (or by another rule); personal reading: FedAvg-FT."""

    rule: Choice = "mean"
    """How updates are aggregated: a rule by its name, as a table of its name and options, or an object."""

    def __post_init__(self) -> None:
        """Build the rule at once, so that mistakes in it are found early."""
        super().__post_init__()
        _ = self._rule

    @cached_property
    def _rule(self) -> Aggregator:
        return aggregators.registry.build(self.rule)

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, the rule's too."""
        return {**super().settings(), "rule": aggregators.registry.canonical(self.rule)}

    def absorb(self, state: GlobalState, judged: Judged) -> tuple[GlobalState, Sequence[str]]:
        """Move the global model by the aggregate of the updates that count."""
        step, notes = combine(self._rule, judged.staying)
        return state.moved(step), notes
