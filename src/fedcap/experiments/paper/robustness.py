"""`docs/ROBUSTNESS.md`: what attackers who know the defence come to, and what still gets through.

Everything is computed from the grids of `examples`, first of all `robustness.toml`; only the prose is written
by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, product
from statistics import fmean

from fedcap.errors import plural
from fedcap.experiments.comparison import Comparison
from fedcap.experiments.paper.asked import HARDENED, PAPER, asked_table
from fedcap.experiments.paper.harm import LOCAL, harm
from fedcap.experiments.paper.scores import CURVES, roc_curves, separations
from fedcap.experiments.tables import accuracy_table, difference_table
from fedcap.files import Value
from fedcap.report.panel import NO_ATTACK, Finished, Panel
from fedcap.report.tables import Table

DETECTORS = ("robust-norm", "collusion", "direction")
KNOWING = ("cuckoo", "inflate", "stealth", "frame", "steady", "sleeper", "noisy", "mimic", "worst-of")
"""The attacks of the registry that are made for the method they meet, or against defences."""
POINTS = 0.5
"""An attack that costs no more than this above the least is harmless."""

HEAD = """# Robustness

The paper's FedCAP tells liars by one length, and mixes each client's model from those most like it. An
attacker who knows that lies down beside one honest client: most of what it sends is what that client sends,
and the rest is harm. It is mixed into its victim's model, its victim's friends are pulled along, and
*they* cross the limit.

{finding}{broken}{missed}

The preset `hardened` (`--set method.preset=hardened`) is made against such attackers;
`fedcap list fedcap` says what it does. Most figures are of {runs}, on the embedded `digits` unless a
heading says otherwise, 30 % of the clients hostile: made by `fedcap compare
examples/robustness.toml --save-outcomes results/robustness.jsonl.gz`, and computed from that by `make
results`."""

BROKEN = """ Attackers who have data of their own, and the network, do more: see
[Attackers who train against it](#attackers-who-train-against-it)."""

ASKED = """## What was asked, and what came out

Sign flippers go no further than others for their first four rounds or so, and no test of lengths can tell
them by then. After that they go further and further, and the paper's limit, which was set for this data set,
finds most of them in the sixth round. What is asked of the hardened method is to be as quick on average,
without a limit that was set for the data. A flipper whose model is mixed from honest clients' is not drawn
away by its own kind and goes hardly further than honest clients once went: such a one is found by not
stopping when most have. CIFAR-10 is in [RESULTS.md](RESULTS.md#fedcap-hardened-beside-the-papers-preset)."""

DETECTION = """## Detectors and attacks

Each detector by itself, in the paper's method: `norm` is the paper's own; the others add up evidence over
rounds. FNR is the share of attackers not removed, FPR that of honest clients removed while under attack,
both in percent; then the mean round of removal, and the accuracy: means over the seeds that have finished."""

LEFT_OPEN = """## What still gets through

Attacks of which the hardened method leaves attackers in, or removes honest clients, or which cost it half a
point more than the attack that costs least. Points lost are below the same clients without attack: that
attack costs {least:.1f}, since there are fewer clients to learn from. Then by how many points a client is
above its own accuracy with Local (negative: below it): the one that is worst off in each run, as a mean over
runs, and the one that is worst off over all runs in which it is honest. Clients have few test samples here,
so one sample is several points."""

TRAINED = """## Attackers who train against it

The attacks above reckon with rows. Those of `examples/own_attack.py` have samples of their own and the
network too: they crowd into one group of honest clients who are alike, where they are then the majority, and
look for the harm that the group's own training undoes least. What they send is as long and as different as
what honest clients send, their noise too is shaped like training, so there is nothing to tell them by; a
client knows only what its own samples say of the models it gets, and few samples do not say much. Made by
`fedcap compare own_attack.toml` in `examples`."""

HONEST = """## Among honest clients only

Whoever looks for liars may find some where there are none. The hardened method without attack, from
clients who are all alike to clients who have nothing in common, over a factor of ten in the learning rate,
made by `fedcap compare` of `examples/honest*.toml`: {runs}, {removed} removed."""

ELSEWHERE = """Against Local a client's figure rests, over one seed, on its own few test samples: on WISDM
each gap beyond 3 points is one sample of one client, and the commonest is there without attack too."""

EVERYBODY = """## Every method under attackers who know the defence

From the grid of every method under every attack ([RESULTS.md](RESULTS.md)); these attacks adapt to the
method that they meet, as far as it has something to know."""


def robustness_page(
    found: Finished, everybody: Finished = (), honest: Sequence[Finished] = (), trained: Finished = ()
) -> str:
    """Return the page.

    `everybody` is the grid of all methods, `honest` are those without attack, and `trained` is that of
    attackers who train against the method.
    """
    panel, *elsewhere = Comparison.of(found).panels
    head = HEAD.format(
        finding=_finding(panel),
        broken=BROKEN if trained else "",
        missed="".join(f"\n\n{said}" for said in _missed([panel, *elsewhere])),
        runs=plural(len(found), "run"),
    )
    pictures = [f"![ROC, {name}](figures/roc-{name}.png)" for name in roc_curves(found)]
    parts = [
        head,
        ASKED,
        asked_table(panel).markdown(),
        "## The paper's, hardened, and Local",
        accuracy_table(_only(panel, (LOCAL, PAPER, HARDENED))).markdown(),
        difference_table(_only(panel, (PAPER, HARDENED)), PAPER).markdown(),
        DETECTION,
        _detection(panel).markdown(),
        CURVES,
        separations(panel).markdown(),
        *pictures,
        _left_open(panel),
        *([TRAINED, _trained(trained).markdown()] if trained else []),
        *(_honest(honest) if honest else []),
        *chain.from_iterable(_elsewhere(other) for other in elsewhere if HARDENED in other.methods),
        *([EVERYBODY, accuracy_table(_knowing(everybody)).markdown()] if everybody else []),
    ]
    return "\n\n".join(parts) + "\n"


def _missed(panels: Sequence[Panel]) -> list[str]:
    """Say what was asked of the hardened method and not reached, a paragraph each."""
    return [
        f"**Not reached on {panel.title}**: {asked}. It is not so under: {where}."
        for panel in panels
        for asked, reached, where in asked_table(panel).cells()
        if reached == "no"
    ]


def _elsewhere(panel: Panel) -> list[str]:
    """Return the section of another data set."""
    return [
        f"## {panel.title}",
        asked_table(panel).markdown(),
        ELSEWHERE,
        accuracy_table(_only(panel, (PAPER, HARDENED))).markdown(),
        _detection(panel).markdown(),
    ]


def _trained(found: Finished) -> Table:
    """Return what attackers who train against them do to Local and both presets."""
    panel, *_ = Comparison.of(found).panels
    rows: list[list[Value]] = []
    for method, attack in product((LOCAL, PAPER, HARDENED), panel.attacks):
        calm, hit, missed, removed = (
            None if estimate is None else estimate.mean
            for estimate in (
                panel.estimate(method, NO_ATTACK),
                *(panel.estimate(method, attack, figure) for figure in ("tacc", "fnr", "fpr")),
            )
        )
        cost = harm(panel, method, attack)
        rows.append([method, calm, hit, cost.lost, missed, removed, cost.worst_client])
    columns = ["method", "no attack", "attacked", "points lost", "attackers left, %", "honest removed, %"]
    return Table([*columns, "worst client over runs against Local"], rows)


def _honest(grids: Iterable[Finished]) -> list[str]:
    """Return the section of runs without attack, a line per setting."""
    rows: list[list[Value]] = []
    total = lost = 0
    for panel in chain.from_iterable(Comparison.of(found).panels for found in grids):
        runs = panel.of(HARDENED, NO_ATTACK).values()
        removed = sum(client.removed is not None for run in runs for client in run.clients)
        varied = ", ".join(f"{axis}={value}" for axis, value in panel.place.items() if axis != "dataset")
        accuracy = fmean(run.tacc for run in runs)
        rows.append([panel.place["dataset"], varied or "as usual", len(runs), removed, accuracy])
        total, lost = total + len(runs), lost + removed
    head = HONEST.format(runs=plural(total, "run"), removed=plural(lost, "client"))
    return [head, Table(["data set", "settings", "runs", "removed", "accuracy"], rows).markdown()]


def _knowing(everybody: Finished) -> Panel:
    """Return all methods under attacks that know the defence, and under none."""
    panel = Comparison.of(everybody).panels[0]
    return replace(panel, columns=[name for name in panel.columns if name in (NO_ATTACK, *KNOWING)])


def _only(panel: Panel, methods: Iterable[str]) -> Panel:
    return replace(panel, methods=[method for method in methods if method in panel.methods])


def _finding(panel: Panel) -> str:
    """Say what the longest cuckoo does to each preset, with figures."""
    said = []
    for method, name in ((PAPER, "the paper's FedCAP"), (HARDENED, "the hardened one")):
        runs = panel.of(method, "cuckoo, longest").values()
        calm = panel.estimate(method, NO_ATTACK)
        if runs and calm is not None:
            lost, kept = (fmean(getattr(run, rate) or 0.0 for run in runs) for rate in ("fpr", "fnr"))
            left = fmean(run.tacc for run in runs)
            said.append(
                f"**{name} removes {lost:.0f} % of the honest clients and"
                f" {100 - kept:.0f} % of the attackers, and falls from {calm.mean:.1f} % to {left:.1f}**"
            )
    return f"Under `cuckoo(length=longest)` {'; '.join(said)}." if said else ""


def _detection(panel: Panel) -> Table:
    all_names = {PAPER: "norm", **{name: name for name in DETECTORS}, HARDENED: "hardened"}
    names = {method: name for method, name in all_names.items() if method in panel.methods}
    rows: list[list[Value]] = []
    for attack in panel.attacks:
        rows.append([attack])
        for method in names:
            figures = [panel.estimate(method, attack, f) for f in ("fnr", "fpr", "rounds_to_removal", "tacc")]
            said = [
                "–" if f is None else f"{f.mean:.{digits}f}"
                for f, digits in zip(figures, (0, 1, 1, 1), strict=True)
            ]
            rows[-1].append(" / ".join(said))
    return Table(["attack", *names.values()], rows, "FNR / FPR / round / accuracy")


def _left_open(panel: Panel) -> str:
    costs = {attack: harm(panel, HARDENED, attack) for attack in panel.attacks}
    least = min((cost.lost for cost in costs.values() if cost.lost is not None), default=0.0)
    rows: list[list[Value]] = []
    for attack, cost in costs.items():
        rates = [panel.estimate(HARDENED, attack, name) for name in ("fnr", "fpr")]
        missed, removed = (0.0 if rate is None else rate.mean for rate in rates)
        if missed or removed or (cost.lost or 0.0) > least + POINTS:
            rows.append([attack, missed, removed, cost.lost, cost.worst_of_a_run, cost.worst_client])
    columns = ["attack", "attackers left, %", "honest removed, %", "points lost"]
    columns += ["worst client of a run against Local", "worst client over runs"]
    table = Table(columns, rows).markdown() if rows else "Nothing does."
    return f"{LEFT_OPEN.format(least=least)}\n\n{table}"
