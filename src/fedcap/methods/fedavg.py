"""FedAvg: one global model, moved each round by the (weighted mean) update of the participants.

Reference: McMahan et al., AISTATS 2017. Its personal reading, the model a client has after training
locally from the global one, is FedAvg-FT (Cheng et al., "Fine-tuning is fine in federated learning").
Any aggregation rule may stand in the mean's place. Malicious clients send attacked updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from fedcap import aggregators
from fedcap.aggregators import Aggregator, Robust
from fedcap.methods.base import Dispatch, Uploads, Verdict, drop_non_finite, norms_by_client, registry
from fedcap.methods.global_model import GlobalModel, GlobalState

FALLBACK = "median"
"""The rule for rounds that have too few rows for the one asked for: it works with any number."""


def combine(rule: Aggregator, uploads: Uploads) -> tuple[Tensor | None, Verdict]:
    """Return the rule's aggregate of the finite rows, none if there are none, and what was found.

    A round may have too few rows for the M assumed, or for the rule at all; then M is lowered, or the
    median takes the rule's place. The verdict says so, and also that a rule withstands fewer than M.
    """
    norms = norms_by_client(uploads.ids, uploads.updates)
    uploads, refused = drop_non_finite(uploads)
    rows, assumed = len(uploads), uploads.malicious
    if not rows:
        return None, Verdict(norms, refused)
    notes = []
    if rule.takes(rows) < 0:
        notes.append(f"{rows} rows are too few for {type(rule).__name__}: {FALLBACK} used")
        rule = aggregators.make(FALLBACK)
    told = min(assumed, rule.takes(rows))
    withstood = rule.withstands(rows, told)
    if isinstance(rule, Robust) and withstood < assumed:  # the mean promises nothing
        who = f"{type(rule).__name__}, told {told}, withstands {withstood}"
        notes.append(f"{assumed} malicious of {rows} rows assumed: {who}")
    return rule(uploads.updates, uploads.samples, told), Verdict(norms, refused, notes=notes)


@registry.register("fedavg", "fedavg-ft")
@dataclass(frozen=True)
class FedAvg(GlobalModel):
    """One global model, the mean of all clients' (or by another rule); personal reading: FedAvg-FT."""

    rule: str | dict[str, Any] = "mean"
    """How updates are aggregated: the name of a rule, or a table of its name and options."""

    def __post_init__(self) -> None:
        _ = self._rule

    @cached_property
    def _rule(self) -> Aggregator:
        return aggregators.registry.build(self.rule)

    def aggregate(
        self, state: GlobalState, dispatch: Dispatch, uploads: Uploads
    ) -> tuple[GlobalState, Verdict]:
        """Move the global model by the aggregate of the finite updates."""
        step, verdict = combine(self._rule, uploads)
        return state.moved(step), verdict
