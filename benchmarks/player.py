"""One side of `benchmarks.against`: a process that plays rounds of whichever tree it is started in.

It reads a line at a time: a job ("round NETWORK METHOD", "server N D"), then "go" for each round, then
"stop". It answers each "go" with the seconds that the round took. The script is that of the newer tree in
both processes; what it imports is the tree's own, so it may use only what both have.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time

import torch

import fedcap
from benchmarks import server
from benchmarks.work import WORK

ANSWERS = os.fdopen(os.dup(1), "w")
"""Where answers go; whatever else is printed goes to standard error."""


class Stop(Exception):
    """The other side wants no more rounds of this job."""


def say(value: object) -> None:
    print(json.dumps(value), file=ANSWERS, flush=True)


def wait() -> None:
    """Return when told to go."""
    if sys.stdin.readline().strip() != "go":
        raise Stop


class Turns:
    """An observer that lets a run go on, round by round, whenever it is told."""

    def started(self, simulation: object) -> None:
        wait()
        self.began = time.perf_counter()

    def round_done(self, simulation: object, record: object) -> None:
        say(time.perf_counter() - self.began)
        wait()
        self.began = time.perf_counter()

    def finished(self, result: object) -> None:
        raise RuntimeError("the run ended before it was told to")


def play_rounds(network: str, method: str, attack: str) -> None:
    """Play rounds of a run; under an attack a quarter of the clients are malicious."""
    work = next(work for work in WORK if work.name == network)
    experiment = fedcap.Experiment(
        **work.settings(),
        method=method,
        attack="none" if attack == "none" else {"name": attack, "epsilon": 1000},
        malicious=0.25,
        rounds=10_000,
    )
    experiment.run(observers=[Turns()])


def play_steps(clients: int, weights: int) -> None:
    """Do the server's step, with all threads; answer with null if this tree has none that can be called."""
    try:
        step = server.step(clients, weights)
    except (AttributeError, TypeError):
        step = None
    while True:
        wait()
        began = time.perf_counter()
        if step is not None:
            step()
        say(None if step is None else time.perf_counter() - began)


def digest_of_work() -> str:
    """Return a digest that is the same in both trees if, and only if, their work is."""
    digest = hashlib.sha256()
    for work in WORK:
        x, y = work.data
        facts = (
            work.name,
            work.clients,
            work.train,
            work.test,
            sum(p.numel() for p in work.build().parameters()),
        )
        digest.update(repr(facts).encode() + x.numpy().tobytes() + y.numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    sys.stdout = sys.stderr
    say({"package": fedcap.__file__, "work": digest_of_work(), "threads": torch.get_num_threads()})
    for line in iter(sys.stdin.readline, ""):
        what, *options = line.split()
        try:
            if what == "round":
                play_rounds(*options)
            else:
                play_steps(*map(int, options))
        except Stop:
            continue


if __name__ == "__main__":
    main()
