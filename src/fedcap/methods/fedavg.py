"""FedAvg: one global model, moved each round by the (weighted) mean update of the participants.

Reference: McMahan et al., AISTATS 2017. Its personal model, the one that a client has after training locally
from the global model, is FedAvg-FT (Cheng et al., "Fine-tuning is fine in federated learning"). Any
aggregation rule may replace the mean. Malicious clients send attacked updates. `GlobalModel` is the server
with one model for all clients, which Ditto, FedRoD and FLTrust share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from fedcap import aggregators
from fedcap.aggregators import Aggregator, Robust
from fedcap.detection import Batch, RoundView, Verdict
from fedcap.methods.base import Choice, Inspection, Method, Sent, registry
from fedcap.training import Layout

FALLBACK = "median"
"""The rule for rounds with too few rows for the chosen rule: it works with any number of rows."""


@dataclass(frozen=True)
class GlobalState:
    """The server of a single model."""

    model: Tensor
    """D: the global model."""

    def moved(self, step: Tensor | None) -> GlobalState:
        """Return the state after a step; without a step, the same state."""
        return self if step is None else GlobalState(self.model + step)


@dataclass(frozen=True)
class GlobalModel(Method[GlobalState]):
    """A method whose server has one model for all clients."""

    def init(self, weights: Tensor, layout: Layout) -> GlobalState:
        """Start from the common weights."""
        return GlobalState(weights)

    def send(self, state: GlobalState, ids: Tensor, requests: Mapping[int, Tensor] | None = None) -> Sent:
        """Send all clients the global model."""
        return Sent.to_all(ids, state.model)

    def view(self, state: GlobalState, sent: Sent, batch: Batch) -> RoundView:
        """Return the updates as they were sent: all of them start at the global model already."""
        return replace(super().view(state, sent, batch), reference=state.model)

    def inspect(self, state: GlobalState) -> Inspection:
        """Return the one model."""
        return Inspection(global_model=state.model)


def combine(rule: Aggregator, batch: Batch, notes: list[str]) -> Tensor | None:
    """Return the rule's aggregate of the rows; None without rows.

    A round may have too few rows for the number M of malicious rows that is assumed, or for the rule at all;
    then M is lowered, or the median replaces the rule. The notes say so, and also that a rule tolerates fewer
    than M.
    """
    rows, assumed = len(batch), batch.assumed_malicious
    if not rows:
        return None
    if rule.max_malicious(rows) < 0:
        notes.append(f"{rows} rows are too few for {type(rule).__name__}: {FALLBACK} used")
        rule = aggregators.make(FALLBACK)
    malicious = min(assumed, rule.max_malicious(rows))
    tolerated = rule.tolerates(rows, malicious)
    if isinstance(rule, Robust) and tolerated < assumed:  # the mean promises nothing
        name = f"{type(rule).__name__}, given M = {malicious}, tolerates {tolerated}"
        notes.append(f"{assumed} malicious of {rows} rows assumed: {name}")
    return rule(batch.updates, batch.samples, malicious)


@registry.register("fedavg", "fedavg-ft")
@dataclass(frozen=True)
class FedAvg(GlobalModel):
    """One global model, the mean of all clients' models (or another rule); personal model: FedAvg-FT."""

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

    def update(self, state: GlobalState, sent: Sent, view: RoundView, verdict: Verdict) -> GlobalState:
        """Move the global model by the aggregate of the updates that count."""
        return state.moved(combine(self._rule, view.counted(verdict), view.notes))
