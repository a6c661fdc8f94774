"""The pages and their pictures, from a folder of outcomes: `<name>.json`, and grids as `<name>.jsonl`."""

from __future__ import annotations

from pathlib import Path

from fedcap.errors import plural
from fedcap.experiments.comparison import Comparison, map_name
from fedcap.experiments.paper.items import items
from fedcap.experiments.paper.page import FIGURES, results_page
from fedcap.experiments.paper.pictures import pictures
from fedcap.experiments.paper.recorded import Recorded
from fedcap.experiments.paper.reproducing import reproducing_page
from fedcap.experiments.paper.robustness import robustness_page
from fedcap.experiments.paper.scores import roc_curves
from fedcap.experiments.paper.show import compare
from fedcap.experiments.store import CellStore, read_outcomes
from fedcap.files import write_aside
from fedcap.report.panel import Finished

HEADLINE = "headline.jsonl.gz"
ROBUSTNESS = "robustness.jsonl.gz"
HONEST = "honest*.jsonl.gz"
TRAINED = "own-attack.jsonl.gz"
HEADLINE_HEAD = """## Every method under every attack

{runs} on the embedded `digits`: every method, with rules and wrappers, under every attack there is. The
worst attack of each method is a column of its own, since a defender does not choose the attack. Made by
`fedcap compare examples/headline.toml --save-outcomes results/headline.jsonl.gz`."""


def read_results(results: Path) -> Recorded:
    """Return all outcomes in a folder."""
    return Recorded(CellStore(results, results).outcomes().values())


def pages(results: Path) -> dict[str, str]:
    """Return the text of each page by its name."""
    recorded = read_results(results)
    everybody = _packed(results / HEADLINE)
    made = {
        "RESULTS.md": results_page(recorded, _headline(everybody)),
        "REPRODUCING.md": reproducing_page(recorded),
    }
    if (results / ROBUSTNESS).exists():
        honest = [read_outcomes(path) for path in sorted(results.glob(HONEST))]
        found, trained = _robustness(results), _packed(results / TRAINED)
        made["ROBUSTNESS.md"] = robustness_page(found, everybody, honest, trained)
    return made


def _packed(path: Path) -> Finished:
    """Return the runs of a packed grid; none if there is no such file."""
    return read_outcomes(path) if path.exists() else []


def _robustness(results: Path) -> Finished:
    """Return the runs of `robustness.jsonl`, then those of `robustness-<data set>.jsonl`."""
    others = sorted(results.glob("robustness-*.jsonl.gz"))
    return [run for path in (results / ROBUSTNESS, *others) for run in read_outcomes(path)]


def write_pages(results: Path, docs: Path) -> list[Path]:
    """Write the pages, and the pictures into a folder beside them; return what was written."""
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


def _headline(found: Finished) -> str:
    """Return the section of the grid of every method under every attack; empty if there are no such runs."""
    if not found:
        return ""
    compared = Comparison.of(found)
    head = HEADLINE_HEAD.format(runs=plural(len(found), "run"))
    shown = [f"![{panel.title}]({FIGURES}/{map_name(panel, 'headline')}.png)" for panel in compared.panels]
    return "\n\n".join([head, *shown, *(table.markdown() for table in compared.tables())])
