"""The pages and their pictures, from a folder of outcomes: `<name>.json`, and grids as `<name>.jsonl`."""

from __future__ import annotations

from pathlib import Path

from fedcap.errors import plural
from fedcap.experiments.cells import Found
from fedcap.experiments.comparison import Comparison, map_name
from fedcap.experiments.packing import unpack
from fedcap.experiments.paper.items import items
from fedcap.experiments.paper.page import FIGURES, results_page
from fedcap.experiments.paper.pictures import pictures
from fedcap.experiments.paper.recorded import Recorded
from fedcap.experiments.paper.reproducing import reproducing_page
from fedcap.experiments.paper.robustness import robustness_page
from fedcap.experiments.paper.scores import roc_curves
from fedcap.experiments.paper.show import compare
from fedcap.experiments.store import CellStore
from fedcap.files import write_aside

HEADLINE = "headline.jsonl"
ROBUSTNESS = "robustness.jsonl"
HONEST = "honest*.jsonl"
TRAINED = "own-attack.jsonl"
HEADLINE_HEAD = """## Every method under every attack

{runs} on the embedded `digits`: every method, with rules and wrappers, under every attack there is. The
worst attack of each method is a column of its own, since a defender does not choose the attack. Made by
`fedcap compare examples/headline.toml`, then `fedcap paper pack examples/headline.toml -o
results/headline.jsonl`."""


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
        honest = [unpack(path) for path in sorted(results.glob(HONEST))]
        found, trained = _robustness(results), _packed(results / TRAINED)
        made["ROBUSTNESS.md"] = robustness_page(found, everybody, honest, trained)
    return made


def _packed(path: Path) -> Found:
    """Return the runs of a packed grid; none if there is no such file."""
    return unpack(path) if path.exists() else []


def _robustness(results: Path) -> Found:
    """Return the runs of `robustness.jsonl`, then those of `robustness-<data set>.jsonl`."""
    others = sorted(results.glob(f"{Path(ROBUSTNESS).stem}-*.jsonl"))
    return [run for path in (results / ROBUSTNESS, *others) for run in unpack(path)]


def write_pages(results: Path, docs: Path) -> list[Path]:
    """Write the pages, and the pictures into a folder beside them; return what was written."""
    recorded = read_results(results)
    (docs / FIGURES).mkdir(parents=True, exist_ok=True)
    written = []
    for item in items().values():
        for name, draw in pictures(item, compare(item, recorded)).items():
            written += draw(docs / FIGURES / f"{name}.png")
    if (results / HEADLINE).exists():
        written += Comparison.of(unpack(results / HEADLINE)).draw(docs / FIGURES, "headline", ".png")
    if (results / ROBUSTNESS).exists():
        for name, draw in roc_curves(unpack(results / ROBUSTNESS)).items():
            written += draw(docs / FIGURES / f"roc-{name}.png")
    for name, text in pages(results).items():
        write_aside(docs / name, text)
        written.append(docs / name)
    return written


def _headline(found: Found) -> str:
    """Return the section of the grid of every method under every attack; empty if there are no such runs."""
    if not found:
        return ""
    compared = Comparison.of(found)
    head = HEADLINE_HEAD.format(runs=plural(len(found), "run"))
    shown = [f"![{panel.title}]({FIGURES}/{map_name(panel, 'headline')}.png)" for panel in compared.panels]
    return "\n\n".join([head, *shown, *(table.markdown() for table in compared.tables())])
