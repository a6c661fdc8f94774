"""The story of a run of which nothing but its outcome is kept."""

from __future__ import annotations

import numpy as np

from fedcap.errors import duration, plural
from fedcap.report.story.checks import over_the_wire, readings
from fedcap.report.story.clients import gain_over
from fedcap.report.story.facts import config_of, facts
from fedcap.report.story.local import Local
from fedcap.report.story.run import Known
from fedcap.report.story.series import AccuracyCurves, Client, Course, Event, Spread
from fedcap.report.story.story import Check, Headline, Story
from fedcap.report.story.thinning import Thinning
from fedcap.runs import Outcome, Settings


def outcome_story(outcome: Outcome, settings: Settings, known: Known, thin: Thinning) -> Story:
    """Return what an outcome tells."""
    thin.say("Of runs whose outcome alone is kept, there are no scores, mixing weights or curves of clients.")
    attack = "no attack" if settings.attack.name == "none" else settings.attack.name
    dataset = thin.name(settings.dataset_name)
    attackers = sum(client.malicious for client in outcome.clients)
    clients = f" with {plural(len(outcome.clients), 'client')}" if outcome.clients else ""
    malicious = f", {attackers} of them malicious ({attack})" if attackers else ""
    return Story(
        kind="run",
        title=f"{settings.method.name} · {dataset} · {attack} · seed {settings.seed}",
        sentence=f"The data set {dataset}, learnt by {settings.method.name}{clients}{malicious};"
        f" {plural(outcome.rounds, 'round')}, seed {settings.seed}.",
        state="finished" if outcome.stopped is None else "stopped",
        played=outcome.rounds,
        planned=settings.rounds,
        headlines=_headlines(outcome),
        checks=[*_checks(outcome), *([known.said.check] if known.said else [])],
        thinned=thin.sentences,
        course=_course(outcome, known.local, thin),
        settings=facts(outcome.settings, thin),
        provenance=facts(outcome.provenance, thin),
        command="fedcap run config.toml",
        config=config_of(outcome.settings),
    )


def _headlines(outcome: Outcome) -> list[Headline]:
    words = f"In the last round, {readings(outcome.tacc_shared, outcome.tacc_personal)}."
    sent = over_the_wire(outcome.bytes_per_round)
    return [
        Headline(f"{outcome.tacc:.1f} %", "accuracy", words),
        Headline(f"{outcome.tacc_worst_client:.1f} %", "worst client", "Of the one that fares worst."),
        Headline(duration(outcome.seconds), "time", f"For {plural(outcome.rounds, 'round')}; {sent}."),
    ]


def _checks(outcome: Outcome) -> list[Check]:
    kept = Check("none", "Honest clients kept", "Nobody is looked for, so nobody is removed.")
    if outcome.fpr is not None:
        words = f"{outcome.fpr:.1f} % of them were removed." if outcome.fpr else "All of them."
        kept = Check("bad" if outcome.fpr else "ok", kept.name, words)
    found = Check("none", "Attackers found", "There are none to find, or nobody looks for them.")
    if outcome.fnr is not None:
        words = f"{outcome.fnr:.1f} % of them were not removed." if outcome.fnr else "All were removed."
        found = Check("warn" if outcome.fnr else "ok", found.name, words)
    lost = "Weights of honest clients became NaN or infinite; accuracy means nothing."
    words = lost if outcome.diverged else "All weights of honest clients stayed finite."
    stopped = [Check("bad", "Stopped", outcome.stopped)] if outcome.stopped else []
    return [*stopped, kept, found, Check("bad" if outcome.diverged else "ok", "Nobody diverged", words)]


def _course(outcome: Outcome, local: Local | None, thin: Thinning) -> Course:
    curve = outcome.curve
    nothing = np.full((len(outcome.clients), 0), np.nan)
    none = [None] * len(curve.rounds)
    spreads = [Spread(list(mean), none, none, nothing) for mean in (curve.shared, curve.personal)]
    shares = any(value is not None for value in curve.shared)
    alone = local.accuracy if local else {}
    clients, events = [], []
    for at, client in enumerate(outcome.clients):
        if client.removed is not None:
            events.append(Event(client.removed, at, "removed", ""))
        clients.append(
            Client(
                name=thin.name(client.id),
                role="attacker" if client.malicious else "honest",
                state="kept" if client.removed is None else "removed",
                shared=client.shared,
                personal=client.personal,
                local=alone.get(client.id),
                gain=gain_over(alone.get(client.id), client.shared, client.personal),
                share=None,
                rounds=outcome.rounds,
                refused=0,
                removed=client.removed,
                reason="",
            )
        )
    return Course(
        clients=clients,
        accuracy=AccuracyCurves(list(curve.rounds), spreads[0] if shares else None, spreads[1]),
        local=local.curve if local else None,
        scores=[],
        events=events,
        attack=None,
        mixing=None,
        costs=None,
    )
