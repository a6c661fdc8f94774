"""`docs/RESULTS.md`: a summary of one screen, the paper's tables and figures, the grid of every method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from fedcap.errors import plural
from fedcap.experiments.comparison import Comparison, map_name
from fedcap.report.panel import NO_ATTACK, Finished, Panel, attack_title
from fedcap.report.tables import Table
from reproduction.cells import POINTS, Item, PaperCell
from reproduction.compare import NOT_EXPLAINED, Compared, by_heading, compare, contests, reason, table
from reproduction.items import items
from reproduction.matrix import leads, without_repeats, worst_cases, worst_table
from reproduction.pictures import pictures
from reproduction.published import TABLE_3
from reproduction.recorded import Recorded, distinct, resolved, run_key
from reproduction.robustness import NO_WORSE
from reproduction.setups import ATTACKS, DATASETS, ONE_SETTING, SET_UP_OF, STAND_IN, TEST_SAMPLES
from reproduction.templates import fill, section

FIGURES = "figures"
"""The folder of pictures, next to the pages."""
LEFT_OUT = ("malicious-share",)
"""Items that are not planned, since they take more than a day on two cores."""
WITH_RIVALS = ("table-1", "table-2", "baselines", "ditto-rules")
"""Items in which FedCAP stands next to other methods."""
SMALL = "traps"
"""The item that is on another page."""
FAR = 2.0
"""Points of accuracy: a rival's figure that differs by more has a reason on the page, or "not explained"."""


@dataclass(frozen=True)
class Grids:
    """The saved grids that the page needs; each may be empty."""

    matrix: Finished = ()
    """Every method under every attack on digits."""
    variants: Finished = ()
    """FedCAP's presets under variants of attacks that know the defence."""
    trained: Finished = ()
    """FedCAP's presets under attackers who train against them."""
    wisdm: Finished = ()
    """The hardened preset on WISDM without attack, over seeds."""


def results_page(recorded: Recorded, grids: Grids) -> str:
    """Return the page."""
    compared = {name: compare(item, recorded) for name, item in items().items() if name != SMALL}
    matrix, repeats = without_repeats(grids.matrix)
    return fill(
        "RESULTS",
        summary=_summary(compared, Grids(matrix, grids.variants, grids.trained, grids.wisdm)),
        one_setting=_one_setting(compared["table-3"], matrix).markdown(),
        tolerances=", ".join(f"{points:g} points on {dataset}" for dataset, points in POINTS.items()),
        sections="\n\n".join(_section(items()[name], found, grids.wisdm) for name, found in compared.items()),
        matrix=_matrix_section(matrix, grids, repeats),
        left=_left(compared),
    )


# --- The summary


def _summary(compared: Mapping[str, Sequence[Compared]], grids: Grids) -> str:
    every = [each for name, found in compared.items() if name not in LEFT_OUT for each in found]
    finished = [each for each in every if each.runs and each.cell.dataset not in STAND_IN]
    seeds = Counter(len(each.runs) for each in _one_of_each_run(finished))
    rivals = [each for name in WITH_RIVALS for each in compared[name]]
    knowing = f"{_matrix_finding(grids)} {presets(compared['hardened'])}".strip()
    findings = [_own_figures(every), _rivals(rivals), knowing]
    contradictions = [_contradicted_rates(every), _contradicted_leads(rivals), _drop(compared["table-3"])]
    return fill(
        "results-summary",
        table=_table_of_tables(compared).markdown(),
        findings="\n".join(f"{number}. {text}" for number, text in enumerate(filter(None, findings), 1)),
        contradictions="\n".join(f"- {text}" for text in filter(None, contradictions)) or "- Nothing so far.",
        far=_far(every),
        unfinished=_unfinished(every),
        share=_share_of_items(compared, LEFT_OUT),
        one_seed=f"{seeds[1]:,}",
        all_seeds=f"{sum(seeds.values()):,}",
        matrix_seeds=len({place["seed"] for place, _ in grids.matrix}),
    )


def _table_of_tables(compared: Mapping[str, Sequence[Compared]]) -> Table:
    """Return a row for each table or figure: runs planned and finished, figures that agree and differ."""
    rows: list[list[str]] = []
    for name, found in compared.items():
        if name in LEFT_OUT:
            continue
        here = [each for each in found if each.cell.dataset not in STAND_IN]
        done, planned = _progress(here)
        verdicts = Counter(each.agrees for each in here)
        counts = [planned, done, verdicts[True], verdicts[False]]
        rows.append([f"[{items()[name].title}](#{_anchor(items()[name])})", *_counts(counts)])
    every = [each for name, found in compared.items() if name not in LEFT_OUT for each in found]
    every = [each for each in every if each.cell.dataset not in STAND_IN]
    done, planned = _progress(every)
    verdicts = Counter(each.agrees for each in _one_of_each_figure(every))
    whole = ["**all, each run once**", *_counts([planned, done, verdicts[True], verdicts[False]])]
    columns = ("table or figure", "runs planned", "finished", "figures that agree", "differ")
    return Table(columns, [*rows, whole])


def _counts(counts: Sequence[int]) -> list[str]:
    planned, done, agree, differ = counts
    judged = [f"{agree:,}", f"{differ:,}"] if agree + differ else ["–", "–"]
    return [f"{planned:,}", f"{done:,}", *judged]


def _own_figures(every: Sequence[Compared]) -> str:
    """Return how many of FedCAP's own figures agree, by data set."""
    texts = []
    for dataset in DATASETS:
        ours = [e for e in every if e.cell.dataset == dataset and e.cell.column.startswith("FedCAP")]
        judged = [each for each in _one_of_each_figure(ours) if each.agrees is not None]
        if judged:
            texts.append(f"{_part(sum(bool(each.agrees) for each in judged), len(judged))} on {dataset}")
    return section("summary", "own-figures", shares=" and ".join(texts)) if texts else ""


def _rivals(every: Sequence[Compared]) -> str:
    """Return for how many data sets and attacks FedCAP leads all rivals that have finished."""
    rows, settings = contests(every), contests(every, ONE_SETTING)
    if not rows:
        return ""
    planned = {(each.cell.dataset, each.cell.row) for each in every if each.cell.dataset not in STAND_IN}
    return section(
        "summary",
        "rivals",
        leads=_part(sum(row.is_won for row in rows), len(rows)),
        one_setting=_part(sum(row.is_won for row in settings), len(settings)),
        tested=_part(len(rows), len(planned)),
        datasets=", ".join(sorted({row.fedcap.cell.dataset for row in rows})),
    )


def _matrix_finding(grids: Grids) -> str:
    """Return how FedCAP's presets stand under attacks that know the defence."""
    if not grids.matrix:
        return ""
    panel = Comparison.of(grids.matrix).panels[0]
    lost = leads(panel)
    cases = {case.method: case for case in worst_cases(grids.matrix, [grids.variants, grids.trained])}
    if "fedcap" not in cases or "hardened" not in cases:
        return ""
    paper, hardened = cases["fedcap"], cases["hardened"]
    return section(
        "summary",
        "matrix",
        lost=_part(len(lost), len(panel.attacks)),
        clear=sum(lead.is_clear for lead in lost),
        paper=f"{paper.worst.mean:.1f}",
        paper_attack=paper.attack,
        hardened=f"{hardened.worst.mean:.1f}",
        hardened_attack=hardened.attack,
        calm="–" if paper.calm is None else f"{paper.calm.mean:.1f}",
    )


def presets(found: Sequence[Compared]) -> str:
    """Return where the hardened preset is below the paper's on other data than it was developed on."""
    at = {(each.cell.heading, each.cell.row, each.cell.column): each.mean for each in found if each.runs}
    texts = {}
    for heading, row, column in at:
        theirs, ours = (at.get((heading, row, f"{preset}: accuracy")) for preset in ("paper's", "hardened"))
        if column.startswith("hardened") and theirs is not None and ours is not None:
            texts[heading, row] = (ours, theirs)
    below = [
        f"{attack_title(row)} on {heading} ({ours:.1f}, the paper's preset {theirs:.1f})"
        for (heading, row), (ours, theirs) in texts.items()
        if theirs - ours > NO_WORSE
    ]
    if not below:
        return ""
    count = _part(len(below), len(texts))
    return section("summary", "presets", where=", ".join(below), count=count, points=f"{NO_WORSE:g}")


def _contradicted_rates(every: Sequence[Compared]) -> str:
    """Return where FedCAP removes other clients than in the paper."""
    ours = (each for each in every if each.cell.read == "fnr" and each.cell.column.startswith("FedCAP:"))
    texts = [
        f"{each.cell.attack} on {each.cell.dataset} ({each.mean:.0f} %, paper {each.cell.published:.0f} %)"
        for each in ours
        if each.agrees is False
    ]
    return section("summary", "rates", where=", ".join(texts)) if texts else ""


def _contradicted_leads(every: Sequence[Compared]) -> str:
    """Return where a rival is ahead though FedCAP leads in the paper."""
    texts = {
        f"{row.row} on {row.fedcap.cell.dataset} (FedCAP {row.fedcap.mean:.1f},"
        f" {row.rival.cell.column} {row.rival.mean:.1f})": None
        for row in contests([each for each in every if each.cell.published is not None])
        if not row.is_won
    }
    return section("summary", "leads", where=", ".join(texts)) if texts else ""


def _drop(found: Sequence[Compared]) -> str:
    """Return how far FedCAP falls under attack on the data that replace EMNIST, and in the paper."""
    for stand_in, dataset in SET_UP_OF.items():
        ours = {
            each.cell.row: each.mean
            for each in found
            if each.cell.dataset == stand_in and each.cell.column == "FedCAP: TAcc" and each.mean is not None
        }
        theirs = {attack: TABLE_3[dataset, attack][0] or 0.0 for attack in (NO_ATTACK, *ATTACKS)}
        lost = {attack: ours[NO_ATTACK] - mean for attack, mean in ours.items()} if NO_ATTACK in ours else {}
        most = max(theirs[NO_ATTACK] - theirs[attack] for attack in ATTACKS)
        fallen = [attack for attack in lost if attack != NO_ATTACK and lost[attack] > most]
        if fallen:
            return section(
                "summary",
                "drop",
                dataset=stand_in,
                calm=f"{ours[NO_ATTACK]:.1f}",
                under=", ".join(f"{attack} {ours[attack]:.1f}" for attack in fallen),
                fallen=_part(len(fallen), len(lost) - 1),
                replaced=dataset,
                most=f"{most:.1f}",
            )
    return ""


def _far(every: Sequence[Compared]) -> str:
    """Return how many rivals' accuracies are far from the paper's, and how many of them have a reason."""
    far = [each for each in _one_of_each_figure(every) if _is_far(each)]
    explained = sum(not reason(each, gap="").startswith(NOT_EXPLAINED) for each in far)
    return _part(explained, len(far))


def _is_far(each: Compared) -> bool:
    is_rival = not each.cell.column.startswith("FedCAP")
    return is_rival and each.cell.measure.is_accuracy and abs(each.difference or 0.0) > FAR


def _unfinished(every: Sequence[Compared]) -> str:
    """Return how many planned runs have not finished, by data set."""
    texts = []
    for dataset in dict.fromkeys(each.cell.dataset for each in every if each.cell.dataset not in STAND_IN):
        done, planned = _progress([each for each in every if each.cell.dataset == dataset])
        if done < planned:
            texts.append(f"{planned - done:,} of {planned:,} on {dataset}")
    return ", ".join(texts) or "none"


def _share_of_items(compared: Mapping[str, Sequence[Compared]], names: Sequence[str]) -> str:
    found = [each for name in names for each in compared[name] if each.cell.dataset not in STAND_IN]
    return plural(_progress(found)[1], "run")


def _one_of_each_run(found: Iterable[Compared]) -> list[Compared]:
    return list({run_key(each.cell): each for each in found}.values())


def _one_of_each_figure(found: Iterable[Compared]) -> list[Compared]:
    return list({(run_key(each.cell), each.cell.read): each for each in found}.values())


def _progress(found: Sequence[Compared]) -> tuple[int, int]:
    """Return how many runs behind cells have finished with at least one seed, and how many there are."""
    done = distinct(each.cell for each in found if each.runs)
    return len(done), len(distinct(each.cell for each in found))


def _part(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" if whole else "–"


# --- Settings


def _one_setting(table_3: Sequence[Compared], matrix: Finished) -> Table:
    """Return FedCAP's options for each data set, its test samples, and the standard error of an accuracy."""
    accuracies = {
        each.cell.dataset: each.mean
        for each in table_3
        if each.cell.column == f"{ONE_SETTING}: TAcc" and each.cell.row == NO_ATTACK and each.mean is not None
    }
    ours = [run.tacc for place, run in matrix if (place["method"], place["attack"]) == ("fedcap", NO_ATTACK)]
    if ours:
        accuracies["digits"] = fmean(ours)
    rows = []
    for dataset in ("digits", *DATASETS[:2], *SET_UP_OF, *DATASETS[2:]):
        method = resolved(PaperCell(dataset, "", "", {"name": "fedcap"}, NO_ATTACK))["method"]
        error = None
        if dataset in accuracies and dataset in TEST_SAMPLES:
            share = accuracies[dataset] / 100
            error = f"{100 * sqrt(share * (1 - share) / TEST_SAMPLES[dataset]):.1f}"
        options = (f"{method[option]:g}" for option in ("alpha", "phi", "lambda_", "t_norm"))
        rows.append([dataset, *options, TEST_SAMPLES.get(dataset), error])
    columns = ("data set", "alpha", "phi", "lambda", "t_norm", "test samples", "standard error, points")
    return Table(columns, rows)


# --- Tables and figures


def _anchor(item: Item) -> str:
    kept = (letter for letter in item.title.lower() if letter.isalnum() or letter in " -")
    return "".join(kept).replace(" ", "-")


def _section(item: Item, found: Sequence[Compared], wisdm: Finished) -> str:
    """Return one table or figure: its finished cells, and the figures that differ; empty without any."""
    if item.name in LEFT_OUT:
        return ""
    parts = [f"## {item.title}", item.note]
    for heading, inside in by_heading(found).items():
        parts += [f"### {heading}", *_panel_parts(inside, wisdm)]
    parts += [f"![{item.title}]({FIGURES}/{name}.png)" for name in pictures(item, found)]
    if len(parts) == 2:
        parts.append("No run has finished: see [What is left](#what-is-left).")
    return "\n\n".join(filter(None, parts))


def _panel_parts(inside: Sequence[Compared], wisdm: Finished) -> list[str]:
    """Return the table, how much of it agrees, in how many rows FedCAP leads, and what differs."""
    judged = [each for each in inside if each.agrees is not None]
    differing = [each for each in judged if not each.agrees]
    sentences = [f"{_part(len(judged) - len(differing), len(judged))} figures agree."] if judged else []
    for column in ("FedCAP", ONE_SETTING):
        rows = contests(inside, column)
        if rows:
            lost = [
                f"{row.row} ({row.fedcap.mean:.1f}, {row.rival.cell.column} {row.rival.mean:.1f})"
                for row in rows
                if not row.is_won
            ]
            tail = f"; not under {', '.join(lost)}" if lost else ""
            sentences.append(f"{column} leads {_part(len(rows) - len(lost), len(rows))} rows{tail}.")
    parts = [table("", inside, "<br>", brief=True).markdown(), " ".join(sentences)]
    return [*filter(None, parts), *([_reasons(differing, wisdm)] if differing else [])]


def _reasons(found: Sequence[Compared], wisdm: Finished) -> str:
    """Return a line for each reason why figures differ, with the figures that it explains."""
    gap = _first_seed_gap(wisdm)
    by_reason: dict[str, list[str]] = {}
    for each in found:
        cell, measure = each.cell, each.cell.measure
        text = f"{cell.row}, {cell.column} ({measure.text(each.mean)}, paper {measure.text(cell.published)})"
        by_reason.setdefault(reason(each, gap=gap), []).append(text)
    lines = [f"- {'; '.join(figures)}. {why}" for why, figures in by_reason.items()]
    return "Different from the paper:\n\n" + "\n".join(lines)


def _first_seed_gap(runs: Finished) -> str:
    """Return the accuracy with the first seed, and the mean over the other seeds, as text."""
    first, *others = [run.tacc for _, run in runs] or [0.0]
    return (
        f"{first:.1f} % with seed 0 and {fmean(others):.1f} % on average with {len(others)} others"
        if others
        else ""
    )


# --- The grid of every method


def _matrix_section(matrix: Finished, grids: Grids, repeats: Mapping[str, str]) -> str:
    """Return the section of the grid of every method under every attack; empty without such runs."""
    if not matrix:
        return ""
    compared = Comparison.of(matrix)
    drawn = [f"![{panel.title}]({FIGURES}/{map_name(panel, 'headline')}.png)" for panel in compared.panels]
    same = (
        f"`{attack}` gives the same runs as `{first}`, and is left out." for attack, first in repeats.items()
    )
    return fill(
        "results-matrix",
        runs=plural(len(grids.matrix), "run"),
        lost="\n\n".join(map(_lost, compared.panels)),
        repeats=" ".join(same),
        worst=worst_table(worst_cases(matrix, [grids.variants, grids.trained])).markdown(),
        pictures="\n\n".join(drawn),
        tables=compared.markdown(),
    )


def _lost(panel: Panel) -> str:
    """Return a sentence on where FedCAP does not lead."""
    lost, attacks = leads(panel), len(panel.attacks)
    if not lost:
        return f"On {panel.title} FedCAP, the paper's preset, leads under all {attacks} attacks."
    clear = [attack_title(lead.attack) for lead in lost if lead.is_clear]
    tail = f" It is above 0 under {', '.join(clear)} only." if clear else " It is above 0 under none of them."
    return section(
        "summary",
        "lost",
        title=panel.title,
        count=_part(len(lost), attacks),
        where=", ".join(map(str, lost)),
        tail=tail,
    )


# --- What is left


def _left(compared: Mapping[str, Sequence[Compared]]) -> str:
    """Return which runs of seed 0 have not finished, item by item, and the command that plays them."""
    lines = []
    for name, found in compared.items():
        for dataset in dict.fromkeys(each.cell.dataset for each in found):
            here = [each for each in found if each.cell.dataset == dataset]
            runs = distinct(each.cell for each in here)
            done = distinct(each.cell for each in here if 0 in each.runs)
            left = [cell for key, cell in runs.items() if key not in done]
            if left and dataset not in STAND_IN and name not in LEFT_OUT:
                command = f"python -m reproduction run {name} --dataset {dataset}"
                which = "all" if len(left) == len(runs) else _columns(left, runs.values())
                lines.append(f"- `{command}`: {plural(len(left), 'run')}: {which}")
    return fill("results-left", lines="\n".join(lines)) if lines else ""


def _columns(left: Sequence[PaperCell], runs: Iterable[PaperCell]) -> str:
    """Return the cells that are left, by column; of a column that is left as a whole, its name only."""
    rows: dict[str, list[str]] = {}
    for cell in left:
        rows.setdefault(cell.column, []).append(cell.row)
    whole = Counter(cell.column for cell in runs)
    texts = (
        column if len(missing) == whole[column] else f"{column} ({', '.join(dict.fromkeys(missing))})"
        for column, missing in rows.items()
    )
    return "; ".join(texts)
