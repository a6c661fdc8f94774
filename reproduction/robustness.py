"""`docs/ROBUSTNESS.md`: what attackers who know the defence achieve, and what the hardened method misses.

Every figure is computed from the grids of `examples`, first of all `robustness.toml`. The prose is in
templates/ROBUSTNESS.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from statistics import fmean

from sklearn.metrics import roc_auc_score, roc_curve

from fedcap.errors import plural
from fedcap.experiments.comparison import Comparison
from fedcap.experiments.tables import accuracy_table, difference_table
from fedcap.files import Value
from fedcap.report.charts import draw_curves
from fedcap.report.panel import NO_ATTACK, Finished, Panel, attack_title
from fedcap.report.tables import Table
from fedcap.runs import Outcome
from reproduction.templates import fill

LOCAL, PAPER, HARDENED, WATCHED = "local", "fedcap", "hardened", "no removal"
"""Methods of the grid; in the last one scores are recorded and no client is removed."""
DETECTORS = ("robust-norm", "collusion", "direction")
KNOWING = ("cuckoo", "inflate", "stealth", "frame", "steady", "sleeper", "noisy", "mimic", "worst-of")
"""The attacks that are made for the method that they meet, or against defences."""
FLIPPING = "sign-flipping"
IN_ONE_ROUND = ("model-replacement", "lie", "min-max", "min-sum", "ipm")
PUBLISHED = (FLIPPING, *IN_ONE_ROUND)
SOON, NO_WORSE, NEAR, HARMLESS = 3.0, 0.5, 3.0, 0.5
"""Rounds to removal; points below the paper's preset; points below no attack, and below Local; and the points
above the least costly attack up to which an attack counts as harmless."""
ROC_STEPS = [step / 50 for step in range(51)]


def robustness_page(
    finished: Finished,
    every_method: Finished = (),
    honest: Sequence[Finished] = (),
    trained: Finished = (),
    elsewhere: str = "",
) -> str:
    """Return the page.

    `every_method` is the grid of all methods, `honest` are grids without attack, and `trained` is the grid of
    attackers who train against the method. `elsewhere` says how the hardened method does on other data.
    """
    panel, *others = Comparison.of(finished).panels
    return fill(
        "ROBUSTNESS",
        elsewhere=elsewhere,
        finding=_finding(panel),
        more_harm=fill("robustness-more-harm").strip() if trained else "",
        missed="\n\n".join(_missed([panel, *others])),
        runs=f"{_count_runs(panel):,}",
        planned=plural(len(panel.methods) * len(panel.columns) * len(panel.seeds), "run"),
        requirements=requirements_table(panel).markdown(),
        accuracies=accuracy_table(_only(panel, (LOCAL, PAPER, HARDENED))).markdown(),
        differences=difference_table(_only(panel, (PAPER, HARDENED)), PAPER).markdown(),
        detection=_detection_table(panel).markdown(),
        separations=separation_table(panel).markdown(),
        roc="\n\n".join(f"![ROC, {name}](figures/roc-{name}.png)" for name in roc_curves(finished)),
        harmless=f"{HARMLESS:g}",
        least=f"{_least_cost(panel):+.1f}",
        left_open=_left_open_table(panel),
        trained=fill("robustness-trained", table=_trained_table(trained).markdown()) if trained else "",
        honest=_honest_section(honest) if honest else "",
        others="\n\n".join(_other_section(other) for other in others if HARDENED in other.methods),
        every_method=_every_method_section(every_method) if every_method else "",
    )


def _count_runs(panel: Panel) -> int:
    return len({run.digest for runs in panel.runs.values() for run in runs.values()})


def _missed(panels: Sequence[Panel]) -> list[str]:
    """Return a paragraph for each requirement that the hardened method misses."""
    return [
        f"**Not met on {panel.title}**: {requirement}. Missed under: {where}."
        for panel in panels
        for requirement, met, where in requirements_table(panel).cells()
        if met == "no"
    ]


def _finding(panel: Panel) -> str:
    """Return a sentence with the effect of the longest cuckoo on each preset."""
    parts = []
    for method, name in ((PAPER, "the paper's FedCAP"), (HARDENED, "the hardened one")):
        runs = panel.of(method, "cuckoo, longest").values()
        calm = panel.estimate(method, NO_ATTACK)
        if runs and calm is not None:
            fpr, fnr = (fmean(getattr(run, rate) or 0.0 for run in runs) for rate in ("fpr", "fnr"))
            hit = fmean(run.tacc for run in runs)
            parts.append(
                f"**{name} removes {fpr:.0f} % of the honest and {100 - fnr:.0f} % of the malicious clients,"
                f" and its accuracy changes from {calm.mean:.1f} % to {hit:.1f} %**"
            )
    return f"Under `cuckoo(length=longest)` {'; '.join(parts)}." if parts else ""


def _only(panel: Panel, methods: Iterable[str]) -> Panel:
    return replace(panel, methods=[method for method in methods if method in panel.methods])


def _mean(panel: Panel, method: str, attack: str, figure: str = "tacc") -> float | None:
    estimate = panel.estimate(method, attack, figure)
    return None if estimate is None else estimate.mean


# --- Requirements


def requirements_table(panel: Panel) -> Table:
    """Return a line for each requirement: whether it is met, and where it is not or how far it is."""
    adaptive = [attack for attack in panel.attacks if attack not in PUBLISHED]
    rows = (
        _removed_soon(panel),
        _flipping_in_time(panel),
        _no_worse(panel),
        _honest_stay(panel, adaptive),
        _near_no_attack(panel, adaptive),
        _above_local(panel, adaptive),
    )
    return Table(["requirement", "met", "where not, or how far"], [row for row in rows if row is not None])


def _row(requirement: str, missed: Sequence[str], otherwise: str) -> list[Value]:
    return [requirement, "no" if missed else "yes", ", ".join(missed) if missed else otherwise]


def _removed_soon(panel: Panel) -> list[Value] | None:
    there = [attack for attack in IN_ONE_ROUND if panel.of(HARDENED, attack)]
    if not there:
        return None
    missed, slowest = [], 0.0
    for attack in there:
        fnr, fpr, rounds = (
            _mean(panel, HARDENED, attack, figure) or 0.0 for figure in ("fnr", "fpr", "rounds_to_removal")
        )
        slowest = max(slowest, rounds)
        if fnr or fpr or rounds > SOON:
            missed.append(f"{attack} (FNR {fnr:.0f}, FPR {fpr:.1f}, {rounds:.1f} rounds)")
    requirement = f"FNR 0 and FPR 0 under {', '.join(there)}, within {SOON:g} rounds"
    return _row(requirement, missed, f"{slowest:.1f} rounds at most")


def _flipping_in_time(panel: Panel) -> list[Value] | None:
    ours, theirs = (_mean(panel, method, FLIPPING, "rounds_to_removal") for method in (HARDENED, PAPER))
    if ours is None or theirs is None:
        return None
    text = f"{ours:.1f} rounds, with the paper's preset {theirs:.1f}"
    return _row(f"{FLIPPING} removed as soon as with the paper's preset", [text] * (ours > theirs), text)


def _no_worse(panel: Panel) -> list[Value] | None:
    gaps = {attack: found.mean for attack, found in panel.differences(HARDENED, PAPER).items()}
    requirement = f"under every attack, accuracy at most {NO_WORSE:g} points below the paper's preset"
    return _row(requirement, *_beyond(gaps, NO_WORSE)) if gaps else None


def _honest_stay(panel: Panel, attacks: Sequence[str]) -> list[Value] | None:
    removed = {
        attack: [
            sum(client.removed is not None for client in run.clients if not client.malicious)
            for run in panel.of(HARDENED, attack).values()
        ]
        for attack in attacks
    }
    if not any(removed.values()):
        return None
    missed = [
        f"{attack} ({sum(counts)} in {plural(len(counts), 'run')})"
        for attack, counts in removed.items()
        if sum(counts) > max(1, len(counts) // 5)
    ]
    requirement = "under attackers who know the defence, at most one honest client removed in five runs"
    runs = plural(sum(map(len, removed.values())), "run")
    return _row(requirement, missed, f"{sum(map(sum, removed.values()))} in {runs}")


def _near_no_attack(panel: Panel, attacks: Sequence[str]) -> list[Value] | None:
    lost = {attack: harm(panel, HARDENED, attack).lost for attack in attacks}
    gaps = {attack: -points for attack, points in lost.items() if points is not None}
    requirement = f"under attackers who know the defence, accuracy within {NEAR:g} points of no attack"
    return _row(requirement, *_beyond(gaps, NEAR)) if gaps else None


def _above_local(panel: Panel, attacks: Sequence[str]) -> list[Value] | None:
    worst = {attack: harm(panel, HARDENED, attack).worst_client for attack in [NO_ATTACK, *attacks]}
    gaps = {attack: gap for attack, gap in worst.items() if gap is not None}
    requirement = (
        "without attack and under attackers who know the defence, no honest client more than"
        f" {NEAR:g} points below its accuracy with Local, over seeds"
    )
    return _row(requirement, *_beyond(gaps, NEAR)) if gaps else None


def _beyond(gaps: Mapping[str, float], points: float) -> tuple[list[str], str]:
    """Return the attacks with a gap below a number of points, and the lowest gap."""
    lowest = min(gaps, key=lambda attack: gaps[attack])
    missed = [f"{attack_title(attack)} ({gap:+.1f})" for attack, gap in gaps.items() if gap < -points]
    return missed, f"lowest: {gaps[lowest]:+.1f}, under {attack_title(lowest)}"


# --- Harm to honest clients


@dataclass(frozen=True)
class Harm:
    """The cost of an attack for honest clients, in points over seeds; None if there is nothing to compare."""

    lost: float | None
    """Their mean accuracy without attack minus that under attack, client by client."""
    worst_of_a_run: float | None
    """The lowest difference of a client to its accuracy with Local in each run, as a mean over runs."""
    worst_client: float | None
    """The same differences as a mean over the runs in which a client is honest, of the worst client."""


def harm(panel: Panel, method: str, attack: str) -> Harm:
    """Return the cost of an attack for the honest clients of a method."""
    runs, calm, alone = (panel.of(*at) for at in ((method, attack), (method, NO_ATTACK), (LOCAL, NO_ATTACK)))
    below = [-fmean(gaps.values()) for gaps in _gaps(runs, calm)]
    above = _gaps(runs, alone)
    by_client: dict[str, list[float]] = defaultdict(list)
    for gaps in above:
        for client, gap in gaps.items():
            by_client[client].append(gap)
    return Harm(
        fmean(below) if below else None,
        fmean(min(gaps.values()) for gaps in above) if above else None,
        min(fmean(gaps) for gaps in by_client.values()) if by_client else None,
    )


def _gaps(runs: Mapping[str, Outcome], others: Mapping[str, Outcome]) -> list[dict[str, float]]:
    """Return each honest client's accuracy minus its accuracy in the other run of that seed, for each run."""
    found = []
    for seed, run in runs.items():
        if seed in others:
            theirs = {client.id: client.personal or 0.0 for client in others[seed].clients}
            gaps = {c.id: (c.personal or 0.0) - theirs[c.id] for c in run.clients if not c.malicious}
            found += [gaps] if gaps else []
    return found


# --- Scores


def roc_curves(finished: Finished) -> dict[str, Callable[[Path], list[Path]]]:
    """Return what draws each picture: a curve per score, over published attacks and over adaptive ones."""
    panel = Comparison.of(finished).panels[0]
    groups = {
        "published": [attack for attack in panel.attacks if attack in PUBLISHED],
        "adaptive": [attack for attack in panel.attacks if attack not in PUBLISHED],
    }
    return {name: partial(_draw_roc, panel, name, group) for name, group in groups.items() if group}


def _draw_roc(panel: Panel, name: str, attacks: Sequence[str], path: Path) -> list[Path]:
    runs = [run for attack in attacks for run in panel.of(WATCHED, attack).values()]
    series: dict[str, list[float | None]] = {}
    for score in _scores(runs):
        labels, values = _peaks(runs, score)
        if len(set(labels)) == 2:
            accused, found, _ = roc_curve(labels, values)
            series[score] = [100 * float(found[accused <= step + 1e-9].max()) for step in ROC_STEPS]
    shares = [100 * step for step in ROC_STEPS]
    title = f"ROC, {name} attacks"
    return draw_curves(shares, series, path, "honest clients accused, %", "attackers found, %", title=title)


def separation_table(panel: Panel) -> Table:
    """Return the area under the ROC curve, in percent, by attack and score."""
    scores = _scores(run for attack in panel.attacks for run in panel.of(WATCHED, attack).values())
    rows: list[list[Value]] = []
    for attack in panel.attacks:
        line: list[Value] = [attack]
        for score in scores:
            labels, values = _peaks(panel.of(WATCHED, attack).values(), score)
            line.append(100 * float(roc_auc_score(labels, values)) if len(set(labels)) == 2 else None)
        rows.append(line)
    return Table(["attack", *scores], rows)


def _scores(runs: Iterable[Outcome]) -> list[str]:
    return list(dict.fromkeys(score for run in runs for score in run.peaks))


def _peaks(runs: Iterable[Outcome], score: str) -> tuple[list[int], list[float]]:
    """Return the peaks of a score over all runs, and whether each is of a malicious client."""
    peaks = [run.peaks[score] for run in runs if score in run.peaks]
    honest, malicious = ([v for p in peaks for v in getattr(p, kind)] for kind in ("benign", "malicious"))
    return [0] * len(honest) + [1] * len(malicious), [*honest, *malicious]


# --- Other tables and sections


def _detection_table(panel: Panel) -> Table:
    titles = {PAPER: "norm", **{name: name for name in DETECTORS}, HARDENED: HARDENED}
    titles = {method: title for method, title in titles.items() if method in panel.methods}
    digits = {"fnr": 0, "fpr": 1, "rounds_to_removal": 1, "tacc": 1}
    rows: list[list[Value]] = []
    for attack in panel.attacks:
        line: list[Value] = [attack]
        for method in titles:
            means = {figure: _mean(panel, method, attack, figure) for figure in digits}
            texts = ("–" if mean is None else f"{mean:.{digits[name]}f}" for name, mean in means.items())
            line.append(" / ".join(texts))
        rows.append(line)
    seeds = ", ".join(f"{title} {_seeds(panel, method)}" for method, title in titles.items())
    notes = [f"Finished seeds per attack: {seeds}."]
    return Table(["attack", *titles.values()], rows, "FNR / FPR / round / accuracy", notes)


def _seeds(panel: Panel, method: str) -> str:
    """Return the number of finished seeds of a method, as a range over the attacks."""
    counts = [len(panel.of(method, attack)) for attack in panel.attacks] or [0]
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _least_cost(panel: Panel) -> float:
    """Return the change of accuracy under the attack that costs least."""
    lost = [harm(panel, HARDENED, attack).lost for attack in panel.attacks]
    return -min((points for points in lost if points is not None), default=0.0)


def _left_open_table(panel: Panel) -> str:
    least = -_least_cost(panel)
    rows: list[list[Value]] = []
    for attack in panel.attacks:
        cost = harm(panel, HARDENED, attack)
        fnr, fpr = (_mean(panel, HARDENED, attack, name) or 0.0 for name in ("fnr", "fpr"))
        if fnr or fpr or (cost.lost or 0.0) > least + HARMLESS:
            rows.append([attack, fnr, fpr, cost.lost, cost.worst_of_a_run, cost.worst_client])
    columns = ["attack", "malicious left, %", "honest removed, %", "points lost"]
    columns += ["worst client of a run against Local", "worst client over runs"]
    return Table(columns, rows).markdown() if rows else "No attack does."


def _trained_table(finished: Finished) -> Table:
    """Return the effect of attackers who train against the methods on Local and both presets."""
    panel, *_ = Comparison.of(finished).panels
    rows: list[list[Value]] = []
    for method, attack in product((LOCAL, PAPER, HARDENED), panel.attacks):
        hit, fnr, fpr = (_mean(panel, method, attack, figure) for figure in ("tacc", "fnr", "fpr"))
        cost = harm(panel, method, attack)
        rows.append([method, _mean(panel, method, NO_ATTACK), hit, cost.lost, fnr, fpr, cost.worst_client])
    columns = ["method", "no attack", "attacked", "points lost", "malicious left, %", "honest removed, %"]
    return Table([*columns, "worst client over runs against Local"], rows)


def _honest_section(grids: Iterable[Finished]) -> str:
    """Return the section of runs without attack, a line per setting; grids may share runs."""
    rows: list[list[Value]] = []
    counted: dict[str, int] = {}
    for panel in chain.from_iterable(Comparison.of(finished).panels for finished in grids):
        runs = panel.of(HARDENED, NO_ATTACK).values()
        removed = {run.digest: sum(client.removed is not None for client in run.clients) for run in runs}
        varied = ", ".join(f"{axis}={value}" for axis, value in panel.place.items() if axis != "dataset")
        accuracy = fmean(run.tacc for run in runs)
        rows.append([panel.place["dataset"], varied or "default", len(runs), sum(removed.values()), accuracy])
        counted |= removed
    made = Table(["data set", "settings", "runs", "removed", "accuracy"], rows)
    return fill(
        "robustness-honest",
        runs=plural(len(counted), "run"),
        removed=plural(sum(counted.values()), "client"),
        table=made.markdown(),
    )


def _other_section(panel: Panel) -> str:
    """Return the section of another data set."""
    return fill(
        "robustness-other",
        title=panel.title,
        runs=plural(_count_runs(panel), "run"),
        requirements=requirements_table(panel).markdown(),
        accuracies=accuracy_table(_only(panel, (PAPER, HARDENED))).markdown(),
        detection=_detection_table(panel).markdown(),
    )


def _every_method_section(finished: Finished) -> str:
    """Return the section of all methods without attack and under attacks that know the defence."""
    panel = Comparison.of(finished).panels[0]
    known = replace(panel, columns=[name for name in panel.columns if name in (NO_ATTACK, *KNOWING)])
    return fill("robustness-every-method", table=accuracy_table(known).markdown())
