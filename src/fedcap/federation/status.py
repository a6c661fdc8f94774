"""The status of a federation or of a site, from the files in its directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedcap.errors import plural
from fedcap.federation.audit import Audit
from fedcap.federation.config import Operator, SiteDirectory, is_held
from fedcap.federation.ledger import LedgerEntry
from fedcap.report.tables import Table
from fedcap.runs import RoundRecord, RunDirectory

RECENT_EVENTS = 5
COLUMNS = ("client", "fingerprint", "state", "weight", "score", "accuracy", "round", "reason")


def clients_table(operator: Operator) -> Table:
    """Return a row for each client: its name, state, weight, score, accuracy, and why it has this state."""
    history = records(operator)
    entries = operator.ledger.entries()
    weights = last_weights(operator)
    notes = [] if entries else ["No site has asked to join yet: fedcap federate approve admits a site."]
    if any(share is not None for share in weights.values()):
        notes.append(
            "Weight: the client's mean share in the models that the others received last, in percent."
        )
    if history and history[-1].limits:
        limits = ", ".join(f"{name} {limit:g}" for name, limit in history[-1].limits.items() if limit)
        notes.append(f"Score: the last one of the client; above the limit ({limits}) a client is suspected.")
    rows = [_row(entry, history, weights.get(entry.client)) for entry in entries.values()]
    return Table(COLUMNS, rows, notes=notes)


def _row(entry: LedgerEntry, history: Sequence[RoundRecord], weight: float | None) -> list[Any]:
    last, client = entry.changes[-1], entry.client
    score, accuracy = last.score, None
    for record in history:
        judged = [name for name in record.scores if name in record.limits] or list(record.scores)
        for name in reversed(judged) if last.score is None else ():
            score = record.scores[name].get(client, score)
        if record.accuracy and client in record.accuracy.clients:
            found = record.accuracy.clients[client]
            accuracy = max(found.personal, found.shared or 0.0)
    percent = None if weight is None else 100 * weight
    return [entry.name, client, str(entry.state), percent, score, accuracy, last.round, last.reason]


def records(operator: Operator) -> Sequence[RoundRecord]:
    """Return the rounds that are done."""
    return RunDirectory(operator.run).rounds() if operator.run.exists() else []


def is_finished(operator: Operator) -> bool:
    """Return whether the last round of the plan is done."""
    rounds = operator.plan.rounds
    noted = any(event.event == "finished" and event.round == rounds for event in operator.audit.events())
    return noted and len(records(operator)) >= rounds  # the run may be an older copy


def last_weights(operator: Operator) -> dict[str, float]:
    """Return each client's mean share in the models of the last round, where it was recorded."""
    weights: dict[str, float] = {}
    for event in operator.audit.events():
        if event.event == "round":
            weights = dict(event.facts.get("weights") or {})
    return weights


def operator_status(operator: Operator) -> dict[str, Any]:
    """Return the status of a federation."""
    plan, history = operator.plan, records(operator)
    accuracy = next((record.accuracy for record in reversed(history) if record.accuracy), None)
    states = Counter(str(entry.state) for entry in operator.ledger.entries().values())
    return {
        "federation": plan.name,
        "server": operator.federation.address,
        "running": is_held(operator.directory),
        "rounds": f"{len(history)} of {plan.rounds}",
        "method": plan.method.name,
        "accuracy": None if accuracy is None else round(accuracy.best, 1),
        "clients": ", ".join(f"{count} {state}" for state, count in states.items()) or "none yet",
        "plan": plan.digest,
        "recent_events": recent(operator.audit),
    }


def site_status(site: SiteDirectory) -> dict[str, Any]:
    """Return the status of a site."""
    config = site.config
    states = sorted(site.state.glob("*/round-*.safetensors"), key=lambda path: path.stat().st_mtime)
    return {
        "site": config.name,
        "server": config.server,
        "running": is_held(site.directory),
        "last_round": int(states[-1].stem.removeprefix("round-")) if states else None,
        "agreed_to": [
            f"{plan.name}, {plural(plan.rounds, 'round')}, {digest}" for digest, plan in site.plans().items()
        ],
        "recent_events": recent(site.audit),
    }


def recent(audit: Audit) -> list[str]:
    """Return the last events that are not closed rounds, a line each."""
    events = [event for event in audit.events() if event.event != "round"][-RECENT_EVENTS:]
    return [f"{event.time}  {event.line()}" for event in events]
