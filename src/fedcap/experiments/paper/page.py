"""`docs/RESULTS.md`: every table and figure as far as its runs have finished, beside the paper's.

All figures are computed from recorded outcomes; only the prose around them is written by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fedcap.errors import plural
from fedcap.experiments.paper.columns import ONE_SETTING
from fedcap.experiments.paper.entry import Entry, Item
from fedcap.experiments.paper.items import items
from fedcap.experiments.paper.measures import POINTS
from fedcap.experiments.paper.pictures import pictures
from fedcap.experiments.paper.reasons import reason
from fedcap.experiments.paper.recorded import Recorded, planned, resolved
from fedcap.experiments.paper.setups import DATASETS, SET_UP_OF, STAND_IN
from fedcap.experiments.paper.show import Compared, compare, contests, panels, table
from fedcap.report.tables import Table

FIGURES = "figures"
"""The folder of pictures, beside the page."""

HEAD = """# Results

The paper's tables and figures, run here, with its figure beside ours where it prints one. Everything
below is computed from the outcomes in [`results/`](../results) by `make results`; a test does it again
and compares. What to watch for when comparing with the paper, or with anybody's figures, is in
[REPRODUCING.md](REPRODUCING.md)."""

HOW_TO_READ = """## How to read the figures

- Accuracy is in percent, over all test samples of the honest clients, in the last round and never the
  best one. The headline is the better of two readings: *shared*, with the model that a client receives,
  and *personal*, with the one it has after training. Tables I and II read the personal one of every rule,
  as the paper does.
- In a cell, ours is above: the mean over seeds, ± half of its 95 % interval (Student's t). Below is the
  paper's figure, and ours less the paper's. A seed fixes partition, attackers and first weights, so
  methods of the same seed are compared like with like. One seed has no interval; the paper's figures have
  none either.
- † marks runs that diverged: weights of honest clients became NaN or infinite. They count in the mean.
- *FedCAP* has the paper's settings, which were picked for each attack. *FedCAP, one setting* has one for
  all attacks of a data set, as a defender must: that is the column to trust.
- DAcc is the share of clients rightly kept or removed, FPR that of honest clients removed, FNR that of
  attackers not removed.
- A figure agrees with the paper's if it is within {tolerances}. Rates must be equal, and rounds to 80 %
  within three. Time and traffic are not judged.
- CIFAR-10 was at hand in part where these were run: two of its six files, 20,000 of 60,000 images. Runs with
  all of them are other runs, and their figures may differ.
- EMNIST could not be had where these were run: `handwritten62` stands in, in its set-up and under its own
  name. It is other data, so no difference is taken."""


LEFT = """## What is left

Cells of seed 0 that have not finished, and the command that continues them. Where EMNIST is at hand,
`--dataset emnist` runs on it what is listed for `handwritten62`; `--seeds 1,2` adds seeds.
"""


def results_page(recorded: Recorded, headline: str = "") -> str:
    """Return the page; `headline` is the section of the grid of every method under every attack."""
    compared = {name: compare(item, recorded) for name, item in items().items() if name != "traps"}
    tolerances = ", ".join(f"{points:g} points on {dataset}" for dataset, points in POINTS.items())
    sections = [
        HEAD,
        HOW_TO_READ.format(tolerances=tolerances),
        _one_setting(),
        _at_a_glance(compared),
        *(_section(items()[name], found) for name, found in compared.items()),
        headline,
        _missing(compared),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _one_setting() -> str:
    rows = []
    for dataset in (*DATASETS[:2], *SET_UP_OF, *DATASETS[2:]):
        method = resolved(Entry(dataset, "", "", {"name": "fedcap"}, "none"))["method"]
        rows.append([dataset, *(f"{method[option]:g}" for option in ("alpha", "phi", "lambda_", "t_norm"))])
    made = Table(("data set", "alpha", "phi", "lambda", "t_norm"), rows)
    said = "The one setting of each data set: the paper's without attack. `fedcap tune` chooses another."
    return f"{said}\n\n{made.markdown()}"


def _at_a_glance(compared: Mapping[str, Sequence[Compared]]) -> str:
    rows: list[list[str]] = []
    for name, found in compared.items():
        for dataset in dict.fromkeys(each.entry.dataset for each in found):
            here = [each for each in found if each.entry.dataset == dataset]
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
    return "## At a glance\n\n" + Table(columns, rows).markdown()


def _verdict(found: Sequence[Compared]) -> list[str]:
    """Return how many figures agree with the paper's, and in how many rows FedCAP leads, either column."""
    judged = [each for each in found if each.agrees is not None]
    said = [_share(sum(bool(each.agrees) for each in judged), len(judged))]
    for column in ("FedCAP", ONE_SETTING):
        rows = contests(found, column)
        said.append(_share(sum(row.first for row in rows), len(rows)))
    return said


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "–"


def _finished(found: Sequence[Compared]) -> str:
    """Return how many of the runs behind entries have finished with at least one seed."""
    having = planned(each.entry for each in found if each.runs)
    return _share(len(having), len(planned(each.entry for each in found)))


def _anchor(item: Item) -> str:
    kept = (letter for letter in item.title.lower() if letter.isalnum() or letter in " -")
    return "".join(kept).replace(" ", "-")


def _section(item: Item, found: Sequence[Compared]) -> str:
    """Return one table or figure: what there is of it, and what does not agree; empty if there is nothing."""
    if not any(each.runs for each in found):
        return ""
    parts = [f"## {item.title}", *([item.note] if item.note else [])]
    for heading, inside in panels(found).items():
        parts += [f"### {heading}", *_tabulated(inside)]
    parts += [f"![{item.title}]({FIGURES}/{name}.png)" for name in pictures(item, found)]
    return "\n\n".join(parts)


def _tabulated(inside: Sequence[Compared]) -> list[str]:
    """Return the table, how much of it agrees, in how many rows FedCAP leads, and what does not agree."""
    made = table("", inside, "<br>", brief=True)
    judged = [each for each in inside if each.agrees is not None]
    said = []
    if judged:
        said.append(f"{_share(sum(bool(each.agrees) for each in judged), len(judged))} judged figures agree.")
    for column in ("FedCAP", ONE_SETTING):
        rows = contests(inside, column)
        if rows:
            behind = [
                f"{row.row}: {row.fedcap.mean:.1f} behind {row.rival.entry.column}'s {row.rival.mean:.1f}"
                for row in rows
                if not row.first
            ]
            tail = f"; not under {'; '.join(behind)}" if behind else ""
            said.append(f"{column} leads {_share(len(rows) - len(behind), len(rows))} rows{tail}.")
    parts = [made.markdown(), *([" ".join(said)] if said else [])]
    apart = [each for each in judged if not each.agrees]
    return [*parts, _apart(apart)] if apart else parts


def _apart(found: Sequence[Compared]) -> str:
    """Return a line for each reason why figures differ, with those that it is about."""
    by_reason: dict[str, list[str]] = {}
    for each in found:
        entry = each.entry
        figure = entry.measure.text(each.mean)
        said = f"{entry.row}, {entry.column} ({figure}, the paper {entry.measure.text(entry.published)})"
        by_reason.setdefault(reason(each) or "Not explained yet.", []).append(said)
    lines = [f"- {'; '.join(figures)}. {why}" for why, figures in by_reason.items()]
    return "Not as in the paper:\n\n" + "\n".join(lines)


def _missing(compared: Mapping[str, Sequence[Compared]]) -> str:
    """Return which runs of seed 0 have not finished, item by item, and the command that goes on."""
    lines = []
    for name, found in compared.items():
        for dataset in dict.fromkeys(each.entry.dataset for each in found):
            here = [each for each in found if each.entry.dataset == dataset]
            plans = planned(each.entry for each in here)
            having = planned(each.entry for each in here if 0 in each.runs)
            left = [entry for key, entry in plans.items() if key not in having]
            if left and dataset not in STAND_IN:
                command = f"fedcap paper run {name} --dataset {dataset} --results results"
                which = "all" if len(left) == len(plans) else _which(left, plans.values())
                lines.append(f"- `{command}`: {plural(len(left), 'cell')}: {which}")
    return "\n".join([LEFT, *lines]) if lines else ""


def _which(left: Sequence[Entry], plans: Iterable[Entry]) -> str:
    """Return which entries are left, by column; of a column that is left as a whole, its name alone."""
    rows: dict[str, list[str]] = {}
    for entry in left:
        rows.setdefault(entry.column, []).append(entry.row)
    whole = Counter(entry.column for entry in plans)
    said = (
        column if len(missing) == whole[column] else f"{column} ({', '.join(missing)})"
        for column, missing in rows.items()
    )
    return "; ".join(said)
