"""The generated pages: docs/RESULTS.md, REPRODUCING.md, ROBUSTNESS.md, and their pictures.

Every figure is computed from recorded outcomes: `<digest>.json` of single runs, and grids as `.jsonl.gz`. The
prose is in templates/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from fedcap.errors import InputError, plural
from fedcap.experiments.comparison import Comparison, map_name
from fedcap.experiments.store import CellStore, read_outcomes
from fedcap.files import Value, write_aside
from fedcap.report.panel import Finished
from fedcap.report.tables import Table
from reproduction import items as cells_of
from reproduction.compare import Compared, by_heading, compare, contests, reason, table
from reproduction.items import POINTS, Item, PaperCell, items
from reproduction.pictures import pictures
from reproduction.published import CLIENTS, NAN_SCORES, TABLE_1, TABLE_3
from reproduction.recorded import Recorded, distinct, resolved
from reproduction.replay import TOLERANCE
from reproduction.robustness import robustness_page, roc_curves
from reproduction.setups import DATASETS, ONE_SETTING, SET_UP_OF, STAND_IN
from reproduction.templates import fill

FIGURES = "figures"
"""The folder of pictures, next to the pages."""
HEADLINE, ROBUSTNESS, TRAINED = "headline.jsonl.gz", "robustness.jsonl.gz", "own-attack.jsonl.gz"
MORE_ROBUSTNESS, HONEST = "robustness-*.jsonl.gz", "honest*.jsonl.gz"
NOT_YET = "Not run yet: `python -m reproduction run traps`."


def write_pages(results: Path, docs: Path) -> list[Path]:
    """Write the pages, and the pictures into a folder next to them; return what was written."""
    recorded = read_results(results)
    (docs / FIGURES).mkdir(parents=True, exist_ok=True)
    written = []
    for item in items().values():
        for name, draw in pictures(item, compare(item, recorded)).items():
            written += draw(docs / FIGURES / f"{name}.png")
    if (results / HEADLINE).exists():
        written += Comparison.of(read_outcomes(results / HEADLINE)).draw(docs / FIGURES, "headline", ".png")
    if (results / ROBUSTNESS).exists():
        for name, draw in roc_curves(read_outcomes(results / ROBUSTNESS)).items():
            written += draw(docs / FIGURES / f"roc-{name}.png")
    for name, text in pages(results).items():
        write_aside(docs / name, text)
        written.append(docs / name)
    return written


def pages(results: Path) -> dict[str, str]:
    """Return the text of each page by its name."""
    recorded = read_results(results)
    headline = _read(results / HEADLINE)
    made = {
        "RESULTS.md": results_page(recorded, headline),
        "REPRODUCING.md": reproducing_page(recorded),
    }
    if (results / ROBUSTNESS).exists():
        robustness = [*_read(results / ROBUSTNESS)]
        for path in sorted(results.glob(MORE_ROBUSTNESS)):
            robustness += read_outcomes(path)
        honest = [read_outcomes(path) for path in sorted(results.glob(HONEST))]
        made["ROBUSTNESS.md"] = robustness_page(robustness, headline, honest, _read(results / TRAINED))
    return made


def read_results(results: Path) -> Recorded:
    """Return all outcomes of a folder; a folder without any is an error."""
    outcomes = CellStore(results, results).outcomes().values()
    if not outcomes and not any(results.glob("*.jsonl.gz")):
        raise InputError(f"there are no outcomes in {results}: give a folder that has some")
    return Recorded(outcomes)


def _read(path: Path) -> Finished:
    """Return the runs of a saved grid; none if there is no such file."""
    return read_outcomes(path) if path.exists() else []


# --- RESULTS.md


def results_page(recorded: Recorded, headline: Finished = ()) -> str:
    """Return the page; `headline` is the grid of every method under every attack."""
    compared = {name: compare(item, recorded) for name, item in items().items() if name != "traps"}
    every = [each for found in compared.values() for each in found]
    judged = [each for each in every if each.agrees is not None]
    runs = {(id(run)) for each in every for run in each.runs.values()}
    return fill(
        "RESULTS",
        runs=plural(len(runs), "run"),
        finished=_finished(every),
        agree=_share(sum(bool(each.agrees) for each in judged), len(judged)),
        tolerances=", ".join(f"{points:g} points on {dataset}" for dataset, points in POINTS.items()),
        at_a_glance=_at_a_glance(compared).markdown(),
        one_setting=_one_setting().markdown(),
        sections="\n\n".join(_section(items()[name], found) for name, found in compared.items()),
        headline=_headline(headline),
        left=_left(compared),
    )


def _one_setting() -> Table:
    rows = []
    for dataset in (*DATASETS[:2], *SET_UP_OF, *DATASETS[2:]):
        method = resolved(PaperCell(dataset, "", "", {"name": "fedcap"}, "none"))["method"]
        rows.append([dataset, *(f"{method[option]:g}" for option in ("alpha", "phi", "lambda_", "t_norm"))])
    return Table(("data set", "alpha", "phi", "lambda", "t_norm"), rows)


def _at_a_glance(compared: Mapping[str, Sequence[Compared]]) -> Table:
    rows: list[list[str]] = []
    for name, found in compared.items():
        for dataset in dict.fromkeys(each.cell.dataset for each in found):
            here = [each for each in found if each.cell.dataset == dataset]
            if any(each.runs for each in here):
                rows.append(
                    [f"[{name}](#{_anchor(items()[name])})", dataset, _finished(here), *_verdict(here)]
                )
    columns = (
        "",
        "data set",
        "cells finished",
        "figures that agree",
        "rows FedCAP leads",
        "with one setting",
    )
    return Table(columns, rows)


def _verdict(found: Sequence[Compared]) -> list[str]:
    """Return how many figures agree with the paper's, and in how many rows each FedCAP column leads."""
    judged = [each for each in found if each.agrees is not None]
    texts = [_share(sum(bool(each.agrees) for each in judged), len(judged))]
    for column in ("FedCAP", ONE_SETTING):
        rows = contests(found, column)
        texts.append(_share(sum(row.is_won for row in rows), len(rows)))
    return texts


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" if whole else "–"


def _finished(found: Sequence[Compared]) -> str:
    """Return how many of the runs behind cells have finished with at least one seed."""
    done = distinct(each.cell for each in found if each.runs)
    return _share(len(done), len(distinct(each.cell for each in found)))


def _anchor(item: Item) -> str:
    kept = (letter for letter in item.title.lower() if letter.isalnum() or letter in " -")
    return "".join(kept).replace(" ", "-")


def _section(item: Item, found: Sequence[Compared]) -> str:
    """Return one table or figure: its finished cells, and the figures that differ; empty without any."""
    if not any(each.runs for each in found):
        return ""
    parts = [f"## {item.title}", item.note]
    for heading, inside in by_heading(found).items():
        parts += [f"### {heading}", *_panel_parts(inside)]
    parts += [f"![{item.title}]({FIGURES}/{name}.png)" for name in pictures(item, found)]
    return "\n\n".join(filter(None, parts))


def _panel_parts(inside: Sequence[Compared]) -> list[str]:
    """Return the table, how much of it agrees, in how many rows FedCAP leads, and what differs."""
    judged = [each for each in inside if each.agrees is not None]
    differing = [each for each in judged if not each.agrees]
    sentences = [f"{_share(len(judged) - len(differing), len(judged))} figures agree."] if judged else []
    for column in ("FedCAP", ONE_SETTING):
        rows = contests(inside, column)
        if rows:
            lost = [
                f"{row.row} ({row.fedcap.mean:.1f}, {row.rival.cell.column} {row.rival.mean:.1f})"
                for row in rows
                if not row.is_won
            ]
            tail = f"; not under {', '.join(lost)}" if lost else ""
            sentences.append(f"{column} leads {_share(len(rows) - len(lost), len(rows))} rows{tail}.")
    parts = [table("", inside, "<br>", brief=True).markdown(), " ".join(sentences)]
    return [*filter(None, parts), *([_reasons(differing)] if differing else [])]


def _reasons(found: Sequence[Compared]) -> str:
    """Return a line for each reason why figures differ, with the figures that it explains."""
    by_reason: dict[str, list[str]] = {}
    for each in found:
        cell, measure = each.cell, each.cell.measure
        text = f"{cell.row}, {cell.column} ({measure.text(each.mean)}, paper {measure.text(cell.published)})"
        by_reason.setdefault(reason(each) or "Not explained yet.", []).append(text)
    lines = [f"- {'; '.join(figures)}. {why}" for why, figures in by_reason.items()]
    return "Different from the paper:\n\n" + "\n".join(lines)


def _headline(finished: Finished) -> str:
    """Return the section of the grid of every method under every attack; empty without such runs."""
    if not finished:
        return ""
    compared = Comparison.of(finished)
    drawn = [f"![{panel.title}]({FIGURES}/{map_name(panel, 'headline')}.png)" for panel in compared.panels]
    return fill(
        "results-headline",
        runs=plural(len(finished), "run"),
        pictures="\n\n".join(drawn),
        tables=compared.markdown(),
    )


def _left(compared: Mapping[str, Sequence[Compared]]) -> str:
    """Return which runs of seed 0 have not finished, item by item, and the command that plays them."""
    lines = []
    for name, found in compared.items():
        for dataset in dict.fromkeys(each.cell.dataset for each in found):
            here = [each for each in found if each.cell.dataset == dataset]
            runs = distinct(each.cell for each in here)
            done = distinct(each.cell for each in here if 0 in each.runs)
            left = [cell for key, cell in runs.items() if key not in done]
            if left and dataset not in STAND_IN:
                command = f"python -m reproduction run {name} --dataset {dataset}"
                which = "all" if len(left) == len(runs) else _columns(left, runs.values())
                lines.append(f"- `{command}`: {plural(len(left), 'cell')}: {which}")
    return fill("results-left", lines="\n".join(lines)) if lines else ""


def _columns(left: Sequence[PaperCell], runs: Iterable[PaperCell]) -> str:
    """Return the cells that are left, by column; of a column that is left as a whole, its name only."""
    rows: dict[str, list[str]] = {}
    for cell in left:
        rows.setdefault(cell.column, []).append(cell.row)
    whole = Counter(cell.column for cell in runs)
    texts = (
        column if len(missing) == whole[column] else f"{column} ({', '.join(missing)})"
        for column, missing in rows.items()
    )
    return "; ".join(texts)


# --- REPRODUCING.md


def reproducing_page(recorded: Recorded) -> str:
    """Return the page."""
    found = by_heading(compare(items()["traps"], recorded))
    plain = {
        "nan": cells_of.NAN,
        "assumed": cells_of.ASSUMED,
        "limit": cells_of.LIMIT,
        "claims": cells_of.CLAIMS,
        "trust": cells_of.TRUST,
        "windows": cells_of.WINDOWS,
    }
    replaced = {dataset: TABLE_1[dataset, "model-replacement"][6] for dataset in DATASETS}
    return fill(
        "REPRODUCING",
        tolerance=f"{TOLERANCE:g}",
        picks=len(cells_of.PICKS),
        picked=_picked(found.get(cells_of.PICKED, ())),
        lie=_lie(found.get(cells_of.LIE, ())),
        lie_chance=f"{100 * _lie_chance():.0f}",
        lie_missed=f"{(TABLE_3['emnist', 'lie'][3] or 0) * CLIENTS['emnist'][1] / 100:.0f}",
        **{f"nan_{dataset}": score for dataset, score in NAN_SCORES.items()},
        **{f"fltrust_{dataset}": figure for dataset, figure in replaced.items()},
        **{name: _plain(found.get(panel, ())) for name, panel in plain.items()},
        impossible=_impossible().markdown(),
    )


def _lie_chance() -> float:
    """Return the chance that a round of 100 on EMNIST has more malicious than half of the participants."""
    from scipy.stats import hypergeom

    participants, (clients, malicious) = 20, CLIENTS["emnist"]
    return float(1 - hypergeom.cdf(participants // 2, clients, malicious, participants) ** 100)


def _plain(inside: Sequence[Compared]) -> str:
    """Return a table over the seeds that all of its finished cells have."""
    if not inside:
        return NOT_YET
    common = set.intersection(*(set(each.runs) for each in inside if each.runs))
    paired = [
        replace(each, runs={seed: run for seed, run in each.runs.items() if seed in common})
        for each in inside
    ]
    return table("", paired, "<br>").markdown()


def _lie(inside: Sequence[Compared]) -> str:
    """Return a row for each method and seed: what matters is one round of one seed."""
    columns = list(dict.fromkeys(each.cell.column for each in inside))
    rows: list[list[Value]] = []
    for name in dict.fromkeys(each.cell.row for each in inside):
        for seed in sorted({seed for each in inside for seed in each.runs}):
            at = {each.cell.column: each for each in inside if each.cell.row == name}
            texts = [_of_seed(at[column], seed) if column in at else "" for column in columns]
            rows.append([name, seed, *texts])
    return Table(["", "seed", *columns], rows, notes=[_removed(inside)]).markdown() if rows else NOT_YET


def _removed(inside: Sequence[Compared]) -> str:
    """Return how many clients were removed under the unbounded attack, and in which rounds."""
    texts = []
    for each in inside:
        if each.cell.attack == "lie-unbounded" and each.cell.read == "dacc":
            for seed, run in each.runs.items():
                rounds = Counter(client.removed for client in run.clients if client.removed)
                parts = [f"{plural(count, 'client')} in round {number}" for number, count in rounds.items()]
                texts.append(f"{each.cell.row}, seed {seed}: {' and '.join(parts) or 'none'}")
    return f"Removed under `lie-unbounded`: {'; '.join(texts)}." if texts else ""


def _of_seed(compared: Compared, seed: int) -> str:
    run = compared.runs.get(seed)
    if run is None:
        return "–"
    return compared.cell.measure.text(compared.cell.measure.of(run)) + " †" * run.diverged


def _picked(inside: Sequence[Compared]) -> str:
    """Return, for each attack, the gain of the best setting on the first seed, there and on other seeds."""
    rows: list[list[Value]] = []
    for attack in dict.fromkeys(each.cell.row for each in inside):
        here = {each.cell.column: each.runs for each in inside if each.cell.row == attack}
        one = here.pop(cells_of.ONE, {})
        common = sorted(set(one).intersection(*here.values()))
        if not common:
            continue
        first = common[0]
        best = max(here, key=lambda name: here[name][first].tacc)
        others = [seed for seed in one if seed in here[best] and seed != first]
        if others:
            gain = here[best][first].tacc - one[first].tacc
            again = fmean(here[best][seed].tacc - one[seed].tacc for seed in others)
            rows.append([attack, best, gain, again, len(others)])
    if not rows:
        return NOT_YET
    means = ["**mean**", "", *(fmean(float(row[at] or 0) for row in rows) for at in (2, 3)), None]
    columns = ("attack", "picked", "gain where picked", "gain on other seeds", "other seeds")
    note = (
        "Picked: alpha, phi and lambda. Gain: points of accuracy above the data set's one setting, on the"
        " seed of the choice, and the mean over the other seeds."
    )
    return Table(columns, [*rows, means], notes=[note]).markdown()


def _impossible() -> Table:
    """Return the rows of Table III whose rates contradict each other."""
    rows: list[list[Value]] = []
    for (dataset, attack), (_, dacc, fpr, fnr) in TABLE_3.items():
        clients, malicious = CLIENTS[dataset]
        if dacc is not None and fnr is not None and not fpr:
            implied = (100 - dacc) * clients / malicious
            if abs(implied - fnr) > 0.05:
                rows.append([dataset, attack, f"{dacc:g}", f"{fnr:g}", f"{implied:.2f}"])
    return Table(("data set", "attack", "DAcc", "FNR as printed", "FNR by DAcc"), rows)
