"""The report on one run, simulated or federated, from the files in its directory.

`RunFiles` holds everything that can be read, also of a run that is damaged, unfinished or still being
written. `run_report` turns it into a `Report`: the series over rounds, the events, the clients, the checks.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedcap.errors import InputError, plural
from fedcap.registry import spelling
from fedcap.report.checks import BY_OPERATOR, key_figures, run_checks
from fedcap.report.mixing import MAX_ROWS, mixing_map
from fedcap.report.model import (
    AccuracyCurves,
    AttackCurves,
    ClassAccuracy,
    Client,
    Costs,
    Event,
    EventKind,
    Fact,
    LocalCurve,
    MixingMap,
    Report,
    RunData,
    ScoreCurves,
    Spread,
)
from fedcap.report.pack import SizeLimit
from fedcap.report.tables import MEASURES
from fedcap.runs import (
    CONFIG,
    MIXING,
    PROVENANCE,
    RESULT,
    Accuracy,
    Measures,
    Mixing,
    Provenance,
    Reason,
    Removal,
    Result,
    RoundRecord,
    RunDirectory,
    Settings,
    recorded_clients,
    removals,
    to_toml,
)

T = TypeVar("T")

LOCAL = "local"
"""The method in which each client trains alone."""
BY_HAND = "by hand"
"""The score in the record of a removal that the operator decided."""
MAX_EVENTS = 600
"""How many events other than removals are listed; removals are always listed."""
_LIMITED = re.compile(r"claims (\d+) samples, counted as (\d+)")


@dataclass(frozen=True)
class RunFiles:
    """Everything that can be read in a run's directory."""

    path: Path
    settings: Settings | None = None
    provenance: Provenance | None = None
    rounds: Sequence[RoundRecord] = ()
    """The rounds before the first record that is missing or damaged."""
    result: Result | None = None
    problems: Sequence[str] = ()
    """What could not be read, a line each."""
    in_federation: bool = False
    """Whether it is in the directory of a federation's operator."""

    @classmethod
    def read(cls, path: Path, in_federation: bool = False) -> RunFiles:
        """Read every file that can be read."""
        directory, problems = RunDirectory(path), list[str]()

        def attempt(read: Callable[[], T | None]) -> T | None:
            try:
                return read()
            except InputError as error:
                problems.append(str(error))
                return None

        settings = attempt(directory.settings)
        provenance = attempt(directory.provenance)
        if settings and provenance and provenance.of(settings.digest()) is None:
            problems.append(f"{CONFIG} was changed since the run began: {PROVENANCE} has another digest")
        rounds: list[RoundRecord] = []
        has_result = (path / RESULT).exists()  # checked first: the last round may be written meanwhile
        try:
            for record in directory.each_round(provenance.course if provenance else None):
                rounds.append(record)
            result = directory.result(rounds) if provenance and has_result else None
        except InputError as error:
            result = None
            problems.append(f"{error} (the page shows the {plural(len(rounds), 'round')} before that)")
        if rounds:
            missing = [name for name in (CONFIG, PROVENANCE) if not (path / name).exists()]
            problems += [f"{path / name} is missing" for name in missing]
        return cls(path, settings, provenance, rounds, result, problems, in_federation)

    @cached_property
    def clients(self) -> Sequence[str]:
        """The clients of the run: those at its start, then those that joined later.

        Of many clients, those that a record names.
        """
        first = self.provenance.clients if self.provenance else ()
        known = dict.fromkeys(recorded_clients(self.rounds, first))
        for record in self.rounds:
            tested = record.accuracy.clients if record.accuracy else ()
            for names in (record.participants, tested, record.refused, record.removed):
                known |= dict.fromkeys(names)
        return list(known)

    @cached_property
    def malicious(self) -> frozenset[str]:
        """The clients that are known to be malicious."""
        return frozenset(self.provenance.malicious if self.provenance else ())

    @property
    def federated(self) -> bool:
        """Whether the clients are sites of a federation, of which it is not known which are honest."""
        return self.in_federation or (self.settings is not None and self.settings.federated)

    @cached_property
    def removed(self) -> Mapping[str, Removal]:
        """The clients that were removed, when and why."""
        return removals(self.rounds)

    @property
    def detects(self) -> bool:
        """Whether the server looks for malicious clients."""
        if self.result is not None:
            return self.result.fpr is not None
        return any(record.limits for record in self.rounds)

    @cached_property
    def last_mixing(self) -> Mixing | None:
        """The mixing weights of the last round in which models were mixed."""
        mixed = [record.round for record in self.rounds if record.weights_entropy is not None]
        return next(iter(self.mixings(mixed[-1:])), None)

    def mixings(self, rounds: Collection[int]) -> list[Mixing]:
        """Return the mixing weights of these rounds, as far as they can be read."""
        with suppress(InputError):  # the page says that they are missing
            return RunDirectory(self.path).mixings(rounds)
        return []

    @property
    def evaluated(self) -> RoundRecord | None:
        """The last evaluated round."""
        return next((record for record in reversed(self.rounds) if record.accuracy is not None), None)


@dataclass(frozen=True)
class Standing:
    """What a federation's ledger says about a client."""

    name: str
    state: str
    reason: str = ""
    by_operator: bool = False
    """Whether the operator decided the last change."""
    round: int | None = None
    """The number of finished rounds at the last change."""


Standings = Mapping[str, Standing]
"""By identity; empty for a run outside a federation."""


def read_local(path: Path, run: RunFiles) -> RunData:
    """Read the run of the method `local` to compare another run with; refuse any other run."""
    files = RunFiles.read(path)
    if files.settings is None or files.settings.method.name != LOCAL:
        raise InputError(f"{path} is not a run of the method local", code="other-run")
    if files.evaluated is None or files.provenance is None:
        raise InputError(f"{path} has no accuracy yet: use a run that was evaluated", code="not-evaluated")
    if run.provenance and run.provenance.partition_hash != files.provenance.partition_hash:
        raise InputError(
            f"{path} has other data or another partition: use the same data set and seed", code="other-data"
        )
    return _run_data(files, None, {}, SizeLimit())


def run_report(
    files: RunFiles, limit: SizeLimit, local: RunData | None = None, standings: Standings | None = None
) -> Report:
    """Return the report on a run; `local` is the run in which each client trains alone, if there is one."""
    data = _run_data(files, local, standings or {}, limit)
    settings = {} if files.settings is None else files.settings.model_dump(mode="json")
    stopped = files.result is not None and files.result.stopped
    return Report(
        kind="federation" if files.federated else "run",
        title=_title(files, limit),
        summary=_summary(files),
        state="unfinished" if files.result is None else "stopped" if stopped else "finished",
        done=len(files.rounds),
        planned=files.settings.rounds if files.settings else len(files.rounds),
        figures=key_figures(files, data.clients),
        checks=run_checks(files, data.clients),
        problems=files.problems,
        omitted=limit.notes,
        run=data,
        settings=_facts(settings, limit),
        provenance=_provenance(files, limit),
        command=_command(files),
        config=to_toml(_without_none(settings)),
    )


def run_name(settings: Settings) -> list[str]:
    """Return the method, the attack and the seed of a run, as a title has them."""
    attack = "no attack" if settings.attack.name == "none" else settings.attack.name
    return [settings.method.name, settings.dataset_name, attack, f"seed {settings.seed}"]


def _title(files: RunFiles, limit: SizeLimit) -> str:
    if files.settings is None:
        return limit.name(files.path.parent.name if files.federated else files.path.name)
    parts = run_name(files.settings)
    return " · ".join(map(limit.name, parts[:2] if files.federated else parts))


def _summary(files: RunFiles) -> str:
    settings = files.settings
    if settings is None:
        if files.federated and not files.rounds:
            return "The federation has not begun."
        return f"A run of {plural(len(files.rounds), 'round')}, whose settings cannot be read."
    clients = malicious = ""
    if files.clients:
        clients = f" with {plural(len(files.clients), 'site' if files.federated else 'client')}"
    if files.malicious:
        malicious = f", {len(files.malicious)} of them malicious (attack {settings.attack.name})"
    rounds = plural(settings.rounds, "round")
    if files.result is None:
        rounds = f"{len(files.rounds)} of {rounds} so far"
    elif files.result.rounds < settings.rounds:
        rounds = f"stopped after {len(files.rounds)} of {rounds}"
    what = f"the {'federation' if files.federated else 'data set'} {settings.dataset_name}"
    return f"Method {settings.method.name} on {what}{clients}{malicious}: {rounds}, seed {settings.seed}."


def _command(files: RunFiles) -> str:
    if files.federated:
        return f"fedcap federate serve {shlex.quote(str(files.path.parent))}"
    return f"fedcap run {shlex.quote(str(files.path / CONFIG))}"


def _provenance(files: RunFiles, limit: SizeLimit) -> list[Fact]:
    known = files.provenance
    if known is None:
        return []
    entries: dict[str, Any] = {
        "weights": f"{known.weights:,}",
        "malicious clients": list(known.malicious) or None,
        "digest of the settings": known.digest,
        "hash of the data": known.data_hash or None,
        "hash of the partition": known.partition_hash or None,
        "commit": known.commit or None,
        "threads": known.threads,
        "custom code": dict(known.code) or None,
        "versions": dict(known.versions),
    }
    return _facts(entries, limit)


def _facts(content: Mapping[str, Any], limit: SizeLimit, prefix: str = "") -> list[Fact]:
    """Return nested settings as names with dots and values as text."""
    facts = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            facts += _facts(value, limit, f"{prefix}{key}.")
        elif value is not None:
            facts.append(Fact(limit.name(f"{prefix}{key}"), limit.text(_text(value))))
    return facts


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return spelling(value) if isinstance(value, Mapping) else str(value)


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value if item is not None] if isinstance(value, list) else value


def _run_data(files: RunFiles, local: RunData | None, standings: Standings, limit: SizeLimit) -> RunData:
    clients = list(dict.fromkeys([*files.clients, *standings]))
    alone = None if local is None else local.accuracy
    return RunData(
        clients=_clients(files, clients, _alone(files, local), standings, limit),
        accuracy=_accuracy(files, clients, limit),
        local=None if alone is None else LocalCurve(alone.rounds, alone.personal.mean),
        scores=_scores(files, clients, limit),
        events=_events(files, clients, standings, limit),
        attack=_attack(files, limit),
        mixing=_mixing(files, clients, limit),
        costs=_costs(files, limit),
        classes=_classes(files),
        measures=_overall_measures(files),
    )


def _alone(files: RunFiles, local: RunData | None) -> dict[str, float]:
    """Return the accuracy of each client that trains alone, in the last evaluated round of this run."""
    curves, last = None if local is None else local.accuracy, files.evaluated
    if local is None or curves is None or last is None or last.round not in curves.rounds:
        return {}
    values = curves.personal.clients[:, list(curves.rounds).index(last.round)].tolist()
    names = [client.name for client in local.clients]
    return {name: value for name, value in zip(names, values, strict=True) if not math.isnan(value)}


def _clients(
    files: RunFiles,
    clients: Sequence[str],
    alone: Mapping[str, float],
    standings: Standings,
    limit: SizeLimit,
) -> list[Client]:
    """Return a row per client; sites of the ledger that never took part are last."""
    tested = files.evaluated.accuracy.clients if files.evaluated and files.evaluated.accuracy else {}
    took_part = Counter(client for record in files.rounds for client in record.participants)
    not_counted = Counter(client for record in files.rounds for client in record.refused)
    samples = {client: count for record in files.rounds for client, count in record.samples.items()}
    suspected = files.rounds[-1].suspected if files.rounds else {}
    shares = _last_shares(files)
    rows = []
    for client in clients:
        out, standing = files.removed.get(client), standings.get(client)
        shared, personal = (
            (tested[client].shared, tested[client].personal) if client in tested else (None, None)
        )
        state = "removed" if out else "suspected" if client in suspected else "active"
        state = standing.state if standing else state
        reason = _why(out) if out else str(suspected[client]) if client in suspected else ""
        if standing and standing.reason:
            reason = f"{BY_OPERATOR}{standing.reason}" if standing.by_operator else standing.reason
        when = out.round if out else standing.round if standing else None
        name = limit.name(standing.name if standing else client)
        own = alone.get(name)
        rows.append(
            Client(
                name=name,
                role="site" if files.federated else "malicious" if client in files.malicious else "honest",
                state=state,
                samples=samples.get(client),
                shared=shared,
                personal=personal,
                local=own,
                gain=None if personal is None or own is None else round(personal - own, 1) + 0.0,
                share=100 * shares[client] if client in shares else None,
                rounds=took_part[client],
                not_counted=not_counted[client],
                removed=when if state == "removed" else None,
                reason=limit.text(reason),
                identity=client if standing else "",
                **_client_measures(files, client),
            )
        )
    return rows


def _why(removal: Removal | Reason) -> str:
    sentence = removal.reason if isinstance(removal, Removal) else removal.sentence
    return f"{BY_OPERATOR}{sentence}" if removal.score == BY_HAND else sentence


def _last_shares(files: RunFiles) -> Mapping[str, float]:
    """Return the mean share of each client in the models that were last sent, if those were mixed."""
    mixing = files.last_mixing
    if mixing is None:
        return {}
    return dict(zip(mixing.contributors, mixing.weights.mean(axis=0).tolist(), strict=True))


def _accuracy(files: RunFiles, clients: Sequence[str], limit: SizeLimit) -> AccuracyCurves | None:
    measured = [(record.round, record.accuracy) for record in files.rounds if record.accuracy is not None]
    if not measured:
        return None
    points = limit.rounds("Accuracy", measured, len(clients))
    found = [accuracy for _, accuracy in points]
    return AccuracyCurves(
        [number for number, _ in points],
        _spread(clients, found, "shared") if any(one.shared is not None for one in found) else None,
        _spread(clients, found, "personal"),
    )


def _spread(clients: Sequence[str], found: Sequence[Accuracy], reading: str) -> Spread:
    values = np.full((len(clients), len(found)), np.nan)
    for column, accuracy in enumerate(found):
        for row, client in enumerate(clients):
            if (own := accuracy.clients.get(client)) is not None:
                value = getattr(own, reading)
                values[row, column] = np.nan if value is None else value
    known = [column[np.isfinite(column)] for column in values.T]
    return Spread(
        mean=[_rounded(getattr(accuracy, reading)) for accuracy in found],
        worst=[_rounded(float(column.min())) if column.size else None for column in known],
        best=[_rounded(float(column.max())) if column.size else None for column in known],
        clients=values,
    )


def _scores(files: RunFiles, clients: Sequence[str], limit: SizeLimit) -> list[ScoreCurves]:
    names = dict.fromkeys(name for record in files.rounds for name in record.scores)
    curves = []
    for name in names:
        scored = [record for record in files.rounds if name in record.scores]
        records = limit.rounds(f"Scores ({limit.name(name)})", scored, len(names) * len(clients))
        values = np.array(
            [[record.scores[name].get(client) for record in records] for client in clients], dtype=float
        )
        limits = [record.limits.get(name) for record in records]
        curves.append(ScoreCurves(limit.name(name), [record.round for record in records], limits, values))
    return curves


def _events(files: RunFiles, clients: Sequence[str], standings: Standings, limit: SizeLimit) -> list[Event]:
    """Return all removals, and as many other events as the limit allows.

    The same thing in several rounds is one event: an update that is not counted for the same reason, and a
    sample count that the server limits.
    """
    place = {client: at for at, client in enumerate(clients)}
    events: dict[tuple[object, ...], Event] = {}
    for number, client, kind, reason in [*_each_event(files.rounds), *_by_ledger(files, standings)]:
        if client not in place:
            continue
        repeats = {"suspected": number, "limited": ""}.get(kind, reason)
        key = (client, kind, repeats)
        first = events[key] if key in events else Event(number, place[client], kind, "", number, 0)
        events[key] = replace(first, reason=limit.text(reason), last=number, count=first.count + 1)
    others = [event for event in events.values() if event.kind != "removed"]
    if len(others) > MAX_EVENTS:
        limit.note(f"Events other than removals: the first {MAX_EVENTS} of {len(others):,} are listed.")
    listed = set(map(id, others[:MAX_EVENTS]))
    return [event for event in events.values() if event.kind == "removed" or id(event) in listed]


def _each_event(rounds: Sequence[RoundRecord]) -> Iterator[tuple[int, str, EventKind, str]]:
    """Yield (round, client, kind, reason); a removed or suspected client is not listed as not counted too."""
    for record in rounds:
        for client, why in record.removed.items():
            yield record.round, client, "removed", _why(why)
        for client, why in record.suspected.items():
            yield record.round, client, "suspected", str(why)
        for client, fault in record.refused.items():
            if client not in record.removed and client not in record.suspected:
                yield record.round, client, "not counted", fault
        for client, fault in record.bounded.items():
            yield (
                record.round,
                client,
                "limited",
                _LIMITED.sub(r"sample count limited to \2 (reported: \1)", fault),
            )
        for client in record.diverged:
            yield record.round, client, "diverged", "weights are not finite"


def _by_ledger(files: RunFiles, standings: Standings) -> Iterator[tuple[int, str, EventKind, str]]:
    """Yield the removals by the operator that no round records yet."""
    for client, standing in standings.items():
        if standing.state == "removed" and client not in files.removed:
            who = BY_OPERATOR if standing.by_operator else ""
            yield standing.round or len(files.rounds), client, "removed", f"{who}{standing.reason}"


def _attack(files: RunFiles, limit: SizeLimit) -> AttackCurves | None:
    found = [(record.round, record.attack) for record in files.rounds if record.attack is not None]
    if not found:
        return None
    points = limit.rounds("The attack", found)
    return AttackCurves(
        [number for number, _ in points],
        [sent.length for _, sent in points],
        [sent.benign_length for _, sent in points],
        [sent.cosine for _, sent in points],
    )


def _mixing(files: RunFiles, clients: Sequence[str], limit: SizeLimit) -> MixingMap | None:
    entropies = {record.round: record.weights_entropy for record in files.rounds}
    mixed = [number for number, entropy in entropies.items() if entropy is not None]
    if not mixed:
        return None
    rows = min(len(clients), MAX_ROWS)
    wanted = set(limit.rounds("Mixing weights", mixed, rows * rows))
    found = files.mixings(wanted)
    if len(found) < len(wanted):
        missing = plural(len(wanted) - len(found), "round")
        limit.note(f"Mixing weights of {missing} cannot be read from {MIXING}.")
    return mixing_map(found, clients, entropies, limit)


def _costs(files: RunFiles, limit: SizeLimit) -> Costs | None:
    if not files.rounds:
        return None
    records = limit.rounds("Costs", files.rounds)
    parts = ("train", "evaluate", "attack", "server", "total")
    return Costs(
        rounds=[record.round for record in records],
        bytes=[float(record.bytes) for record in records],
        **{part: [_rounded(getattr(record.seconds, part), 4) for record in records] for part in parts},
    )


def _classes(files: RunFiles) -> list[ClassAccuracy]:
    better = _better(files)
    if better is None:
        return []
    return [ClassAccuracy(name, _rounded(value)) for name, value in better.per_class.items()]


def _better(files: RunFiles) -> Measures | None:
    """Return the measures of the last round in the better reading."""
    result = files.result
    if result is None or result.metrics is None:
        return None
    better = result.metrics.shared
    if better is None or result.tacc_shared is None or result.tacc_shared <= result.tacc_personal:
        better = result.metrics.personal
    return better


def _overall_measures(files: RunFiles) -> list[Fact]:
    better = _better(files)
    found = {name: getattr(better, field, None) for name, field in MEASURES.items()}
    return [Fact(name, f"{value:.1f} %") for name, value in found.items() if value is not None]


def _client_measures(files: RunFiles, client: str) -> dict[str, Any]:
    """Return the number of test samples and the measures of one client; empty if they were not recorded."""
    last = files.rounds[-1] if files.rounds else None
    if last is None or last.accuracy is None or last.tallies is None or client not in last.tallies.clients:
        return {}
    tested = last.tallies.clients[client]
    measures = tested.shared if last.accuracy.reading == "shared" else tested.personal
    found = {name: _rounded(getattr(measures, name)) for name in MEASURES.values()}
    return {"tested": tested.samples, **found}


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)
