"""Runs and results in a few lines of text, as a notebook or a terminal shows them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from fedcap.errors import plural

if TYPE_CHECKING:
    from fedcap.records.result import Result
    from fedcap.records.run import Run

DIVERGED = "honest clients' weights became NaN or infinite; accuracy means nothing"


def describe_result(result: Result) -> str:
    """Return what a result says: rounds, clients, accuracy, who was removed."""
    attackers = [client.id for client in result.clients if client.malicious]
    of_them = f", {len(attackers)} of them malicious" if attackers else ""
    heading = f"Result of {plural(result.rounds, 'round')} with {plural(len(result.clients), 'client')}"
    lines = [heading + of_them]
    figures = (result.tacc, result.tacc_shared, result.tacc_personal, result.tacc_worst_client)
    lines.append(f"  accuracy   {accuracy_line(*figures)}")
    if result.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if result.fpr is not None:
        lines.append(f"  detection  {_removed(result.removed, attackers, 'honest client')}")
    return "\n".join(lines)


def describe_run(run: Run) -> str:
    """Return what a run was, how far it is, how accurate its clients are, and who was removed."""
    settings, attackers = run.settings, run.provenance.malicious
    clients = plural(len(run.provenance.clients), "client")
    attack = "federation" if settings.federated else "no attack"
    if attackers:
        attack = f"{settings.attack.name}, {len(attackers)} of {clients} malicious"
    played = plural(len(run.rounds), "round")
    if run.result is None:
        played = f"{len(run.rounds)} of {plural(settings.rounds, 'round')}, unfinished"
    parts = (settings.dataset_name, settings.method.name, attack, f"seed {settings.seed}", played)
    lines = [" · ".join(parts)]
    evaluated = run.evaluated
    if evaluated is None or evaluated.accuracy is None:
        lines.append("  accuracy   not measured yet")
    else:
        found = evaluated.accuracy
        when = "" if evaluated is run.rounds[-1] else f" in round {evaluated.round}"
        figures = (found.best, found.shared, found.personal, found.worst_client)
        lines.append(f"  accuracy   {accuracy_line(*figures)}{when}")
    if run.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if run.detects:
        lines.append(f"  detection  {_removed(run.removed, attackers, settings.benign)}")
    return "\n".join([*lines, f"  records    {run.path}"])


def accuracy_line(best: float, shared: float | None, personal: float, worst: float) -> str:
    """Return the four accuracies, in percent, as one line."""
    read = "none" if shared is None else f"{shared:.1f}"
    return f"{best:.1f} %  (shared {read}, personal {personal:.1f}; worst client {worst:.1f})"


def _removed(removed: Collection[str], attackers: Collection[str], others: str) -> str:
    caught = sum(client in removed for client in attackers)
    benign = len(removed) - caught
    found = f"{caught} of {plural(len(attackers), 'attacker')} removed; " if attackers else ""
    return f"{found}{f'no {others}' if not benign else plural(benign, others)} removed"
