"""The story of one run, simulated or federated, from its directory."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from fedcap.errors import plural
from fedcap.report.story.checks import checks, headlines
from fedcap.report.story.clients import Standings
from fedcap.report.story.course import course_of
from fedcap.report.story.facts import config_of, facts
from fedcap.report.story.held import Held
from fedcap.report.story.local import Local
from fedcap.report.story.paper import Said
from fedcap.report.story.series import Fact
from fedcap.report.story.story import Story
from fedcap.report.story.thinning import Thinning
from fedcap.runs import CONFIG


@dataclass(frozen=True)
class Known:
    """What is known of a run besides its directory."""

    local: Local | None = None
    standings: Standings = field(default_factory=dict)
    """What a federation's ledger says of each client."""
    said: Said | None = None
    """What the paper says of its setting."""


def run_story(held: Held, known: Known, thin: Thinning) -> Story:
    """Return the story of a run."""
    held = replace(held, others=list(known.standings))
    course = course_of(held, known.local, known.standings, thin)
    settings = {} if held.settings is None else held.settings.model_dump(mode="json")
    stopped = held.result is not None and held.result.stopped
    return Story(
        kind="federation" if held.federated else "run",
        title=_title(held, thin),
        sentence=_sentence(held),
        state="unfinished" if held.result is None else "stopped" if stopped else "finished",
        played=len(held.rounds),
        planned=held.settings.rounds if held.settings else len(held.rounds),
        headlines=headlines(held, course.clients),
        checks=[*checks(held, course.clients), *([known.said.check] if known.said else [])],
        troubles=held.troubles,
        thinned=thin.sentences,
        course=course,
        settings=facts(settings, thin),
        provenance=_provenance(held, thin),
        command=_command(held),
        config=config_of(settings),
    )


def _title(held: Held, thin: Thinning) -> str:
    settings = held.settings
    if settings is None:
        return thin.name(held.path.parent.name if held.federated else held.path.name)
    parts = [settings.method.name, thin.name(settings.dataset_name)]
    if not held.federated:
        parts.append("no attack" if settings.attack.name == "none" else settings.attack.name)
        parts.append(f"seed {settings.seed}")
    return " · ".join(parts)


def _sentence(held: Held) -> str:
    """Return what ran."""
    settings = held.settings
    if settings is None:
        if held.federated and not held.rounds:
            return "The federation has not begun."
        return f"A run of {plural(len(held.rounds), 'round')}, whose settings cannot be read."
    clients = plural(len(held.members), "site" if held.federated else "client") if held.members else ""
    attackers = (
        f", {len(held.malicious)} of them malicious ({settings.attack.name})" if held.malicious else ""
    )
    rounds = plural(settings.rounds, "round")
    if held.result is None:
        rounds = f"{len(held.rounds)} of {rounds} so far"
    elif held.result.rounds < settings.rounds:
        rounds = f"stopped after {len(held.rounds)} of {rounds}"
    what = f"The {'federation' if held.federated else 'data set'} {settings.dataset_name}"
    learnt = f"{what}, learnt by {settings.method.name}{clients and ' with '}{clients}{attackers}"
    return f"{learnt}; {rounds}, seed {settings.seed}."


def _command(held: Held) -> str:
    if held.federated:
        return f"fedcap federate serve {shlex.quote(str(held.path.parent))}"
    return f"fedcap run {shlex.quote(str(held.path / CONFIG))}"


def _provenance(held: Held, thin: Thinning) -> list[Fact]:
    known = held.provenance
    if known is None:
        return []
    told: dict[str, Any] = {
        "weights": f"{known.weights:,}",
        "malicious": list(known.malicious) or None,
        "digest": known.digest,
        "data": known.data_hash or None,
        "partition": known.partition_hash or None,
        "commit": known.commit or None,
        "threads": known.threads,
        "own code": dict(known.code) or None,
        "versions": dict(known.versions),
    }
    return facts(told, thin)
