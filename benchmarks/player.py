"""One side of `benchmarks.against`: a process that plays rounds with the code of one tree.

It reads a line at a time: a job ("round NETWORK METHOD", "server N D"), then "go" for each round, then
"stop". It answers each "go" with the seconds of the round. Both processes run the script of the newer tree
and import the package of their own tree, so the script may use only what both have.
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
"""Answers are written here; all other output goes to standard error."""


class Stop(Exception):
    """The job has ended: "stop" was read instead of "go"."""


def answer(value: object) -> None:
    print(json.dumps(value), file=ANSWERS, flush=True)


def wait() -> None:
    """Return when "go" is read."""
    if sys.stdin.readline().strip() != "go":
        raise Stop


class Turns:
    """An observer that waits for "go" before each round, and answers with its seconds."""

    def started(self, simulation: object) -> None:
        wait()
        self.began = time.perf_counter()

    def round_done(self, simulation: object, record: object) -> None:
        answer(time.perf_counter() - self.began)
        wait()
        self.began = time.perf_counter()

    def finished(self, result: object) -> None:
        raise RuntimeError('the run ended before "stop" was read')


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
    """Do the server's step, with all threads; answer with null if this tree has no such step."""
    try:
        step = server.step(clients, weights)
    except (AttributeError, TypeError):
        step = None
    while True:
        wait()
        began = time.perf_counter()
        if step is not None:
            step()
        answer(None if step is None else time.perf_counter() - began)


def digest_of_work() -> str:
    """Return a hash of the work, which shows whether both trees have the same."""
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
    answer({"package": fedcap.__file__, "work": digest_of_work(), "threads": torch.get_num_threads()})
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
