"""All planned runs as commands, in order. Each command skips the runs that have finished."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A command of the list."""

    what: str
    command: str
    """`python -m reproduction …` or `fedcap …`."""

    def __str__(self) -> str:
        return f"{self.what}: `{self.command}`"

    def run(self, workers: int | None = None) -> int:
        """Run the command in a process; return its exit code."""
        program, *arguments = shlex.split(self.command)
        if program == "fedcap":
            arguments = ["-m", "fedcap", *arguments]
        if workers is not None:
            arguments += ["--workers", str(workers)]
        return subprocess.run([sys.executable, *arguments], check=False).returncode


def _paper(what: str, names: str, dataset: str, more: str = "") -> Step:
    return Step(what, f"python -m reproduction run {names} --dataset {dataset}{more}")


def _tune(dataset: str) -> Step:
    what = f"The main option of each method on {dataset}, chosen without attack"
    return Step(what, f"python -m reproduction tune --dataset {dataset}")


def _matrix(seeds: str, name: str) -> Step:
    """Return the grid of every method with some seeds; each file has whole seeds."""
    return Step(
        f"Every method under 17 attacks on digits, seeds {seeds}",
        f"fedcap compare examples/headline.toml --seed {seeds} --reuse results"
        f" --save-outcomes results/{name}.jsonl.gz",
    )


PLAN = (
    _paper("FedCAP and robust methods on WISDM", "table-1", "wisdm"),
    _tune("digits"),
    _matrix("0-4", "headline"),
    *(_matrix(f"{seed}", f"headline-seed-{seed}") for seed in range(5, 10)),
    Step(
        "Other methods under variants of attacks that were made against FedCAP",
        "fedcap compare examples/variants.toml --out fedcap-variants"
        " --save-outcomes results/variants.jsonl.gz",
    ),
    _paper("Tables I to III on CIFAR-10", "table-1 table-2 table-3", "cifar10"),
    _paper("The paper's other tables on WISDM", "table-2 table-3 baselines alpha phi lambda", "wisdm"),
    _paper(
        "Parts, efficiency and limits on CIFAR-10",
        "table-4 table-5 norms personal-limits robust-limits",
        "cifar10",
    ),
    _paper(
        "The paper's tables on handwritten62, and the two presets there",
        "table-1 table-2 table-3 baselines ditto-rules alpha phi lambda hardened",
        "handwritten62",
    ),
    _tune("handwritten62"),
    Step(
        "The most robust methods under 18 attacks on handwritten62, three seeds",
        "fedcap compare examples/headline-handwritten62.toml --out fedcap-handwritten62"
        " --save-outcomes results/headline-handwritten62.jsonl.gz",
    ),
    _tune("wisdm"),
    _paper("Two more seeds of Table I on WISDM", "table-1", "wisdm", " --seeds 1,2"),
    _paper("Rules with Ditto, and classes at random, on CIFAR-10", "ditto-rules sharing", "cifar10"),
)
"""The runs that compare FedCAP with other methods come first, and the shorter ones among them."""
