"""Compare what two trees compute: `python -m benchmarks.same_bits OLD NEW [--quick] [--only PATTERN]`.

OLD and NEW are git revisions or directories; "." is this tree. Several hundred small runs on `digits` are
played in both trees, each in its own process (`benchmarks.same_bits_player`), and their files are compared:
rounds, mixing weights, checkpoints, results, digests. The exit code is 1 if anything differs.

The items of a revision are cached in `~/.cache/fedcap-same-bits`, by commit, player, processor and library
versions, so that only new cases are played the next time. Set FEDCAP_DATA to the folder that has WISDM and
CIFAR-10, or the digests of published outcomes on them are not checked.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.against import checkout

HERE = Path(__file__).parents[1]
PLAYER = HERE / "benchmarks" / "same_bits_player.py"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "fedcap-same-bits"
WORDING = "wording"
"""Items with sentences for people begin with this."""

Items = Mapping[str, Any]


class Side:
    """One of the two trees, and the items of its cases."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.commit = None if Path(name).is_dir() else commit_of(name)
        self.cases: list[str] = []
        self.quick: list[str] = []
        self.found: dict[str, Items] = {}
        self.played = 0
        self.seconds = 0.0
        self.error: BaseException | None = None
        if self.file is not None and self.file.exists():
            self._read_cache(self.file)

    @property
    def file(self) -> Path | None:
        """The file with the items of a revision; None for a directory, which may change."""
        if self.commit is None:
            return None
        return CACHE / f"{hashlib.sha256(json.dumps([self.commit, *machine()]).encode()).hexdigest()}.jsonl"

    def _read_cache(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            try:
                self._take(json.loads(line))
            except ValueError:  # the process was killed while it wrote the line
                continue

    def _take(self, answer: Mapping[str, Any]) -> None:
        if "cases" in answer:
            self.cases, self.quick = answer["cases"], answer["quick"]
        else:
            self.found[answer["case"]] = answer["items"]

    def wanted(self, quick: bool, only: str) -> list[str]:
        """Return the names of the cases that are chosen, in order."""
        return [name for name in (self.quick if quick else self.cases) if fnmatch.fnmatch(name, only)]

    def play(self, quick: bool, only: str) -> None:
        """Play what is chosen and not known yet."""
        began = time.perf_counter()
        try:
            if not self.cases or set(self.wanted(quick, only)) - self.found.keys():
                with ExitStack() as stack:
                    where = stack.enter_context(checkout(self.name)) if self.commit else Path(self.name)
                    self._play_in(where.resolve(), quick, only)
        except (Exception, SystemExit) as error:
            self.error = error
        self.seconds = time.perf_counter() - began

    def _play_in(self, tree: Path, quick: bool, only: str) -> None:
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        paths = {"PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
        process = subprocess.Popen(
            [sys.executable, "-P", str(PLAYER)],
            env={**os.environ, **one_thread, **paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            head = process.stdout.readline()
            if not head:
                raise RuntimeError(f"the player of {self.name} ended with {process.wait()}")
            facts = json.loads(head)
            if not Path(facts["package"]).is_relative_to(tree):
                raise RuntimeError(f"the player of {self.name} imports {facts['package']}")
            self._take(facts)
            self._keep(json.dumps({"cases": self.cases, "quick": self.quick}))
            left = [name for name in self.wanted(quick, only) if name not in self.found]
            print(json.dumps(left), file=process.stdin, flush=True)
            for line in process.stdout:
                self._take(json.loads(line))
                self._keep(line.rstrip("\n"))
                self.played += 1
        if process.returncode:
            raise RuntimeError(f"the player of {self.name} ended with {process.returncode}")

    def _keep(self, line: str) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with open(self.file, "a", encoding="utf-8") as file:
                file.write(line + "\n")


def commit_of(revision: str) -> str:
    """Return the commit of a revision."""
    command = ["git", "-C", str(HERE), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"{revision!r} is neither a directory nor a git revision")
    return found.stdout.strip()


def machine() -> list[str]:
    """Return what bits depend on apart from the commit: player, processor, libraries, folder of the data."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [f"model name: {platform.processor()}"]
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    variables = [os.environ.get(name, "") for name in ("FEDCAP_PRODUCTS", "FEDCAP_DATA")]
    versions = [version(name) for name in ("torch", "numpy", "scikit-learn", "scipy", "safetensors")]
    return [hashlib.sha256(PLAYER.read_bytes()).hexdigest(), model, sys.version, *variables, *versions]


def compared(old: Items, new: Items, wording: bool) -> str:
    """Return "same", or the first item that differs; without `wording`, sentences are not compared."""
    names = [*old, *(name for name in new if name not in old)]
    for name in names:
        if name.startswith(WORDING) and not wording:
            continue
        if old.get(name, "absent") != new.get(name, "absent"):
            return f"DIFFERENT: {name}: {old.get(name, 'absent')!r}, now {new.get(name, 'absent')!r}"
    return "same"


def report(old: Side, new: Side, chosen: argparse.Namespace) -> bool:
    """Print a line for each case, and a summary; return whether everything is the same."""
    before, now = (side.wanted(chosen.quick, chosen.only) for side in (old, new))
    verdicts: dict[str, str] = {}
    for name in [*before, *(name for name in now if name not in before)]:
        if name not in new.found:
            verdicts[name] = f"DIFFERENT: it is not a case of {new.name}"
        elif name not in old.found:
            verdicts[name] = f"only in {new.name}"
        else:
            verdicts[name] = compared(old.found[name], new.found[name], not chosen.except_wording)
    for name, verdict in verdicts.items():
        if chosen.verbose or verdict != "same":
            print(f"{name}: {verdict}")
    errors = Counter(items["error"] for name in now if "error" in (items := new.found[name]))
    different = sum(verdict.startswith("DIFFERENT") for verdict in verdicts.values())
    same = sum(verdict == "same" for verdict in verdicts.values())
    added = len(verdicts) - same - different
    print(f"{len(verdicts)} cases: {same} same, {different} different" + f", {added} new" * bool(added))
    counted = ", ".join(f"{count} with {kind}" for kind, count in errors.items())
    print(f"  cases whose result is an error: {counted or 'none'}")
    for side in (old, new):
        print(f"  {side.name}: {side.played} played in {side.seconds:.0f} s, the others read from the cache")
    return not different


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_bits", description=__doc__)
    parser.add_argument("old", metavar="OLD", help="a git revision or a directory")
    parser.add_argument("new", metavar="NEW", help='a git revision or a directory; "." is this tree')
    parser.add_argument("--quick", action="store_true", help="one case for each method, attack, rule, …")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="cases by name, such as '*krum*'")
    parser.add_argument("--except-wording", action="store_true", help="do not compare sentences for people")
    parser.add_argument("--verbose", "-v", action="store_true", help="print the cases that are the same too")
    chosen = parser.parse_args(arguments)
    sides = [Side(name) for name in (chosen.old, chosen.new)]
    threads = [threading.Thread(target=side.play, args=(chosen.quick, chosen.only)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for side in sides:
        if side.error is not None:
            sys.exit(f"{side.name}: {side.error}")
    sys.exit(0 if report(*sides, chosen) else 1)


if __name__ == "__main__":
    main()
