"""`docs/RESULTS.md`: a summary of one screen, the paper's tables and figures, the grid of every method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean

from fedcap.errors import plural
from fedcap.experiments.comparison import Comparison, map_name
from fedcap.report.panel import NO_ATTACK, Finished, Panel, attack_title
from fedcap.report.tables import Table
from reproduction.cells import POINTS, Item, PaperCell
from reproduction.compare import Compared, by_heading, compare, contests, reason, table
from reproduction.items import items
from reproduction.matrix import Grids, leads, without_repeats, worst_cases, worst_table
from reproduction.pictures import pictures
from reproduction.recorded import Recorded, distinct, resolved
from reproduction.setups import DATASETS, ONE_SETTING, SET_UP_OF, STAND_IN, TEST_SAMPLES
from reproduction.summary import LEFT_OUT, part_of, summary
from reproduction.templates import fill, section

FIGURES = "figures"
"""The folder of pictures, next to the pages."""
SMALL = "traps"
"""The item that is on another page."""


def results_page(recorded: Recorded, grids: Grids) -> str:
    """Return the page."""
    compared = {name: compare(item, recorded) for name, item in items().items() if name != SMALL}
    matrix, repeats = without_repeats(grids.matrix)
    return fill(
        "RESULTS",
        summary=summary(compared, Grids(matrix, grids.variants, grids.trained, grids.wisdm)),
        one_setting=_one_setting(compared["table-3"], matrix).markdown(),
        tolerances=", ".join(f"{points:g} points on {dataset}" for dataset, points in POINTS.items()),
        sections="\n\n".join(_section(items()[name], found, grids.wisdm) for name, found in compared.items()),
        matrix=_matrix_section(matrix, grids, repeats),
        left=_left(compared),
    )


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
