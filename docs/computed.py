"""Tables that are computed from recorded results, for the README and the pages.

`python -m docs.computed` writes the README's table again after results/ has changed; a test compares the two.
The site's tables are computed whenever it is built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from docs.markdown import table
from fedcap import Experiment
from fedcap.experiments.store import read_outcomes
from fedcap.files import write_aside
from fedcap.report.panel import NO_ATTACK, Panel, make_panels
from fedcap.runs import Outcome
from reproduction.matrix import without_repeats, worst_cases
from reproduction.write import read_grids

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "results"
BENCHMARKS = ROOT / "benchmarks" / "results"
BROKEN = 50.0
"""A method whose mean accuracy is below this is counted as broken by the attack."""
METHODS = ("fedcap", "fltrust", "fedfomo", "ditto", "fedrod", "fedavg", "local")
_README_TABLE = re.compile(r"(?<=<!-- headline -->\n).*?(?=<!-- end -->)", re.DOTALL)


def pages() -> dict[str, str]:
    """Return the tables by the names under which pages include them."""
    return {
        "methods.txt": methods_table(),
        "rules.txt": rules_table(),
        "cuckoo.txt": cuckoo_table(),
        "rounds.txt": benchmark(
            "rounds",
            "network",
            "method",
            "fedcap, rounds per minute",
            "plain loop",
            "times the plain loop",
            "Flower's simulation",
            "times Flower",
            "share of a core's peak, %",
        ),
        "server.txt": benchmark(
            "server",
            "N",
            "D",
            "customise, s",
            "recover to detect, s",
            "share of the peak, %",
            "peak memory so far, GB",
        ),
        "parts.txt": benchmark(
            "parts", "run", "start, s", "train, s", "evaluate, s", "server, s", "records, s", "total, s"
        ),
        "scale.txt": benchmark("scale", "case", "start-up s", "s a round", "peak GB", "disk MB"),
    }


@cache
def panel(name: str) -> Panel:
    """Return the runs of a file in results/, all on one data set; of `headline`, those of all its seeds."""
    if name == "headline":
        return make_panels(without_repeats(read_grids(RESULTS).matrix)[0])[0]
    (found,) = make_panels(read_outcomes(RESULTS / f"{name}.jsonl.gz"))
    return found


def mean(found: Panel, method: str, attack: str, figure: str = "tacc") -> float | None:
    """Return the mean of a figure over seeds."""
    estimate = found.estimate(method, attack, figure)
    return None if estimate is None else estimate.mean


def percent(value: float | None) -> str:
    """Return a value in percent with one digit after the point."""
    return "–" if value is None else f"{value:.1f}"


def worst(found: Panel, method: str) -> tuple[float, str]:
    """Return the lowest mean accuracy of a method, and the attack under which it is that low."""
    lowest = found.worst(method)
    assert lowest is not None
    return lowest.estimate.mean, lowest.attack


def rules(found: Panel) -> list[str]:
    """Return FedAvg with each rule, the best under its worst attack first."""
    names = [name for name in found.methods if name.partition("+")[0] == "fedavg"]
    return sorted(names, key=lambda name: -worst(found, name)[0])


def headline_table() -> str:
    """Return the README's table: methods without an attack, and under their worst attack or variant."""
    grids = read_grids(RESULTS)
    distinct = replace(grids, matrix=without_repeats(grids.matrix)[0])
    cases = {case.method: case for case in worst_cases(distinct)}
    best_rule = next(method for method in cases if method.startswith("fedavg+"))
    rows = [
        [
            method,
            percent(None if case.calm is None else case.calm.mean),
            f"{case.worst.mean:.1f} ({case.attack})",
            str(case.attacks),
        ]
        for method in ("fedcap", "hardened", "fltrust", "local", best_rule, "fedavg")
        if (case := cases[method])
    ]
    return _numbers(["method", "no attack", "worst attack or variant", "attacks and variants run"], rows)


def methods_table() -> str:
    """Return each method's accuracy without an attack, by reading, and under its worst attack."""
    found = panel("headline")
    rows = []
    for method in METHODS:
        readings = [mean(found, method, NO_ATTACK, f"tacc_{reading}") for reading in ("shared", "personal")]
        lowest, attack = worst(found, method)
        rows.append([method, *map(percent, readings), percent(lowest), attack])
    return _numbers(["method", "no attack: shared", "no attack: personal", "worst attack", "which"], rows)


def rules_table() -> str:
    """Return the accuracy of FedAvg with each rule, and the attacks that break it."""
    found = panel("headline")
    rows = []
    for method in rules(found):
        means = {attack: mean(found, method, attack) for attack in found.attacks}
        broken = [attack for attack, value in means.items() if value is not None and value < BROKEN]
        lowest, attack = worst(found, method)
        rows.append(
            [
                method.partition("+")[2] or "mean",
                percent(mean(found, method, NO_ATTACK)),
                f"{percent(lowest)} ({attack})",
                ", ".join(broken) or "none",
            ]
        )
    return _numbers(["rule", "no attack", "worst attack", f"attacks that leave less than {BROKEN:g} %"], rows)


def cuckoo_table() -> str:
    """Return what attackers who know the method do to FedCAP's two presets."""
    found = panel("robustness")
    rows = []
    for attack in (NO_ATTACK, "cuckoo", "cuckoo, longest", "cuckoo, ganging up", "stealth"):
        accuracies = (mean(found, method, attack) for method in ("local", "fedcap", "hardened"))
        removed = (mean(found, method, attack, "fpr") for method in ("fedcap", "hardened"))
        rows.append(["no attack" if attack == NO_ATTACK else attack, *map(percent, [*accuracies, *removed])])
    head = ["attack", "Local", "paper", "hardened", "honest removed, paper", "honest removed, hardened"]
    return _numbers(head, rows)


def off_digits() -> str:
    """Return the accuracy of FedCAP's two presets on handwritten62 under `cuckoo`: 20 rounds, seed 0."""
    wanted = {"rounds": 20, "seed": 0, "lr": Experiment(dataset="handwritten62").settings()["training"]["lr"]}
    found = {}
    for outcome in (Outcome.from_json(path.read_text()) for path in sorted(RESULTS.glob("*.json"))):
        settings = outcome.settings
        names = [settings[key]["name"] for key in ("dataset", "method", "attack")]
        others = {key: settings[key] for key in ("rounds", "seed")} | {"lr": settings["training"]["lr"]}
        if names == ["handwritten62", "fedcap", "cuckoo"] and others == wanted:
            found[settings["method"]["preset"]] = outcome.tacc
    return f"{found['hardened']:.1f} % under `cuckoo`, and the paper's preset {found['paper']:.1f} %"


def benchmark(name: str, *columns: str) -> str:
    """Return columns of a benchmark's table, and where it was measured."""
    content: dict[str, Any] = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))
    rows = [[_text(row[column]) for column in columns] for row in content["rows"]]
    place = f"{content['machine']}. Threads: {content['threads']}."
    return f"{_numbers(columns, rows)}\n\n{place}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _numbers(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns after the first are aligned right."""
    lines = table(head, rows).splitlines()
    lines[1] = f"| --- | {' | '.join(['---:'] * (len(head) - 1))} |"
    return "\n".join(lines)


def readme(text: str) -> str:
    """Return the README with its table computed again."""
    return _README_TABLE.sub(lambda _: headline_table() + "\n", text)


if __name__ == "__main__":
    write_aside(README, readme(README.read_text(encoding="utf-8")))
