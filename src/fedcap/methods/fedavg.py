"""FedAvg: one global model, moved each round by the (weighted mean) update of the participants.

Reference: McMahan et al., AISTATS 2017. Its personal reading, the model a client has after training
locally from the global one, is FedAvg-FT (Cheng et al., "Fine-tuning is fine in federated learning").
Any aggregation rule may stand in the mean's place. Malicious clients send attacked updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from fedcap import aggregators
from fedcap.aggregators import Aggregator, Robust
from fedcap.methods.base import Judged, Uploads, registry
from fedcap.methods.choice import Choice
from fedcap.methods.global_model import GlobalModel, GlobalState

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
    if rule.takes(rows) < 0:
        notes.append(f"{rows} rows are too few for {type(rule).__name__}: {FALLBACK} used")
        rule = aggregators.make(FALLBACK)
    told = min(assumed, rule.takes(rows))
    withstood = rule.withstands(rows, told)
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
