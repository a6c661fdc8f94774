"""Stories made by hand, small and exact, for tests of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedcap.report.story.series import (
    AccuracyCurves,
    AttackCurves,
    Client,
    Costs,
    Course,
    Event,
    Fact,
    LocalCurve,
    MixingMap,
    ScoreCurves,
    Spread,
)
from fedcap.report.story.story import Check, Field, Headline, Map, Panel, Story

HOSTILE = ("</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "=1+1", "a&amp;b")


def a_run(
    clients: int = 8, rounds: int = 5, names: Sequence[str] = (), reason: str = "norm 9 over 6"
) -> Story:
    """A run in which the last quarter of the clients attacks, and is removed in round 2."""
    rng = np.random.default_rng(clients)
    bad = range(clients - clients // 4, clients)
    called = [*names, *(f"c{i}" for i in range(len(names), clients))]
    numbers = list(range(1, rounds + 1))
    accuracies = np.round(rng.uniform(60, 99, (clients, rounds)), 1)
    accuracies[bad] = np.nan
    honest = accuracies[: bad.start]
    spread = Spread([*honest.mean(0)], [*honest.min(0)], [*honest.max(0)], accuracies)
    scores = rng.uniform(1, 5, (clients, rounds))
    scores[bad] += 4
    scores[bad, 2:] = np.nan
    weights = rng.uniform(0.01, 1, (rounds, clients, clients))
    weights[2:, bad], weights[2:, :, bad] = np.nan, np.nan
    weights /= np.nansum(weights, axis=2, keepdims=True).clip(1e-9)
    removed = [Event(2, client, "removed", reason) for client in bad if rounds > 1]
    lines = [
        Client(
            name=called[i],
            role="attacker" if i in bad else "honest",
            state="removed" if i in bad else "kept",
            shared=None if i in bad else float(accuracies[i, -1]),
            personal=None if i in bad else float(accuracies[i, -1]),
            local=None if i in bad else 80.0,
            gain=None if i in bad else float(accuracies[i, -1]) - 80.0,
            share=100.0 / clients,
            rounds=2 if i in bad else rounds,
            refused=0,
            removed=2 if i in bad else None,
            reason=reason if i in bad else "",
        )
        for i in range(clients)
    ]
    ones = [1.0] * rounds
    course = Course(
        clients=lines,
        accuracy=AccuracyCurves(numbers, spread, spread),
        local=LocalCurve(numbers, [80.0] * rounds, "Each client alone."),
        scores=[
            ScoreCurves("norm", numbers, [6.0] * rounds, scores),
            ScoreCurves("direction", numbers, [0.5 + 0.1 * i for i in range(rounds)], scores / 10),
        ],
        events=removed,
        attack=AttackCurves(numbers[:2], [9.0, 8.0][:rounds], [2.0, 2.0][:rounds], [-1.0, 0.5][:rounds]),
        mixing=MixingMap(numbers, [[i] for i in range(clients)], weights, ones),
        costs=Costs(numbers, ones, ones, [0.0] * rounds, ones, [3.5] * rounds, [1e6] * rounds),
        classes=[Fact("zero", "97.0"), Fact("one", "12.5")],
    )
    return Story(
        kind="run",
        title="fedcap · digits",
        sentence="What ran.",
        state="finished",
        played=rounds,
        planned=rounds,
        headlines=[Headline("97.2 %", "accuracy", "Of all samples.")],
        checks=[
            Check("ok", "Honest clients kept", "All of them."),
            Check("bad", "Worst client", "It is lost."),
        ],
        thinned=["Weights are kept to a byte."],
        course=course,
        settings=[Fact("rounds", str(rounds))],
        provenance=[Fact("torch", "2")],
        command="fedcap run config.toml",
        config='name = "fedcap"\n',
    )


def a_grid(
    methods: Sequence[str] = ("fedavg", "fedcap"), attacks: Sequence[str] = ("no attack", "ipm")
) -> Story:
    """A grid of two seeds; the last method has not finished under the last attack."""
    cells: list[Story] = []
    fields = []
    for method in methods:
        line = []
        for attack in attacks:
            for seed in "01":
                cells.append(replace(a_run(), title=f"{method} · {attack} · seed {seed}"))
            mean = 50.0 + 10 * len(line) + len(fields)
            line.append(
                Field(mean, 1.5, [len(cells) - 2, len(cells) - 1], ["0", "1"], published=mean - 1, read=mean)
            )
        fields.append(line)
    fields[-1][-1] = Field(None, None, [], [], missing=2)
    panel = Panel("", list(methods), list(attacks), fields, [1, None])
    whole = replace(
        a_run(), kind="grid", title="a grid", course=None, state="unfinished", played=6, planned=8
    )
    return replace(whole, map=Map([panel], cells))
