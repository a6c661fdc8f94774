"""The result of a run, in a few lines of text."""

from __future__ import annotations

from pathlib import Path

from fedcap.records import Result, Settings
from fedcap.words import plural


def summary(settings: Settings, result: Result, path: Path) -> str:
    """Return what ran, how accurate its clients are, who was removed, and where the records are."""
    attackers = [client.id for client in result.clients if client.malicious]
    attack = f"{settings.attack.name}, {len(attackers)} of {plural(len(result.clients), 'client')} malicious"
    lines = [
        f"{settings.dataset_name} · {settings.method.name} · {attack if attackers else 'no attack'}"
        f" · seed {settings.seed} · {plural(result.rounds, 'round')} in {result.seconds:.1f} s",
        f"  accuracy   {_accuracy(result)}",
    ]
    if result.diverged:
        lines.append("  diverged   honest clients' weights became NaN or infinite; accuracy means nothing")
    if result.fpr is not None:
        lines.append(f"  detection  {_detection(result, attackers)}")
    lines.append(f"  records    {path}")
    return "\n".join(lines)


def _accuracy(result: Result) -> str:
    shared = "none" if result.tacc_shared is None else f"{result.tacc_shared:.1f}"
    return (
        f"{result.tacc:.1f} %  (shared {shared}, personal {result.tacc_personal:.1f};"
        f" worst client {result.tacc_worst_client:.1f})"
    )


def _detection(result: Result, attackers: list[str]) -> str:
    caught = sum(client in result.removed for client in attackers)
    benign = len(result.removed) - caught
    average = result.rounds_to_removal
    when = "" if average is None else f", on average in round {average:.1f}"
    found = f"{caught} of {len(attackers)} attackers removed{when}; " if attackers else ""
    return f"{found}{plural(benign, 'honest client') if benign else 'no honest clients'} removed"
