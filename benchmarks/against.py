"""The speed of this tree compared with another revision's: `python -m benchmarks.against REV [--turns 5]`.

REV is checked out into a temporary worktree. Each tree has one process for all jobs. The two processes play
rounds in turn, so that both are measured under the same load. The best and the median round of each are
compared. The first round of each job does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from benchmarks import report
from benchmarks.work import WORK

HERE = Path(__file__).parents[1]
METHODS = {"fedavg": "fedavg none", "fedcap": "fedcap none", "fedcap under IPM": "fedcap ipm"}
JOBS = {
    **{
        f"{work.name}, {name}": f"round {work.name} {method}"
        for work in WORK
        for name, method in METHODS.items()
    },
    "server step, N = 300, D = 156,810": "server 300 156810",
}


class Player:
    """A process that plays rounds with the code of a tree, one on each request."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "benchmarks" / "player.py")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts: dict[str, Any] = self._answer()
        if not Path(self.facts["package"]).is_relative_to(tree):
            raise RuntimeError(f"the player of {tree} imports {self.facts['package']}")

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def play(self) -> float | None:
        """Play a round; return its seconds, or None if the tree has no such work."""
        self.send("go")
        seconds: float | None = self._answer()
        return seconds

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the player of {self.tree} has ended with {self.process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipe, which ends the process."""
        self.process.communicate()


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """Yield the path of a temporary worktree of a revision."""
    git = ["git", "-C", str(HERE), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "tree"
        if subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision]).returncode:
            sys.exit(f"git cannot check out {revision!r}")
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def in_turns(players: Sequence[Player], job: str, turns: int) -> list[list[float]] | None:
    """Return the seconds of each player's rounds, or None if one of them cannot play the job.

    The order of the players is reversed in every turn.
    """
    for player in players:
        player.send(job)
    taken: list[list[float | None]] = [[] for _ in players]
    for turn in range(turns + 1):
        order = range(len(players)) if turn % 2 else reversed(range(len(players)))
        for at in order:
            taken[at].append(players[at].play())
    for player in players:
        player.send("stop")
    counted = [[seconds for seconds in each[1:] if seconds is not None] for each in taken]
    return counted if all(counted) else None


def compared(players: Sequence[Player], turns: int) -> Iterator[report.Row]:
    """Yield a row of the table for each job."""
    for name, job in JOBS.items():
        taken = in_turns(players, job, turns)
        if taken is None:
            continue
        ours, theirs = taken
        row: dict[str, Any] = {"work": name}
        for what, of in (("best", min), ("median", statistics.median)):
            row |= {f"this tree, {what}, s": of(ours), f"other, {what}, s": of(theirs)}
            row |= {f"times as fast, {what}": of(theirs) / of(ours)}
        yield row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("revision", metavar="REV", help="the git revision to compare with")
    parser.add_argument("--turns", type=int, default=5, help="rounds that count, of each job and tree")
    chosen = parser.parse_args(arguments)
    rows = []
    with checkout(chosen.revision) as tree, Player(HERE) as ours, Player(tree) as theirs:
        if ours.facts["work"] != theirs.facts["work"]:
            sys.exit(f"{chosen.revision} has other work in benchmarks/work.py: the two cannot be compared")
        for row in compared([ours, theirs], chosen.turns):
            rows.append(row)
            report.progress(row)
        counts = [player.facts["threads"] for player in (ours, theirs)]
    used = "one in each worker process and in the server of a run; in the server step {} here, {} there"
    print(report.table(f"Seconds per round, compared with {chosen.revision}", rows, used.format(*counts)))


if __name__ == "__main__":
    main()
