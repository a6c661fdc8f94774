"""The result of a run, in a few lines of text."""

from __future__ import annotations

from pathlib import Path

from fedcap.errors import plural
from fedcap.runs import Metrics, Result, Settings, absent_attack, always_refused, refusals
from fedcap.runs.result import DIVERGED, accuracy_line

NAMED = 3
"""How many honest clients that were removed are named."""


def summary(settings: Settings, result: Result, path: Path) -> str:
    """Return what ran, how accurate its clients are, who was removed, and where the records are."""
    attackers = [client.id for client in result.clients if client.malicious]
    attack = f"{settings.attack.name}, {len(attackers)} of {plural(len(result.clients), 'client')} malicious"
    figures = (result.tacc, result.tacc_shared, result.tacc_personal, result.tacc_worst_client)
    if not attackers:
        attack = "federation" if settings.federated else "no attack"
    lines = [
        f"{settings.dataset_name} · {settings.method.name} · {attack}"
        f" · seed {settings.seed} · {plural(result.rounds, 'round')} in {result.seconds:.1f} s",
        f"  accuracy   {accuracy_line(*figures)}",
    ]
    if result.metrics is not None:
        lines.append(f"  besides    {_measures(result.metrics)}")
    if share := (settings.model_extra or {}).get("holdout"):
        lines.append(
            f"  held out   {share:g} of the training samples, for these figures; no test samples used"
        )
    if result.stopped is not None:
        lines.append(f"  stopped    {result.stopped}")
    if settings.attack.name != "none" and not attackers:
        named = "clients" in settings.attack.options
        told = absent_attack(settings.attack.name, settings.malicious, len(result.clients), named)
        lines.append(f"  note       {told}")
    if result.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if result.fpr is not None:
        lines.append(f"  detection  {_detection(result, attackers, settings.benign)}")
    honest = [client for client in result.removed if client not in attackers]
    if honest and result.stopped is None:
        lines.append(f"  removed    {'' if settings.federated else 'honest: '}{_who(result, honest)}")
    lines += [f"  refused    {told}" for told in refusals(result.history, attackers, settings.benign)]
    lines.append(f"  records    {path}")
    return "\n".join(lines)


def _measures(metrics: Metrics) -> str:
    """Return loss and macro-F1 in a line; a loss that is not finite is shown as a dash."""
    readings = {"shared": metrics.shared, "personal": metrics.personal}
    found = {name: measures for name, measures in readings.items() if measures is not None}
    loss = ", ".join(f"{name} {_number(measures.loss, '.3f')}" for name, measures in found.items())
    f1 = ", ".join(f"{name} {_number(measures.macro_f1, '.1f')}" for name, measures in found.items())
    return f"loss {loss}; macro-F1 {f1} %"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _detection(result: Result, attackers: list[str], others: str) -> str:
    caught = sum(client in result.removed for client in attackers)
    benign = len(result.removed) - caught
    average = result.rounds_to_removal
    when = "" if average is None else f", on average in round {average:.1f}"
    found = f"{caught} of {len(attackers)} attackers removed{when}; " if attackers else ""
    if attackers and always_refused(result.history, attackers) == set(attackers):
        found = ""  # nothing of theirs was ever looked at: the line on refusals says it
    return f"{found}{plural(benign, others) if benign else f'no {others}s'} removed"


def _who(result: Result, clients: list[str]) -> str:
    """Return when and why each of these clients was removed, the first few of them."""
    told = [f"{k} in round {result.removed[k].round} ({result.removed[k].reason})" for k in clients[:NAMED]]
    more = f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
    return f"{', '.join(told)}{more}"
