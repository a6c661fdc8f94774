"""`docs/RESULTS.md`: a summary, and FedCAP against each method. Two pages have the long tables.

`results/paper.md` has the paper's tables and figures, `results/matrix.md` the grid of every method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean

from fedcap.errors import plural
from fedcap.experiments.comparison import Comparison, map_name
from fedcap.report.panel import NO_ATTACK, Finished, Panel, attack_title
from fedcap.report.tables import Table
from reproduction.cells import POINTS, Item, PaperCell
from reproduction.compare import (
    NOT_EXPLAINED,
    Compared,
    by_heading,
    compare,
    contests,
    reason,
    standard_error,
    table,
)
from reproduction.items import items
from reproduction.matrix import Grids, duels_table, leads, without_repeats, worst_cases, worst_table
from reproduction.pictures import pictures
from reproduction.recorded import Recorded, distinct, resolved
from reproduction.setups import DATASETS, ONE_SETTING, SET_UP_OF, STAND_IN, TEST_SAMPLES
from reproduction.summary import LEFT_OUT, MATRIX_PAGE, PAPER_PAGE, part_of, summary
from reproduction.templates import fill, section
from reproduction.traps import ACROSS, ONE_ACTIVITY, WINDOWS
from reproduction.tuning import Choice
from reproduction.tuning import table as tuned_table

FIGURES = "figures"
"""The folder of pictures, next to RESULTS.md."""
SMALL = "traps"
"""The item that is on another page."""


def results_pages(recorded: Recorded, grids: Grids, choices: Sequence[Choice] = ()) -> dict[str, str]:
    """Return RESULTS.md, and the pages of its long tables if there are runs for them."""
    compared = {name: compare(item, recorded) for name, item in items().items()}
    reasons = _reason_figures(compared.pop(SMALL), grids.wisdm)
    matrix, repeats = without_repeats(grids.matrix)
    distinct_grids = replace(grids, matrix=matrix)
    made = {
        "RESULTS.md": fill(
            "RESULTS",
            summary=summary(compared, distinct_grids, choices, reasons),
            duels=_duels(distinct_grids, choices) if matrix else "",
        ),
        PAPER_PAGE: fill(
            "results-paper",
            one_setting=_one_setting(compared["table-3"], matrix).markdown(),
            tolerances=", ".join(f"{points:g} points on {dataset}" for dataset, points in POINTS.items()),
            sections="\n\n".join(_section(items()[name], found, reasons) for name, found in compared.items()),
            left=_left(compared),
        ),
    }
    if matrix:
        made[MATRIX_PAGE] = _matrix_page(matrix, plural(len(grids.matrix), "run"), repeats)
    return made


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
        known = dataset in accuracies and dataset in TEST_SAMPLES
        error = f"{standard_error(accuracies[dataset], dataset):.1f}" if known else None
        options = (f"{method[option]:g}" for option in ("alpha", "phi", "lambda_", "t_norm"))
        rows.append([dataset, *options, TEST_SAMPLES.get(dataset), error])
    columns = ("data set", "alpha", "phi", "lambda", "t_norm", "test samples", "standard error, points")
    return Table(columns, rows)


# --- Tables and figures


def _section(item: Item, found: Sequence[Compared], reasons: Mapping[str, str]) -> str:
    """Return one table or figure: its finished cells, and the figures that differ; empty without any."""
    if item.name in LEFT_OUT:
        return ""
    parts = [f"## {item.title}", item.note]
    for heading, inside in by_heading(found).items():
        parts += [f"### {heading}", *_panel_parts(inside, reasons)]
    parts += [f"![{item.title}](../{FIGURES}/{name}.png)" for name in pictures(item, found)]
    if len(parts) == 2:
        parts.append("No run has finished: see [What is left](#what-is-left).")
    return "\n\n".join(filter(None, parts))


def _panel_parts(inside: Sequence[Compared], reasons: Mapping[str, str]) -> list[str]:
    """Return the table, how much of it agrees, in how many rows FedCAP leads, and what differs."""
    judged = [each for each in inside if each.agrees is not None]
    differing = [each for each in judged if not each.agrees]
    sentences = [f"{part_of(len(judged) - len(differing), len(judged))} figures agree."] if judged else []
    for column in ("FedCAP", ONE_SETTING):
        rows = contests(inside, column)
        if rows:
            lost = [
                f"{row.row} ({row.fedcap.mean:.1f}, {row.rival.cell.column} {row.rival.mean:.1f})"
                for row in rows
                if not row.is_won
            ]
            tail = f"; not under {', '.join(lost)}" if lost else ""
            sentences.append(f"{column} leads {part_of(len(rows) - len(lost), len(rows))} rows{tail}.")
    parts = [table("", inside, "<br>", brief=True).markdown(), " ".join(sentences)]
    return [*filter(None, parts), *([_reasons(differing, reasons)] if differing else [])]


def _reasons(found: Sequence[Compared], reasons: Mapping[str, str]) -> str:
    """Return a line for each reason why figures differ, with the figures that it explains."""
    by_reason: dict[str, list[str]] = {}
    for each in found:
        cell, measure = each.cell, each.cell.measure
        text = f"{cell.row}, {cell.column} ({measure.text(each.mean)}, paper {measure.text(cell.published)})"
        by_reason.setdefault(reason(each, **reasons), []).append(text)
    lines = [f"- {'; '.join(figures)}. {why}" for why, figures in by_reason.items()]
    return "Different from the paper:\n\n" + "\n".join(lines)


def _reason_figures(small: Sequence[Compared], wisdm: Finished) -> dict[str, str]:
    """Return the figures in the texts of reasons: runs of seeds and of windows on WISDM."""
    windows = {each.cell.column: each.mean for each in small if each.cell.panel == WINDOWS and each.runs}
    if len(windows) < 2:
        return {"gap": _first_seed_gap(wisdm), "windows": f"{NOT_EXPLAINED}."}
    one, across = (f"{windows[column]:.1f}" for column in (ONE_ACTIVITY, ACROSS))
    return {"gap": _first_seed_gap(wisdm), "windows": section("reasons", "windows", one=one, across=across)}


def _first_seed_gap(runs: Finished) -> str:
    """Return the accuracy with the first seed, and the mean over the other seeds, as text."""
    first, *others = [run.tacc for _, run in runs] or [0.0]
    return (
        f"{first:.1f} % with seed 0 and {fmean(others):.1f} % on average with {len(others)} others"
        if others
        else ""
    )


# --- The grid of every method


def _duels(grids: Grids, choices: Sequence[Choice]) -> str:
    """Return the sections of RESULTS.md on the grid of every method."""
    panels = Comparison.of(grids.matrix).panels
    tuned = ""
    if choices:
        tuned = fill(
            "results-tuned",
            table=tuned_table(choices).markdown(),
            holdout=f"{100 * choices[0].holdout:.0f} %",
            rounds=choices[0].rounds,
        )
    return fill(
        "results-duels",
        duels="\n\n".join(f"On {panel.title}:\n\n{duels_table(panel).markdown()}" for panel in panels),
        errors=" ".join(map(_errors, panels)),
        worst=worst_table(worst_cases(grids)).markdown(),
        tuned=tuned,
    )


def _errors(panel: Panel) -> str:
    """Return the standard error that the number of test samples gives an accuracy, as a sentence."""
    dataset, calm = panel.place["dataset"], panel.estimate("fedcap", NO_ATTACK)
    if calm is None or dataset not in TEST_SAMPLES:
        return ""
    return section(
        "summary",
        "errors",
        dataset=dataset,
        samples=TEST_SAMPLES[dataset],
        accuracy=f"{calm.mean:.1f}",
        error=f"{standard_error(calm.mean, dataset):.1f}",
        seeds=plural(len(calm.seeds), "seed"),
        error_of_mean=f"{standard_error(calm.mean, dataset) / sqrt(len(calm.seeds)):.1f}",
    )


def _matrix_page(matrix: Finished, runs: str, repeats: Mapping[str, str]) -> str:
    """Return the page of the grid of every method under every attack."""
    compared = Comparison.of(matrix)
    folder = f"../{FIGURES}"
    drawn = [f"![{panel.title}]({folder}/{map_name(panel, 'headline')}.png)" for panel in compared.panels]
    same = (
        f"At full participation `{attack}` gives the same runs as `{first}`, and is left out."
        for attack, first in repeats.items()
    )
    return fill(
        "results-matrix",
        runs=runs,
        attacks=len(compared.panels[0].attacks),
        errors=" ".join(map(_errors, compared.panels)),
        lost="\n\n".join(map(_lost, compared.panels)),
        repeats=" ".join(same),
        pictures="\n\n".join(drawn),
        tables=compared.markdown(),
    )


def _lost(panel: Panel) -> str:
    """Return a sentence on where FedCAP does not lead."""
    lost, attacks = leads(panel), len(panel.attacks)
    if not lost:
        return f"On {panel.title} FedCAP, the paper's preset, leads under all {attacks} attacks."
    clear = [attack_title(lead.attack) for lead in lost if lead.is_clear]
    tail = f" The difference is clear under {', '.join(clear)} only." if clear else " No difference is clear."
    return section(
        "summary",
        "lost",
        title=panel.title,
        count=part_of(len(lost), attacks),
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
