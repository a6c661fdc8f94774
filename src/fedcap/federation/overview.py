"""What a person wants to know of a federation or a site at a glance, from the files in its directory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fedcap.errors import plural
from fedcap.federation.audit import Audit
from fedcap.federation.ledger import Entry
from fedcap.federation.lock import is_held
from fedcap.federation.operator import Operator
from fedcap.federation.site_config import SiteDirectory
from fedcap.report.tables import Table
from fedcap.runs import RoundRecord, RunDirectory

LAST = 5
"""How many events are told."""
NOT_NEWS = ("round",)
COLUMNS = ("client", "fingerprint", "state", "weight", "score", "accuracy", "round", "reason")


def clients_table(operator: Operator) -> Table:
    """Return a line for each client: who it is, what it weighs, how it scores, what became of it and why."""
    history = records(operator)
    entries = operator.ledger.entries()
    weights = last_weights(operator)
    notes = [] if entries else ["Nobody has asked to take part yet: fedcap federate approve takes a site in."]
    if any(share is not None for share in weights.values()):
        notes.append(
            "Weight: the client's mean share in the models that the others were last sent, in percent."
        )
    if history and history[-1].limits:
        limits = ", ".join(f"{name} {limit:g}" for name, limit in history[-1].limits.items() if limit)
        notes.append(
            f"Score: the last of the client's that was judged; over the limit ({limits}) it is suspected."
        )
    rows = [_row(entry, history, weights.get(entry.client)) for entry in entries.values()]
    return Table(COLUMNS, rows, notes=notes)


def _row(entry: Entry, history: list[RoundRecord], weight: float | None) -> list[Any]:
    last, client = entry.changes[-1], entry.client
    scores = [record.scores[name] for record in reversed(history) for name in _judged(record)]
    score = last.score if last.score is not None else _first(values.get(client) for values in scores)
    told = [record.accuracy.clients for record in reversed(history) if record.accuracy]
    found = _first(accuracies.get(client) for accuracies in told)
    return [
        entry.name,
        client,
        str(entry.state),
        None if weight is None else 100 * weight,
        score,
        None if found is None else max(found.personal, found.shared or 0.0),
        last.round,
        last.reason,
    ]


def _judged(record: RoundRecord) -> list[str]:
    """Return the scores of a round that have a limit, or all if none has."""
    return [name for name in record.scores if name in record.limits] or list(record.scores)


def _first(values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def records(operator: Operator) -> list[RoundRecord]:
    """Return the rounds that are done."""
    return RunDirectory(operator.run).rounds() if operator.run.exists() else []


def is_finished(operator: Operator) -> bool:
    """Whether the last round of the plan is done."""
    rounds = operator.plan.rounds
    told = any(event.event == "finished" and event.round == rounds for event in operator.audit.events())
    return told and len(records(operator)) >= rounds  # the run may be an older copy


def last_weights(operator: Operator) -> dict[str, float]:
    """Return each client's mean share in the models of the last round, where that was written down."""
    weights: dict[str, float] = {}
    for event in operator.audit.events():
        if event.event == "round":
            weights = dict(event.facts.get("weights") or {})
    return weights


def operator_status(operator: Operator) -> dict[str, Any]:
    """Return how a federation is."""
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
        "lately": recent(operator.audit),
    }


def site_status(site: SiteDirectory) -> dict[str, Any]:
    """Return how a site is."""
    config = site.config
    plans = site.plans()
    states = sorted(site.state.glob("*/round-*.safetensors"), key=lambda path: path.stat().st_mtime)
    last = None if not states else int(states[-1].stem.removeprefix("round-"))
    return {
        "site": config.name,
        "server": config.server,
        "running": is_held(site.directory),
        "last_round": last,
        "agreed_to": [
            f"{plan.name}, {plural(plan.rounds, 'round')}, {digest}" for digest, plan in plans.items()
        ],
        "lately": recent(site.audit),
    }


def recent(audit: Audit) -> list[str]:
    """Return the last events, a line each; rounds that went well are no news."""
    news = [event for event in audit.events() if event.event not in NOT_NEWS][-LAST:]
    return [f"{event.time}  {event.line()}" for event in news]
