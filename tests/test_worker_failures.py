"""A worker pool whose workers die, fail or are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest
from training_tools import (
    DiesAtTwelve,
    DiesOnce,
    Pair,
    RaisesAtTwelve,
    assert_same,
    children,
    data_of,
    outcome,
    own_children,
    runner_of,
)

from fedcap.training import WorkerError
from fedcap.training.workers import InProcessPool, ProcessPool


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPool]:
    with ProcessPool(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def expected():
    """The results of the tasks in this process."""
    return outcome(InProcessPool(), runner_of(Pair()))


def test_a_worker_killed_during_a_task_is_replaced(workers: ProcessPool, tmp_path: Path, expected):
    marker = tmp_path / "died"
    assert_same(outcome(workers, runner_of(DiesOnce(marker=str(marker)))), expected)
    assert marker.exists()


def test_a_method_that_raises_stops_the_workers_and_new_ones_are_started(workers: ProcessPool, expected):
    workers.open(runner_of(RaisesAtTwelve()), data_of())
    before = own_children()
    with pytest.raises(WorkerError, match="client 2: ArithmeticError: the abacus broke") as failure:
        outcome(workers, None)
    (note,) = failure.value.__notes__
    assert "in train" in note  # the worker's traceback
    assert len(own_children()) == len(before) - 2
    assert_same(outcome(workers, runner_of(Pair())), expected)


def test_a_worker_killed_between_two_batches_is_replaced(workers: ProcessPool, expected):
    assert_same(outcome(workers, runner_of(Pair())), expected)
    victim = max(own_children())
    os.kill(victim, signal.SIGKILL)
    assert_same(outcome(workers, None), expected)
    assert victim not in own_children()


def test_a_task_that_kills_every_worker_is_an_error_that_names_the_client(workers: ProcessPool):
    with pytest.raises(WorkerError, match="client 2: 3 workers died, the last with exit code -9"):
        outcome(workers, runner_of(DiesAtTwelve()))


def test_closing_a_pool_leaves_no_process_behind():
    before = own_children()
    with ProcessPool(3) as pool:
        pool.open(runner_of(Pair()), data_of())
        assert len(own_children() - before) == 3
    assert own_children() == before


OPENING = """
import signal, time
from fedcap.training.workers import ProcessPool
from training_tools import TASKS, Pair, Sleepy, runner_of, data_of, outcome
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told us to ignore it
pool = ProcessPool(2)
"""

Script = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def script() -> Iterator[Script]:
    """Start scripts that have a pool of two; each is, with its workers, a process group of its own."""
    started = []

    def start(text: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OPENING + dedent(text)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line that a script prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def complaints(process: subprocess.Popen[str]) -> str:
    """Kill a script; return what it and its workers wrote to stderr, once the last of them has ended."""
    process.kill()
    return process.communicate(timeout=60)[1]


def test_workers_do_not_see_ctrl_c_not_even_while_they_start(script: Script):
    process = script("""
        try:
            pool.open(runner_of(Pair()), data_of())
            print("opened", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        outcome(pool, None)
        print("done", flush=True)
        time.sleep(60)
    """)
    assert heard(process) == "opened"
    before = children(process.pid)
    assert len(before) == 2
    os.killpg(process.pid, signal.SIGINT)
    assert heard(process) == "interrupted"
    assert heard(process) == "done"
    assert children(process.pid) == before
    assert complaints(process) == ""


def test_ctrl_c_in_the_middle_of_a_batch_stops_the_workers_at_once(script: Script):
    process = script("""
        pool.open(runner_of(Sleepy(seconds=60)), data_of())
        outcome(pool, None, TASKS[5:])
        print("ready", flush=True)
        try:
            outcome(pool, None)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            time.sleep(60)
    """)
    assert heard(process) == "ready"
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    assert heard(process) == "interrupted"
    assert children(process.pid) == set()
    assert complaints(process) == ""


@pytest.mark.parametrize("nap", [0, 2], ids=["between two jobs", "in the middle of a job"])
@pytest.mark.slow
def test_workers_end_when_the_process_that_started_them_is_killed(script: Script, nap: int):
    process = script(f"""
        pool.open(runner_of(Sleepy(seconds={nap})), data_of())
        outcome(pool, None, TASKS[5:])
        print("ready", flush=True)
        outcome(pool, None)
        time.sleep(60)
    """)
    assert heard(process) == "ready"
    time.sleep(1)
    assert len(children(process.pid)) == 2
    assert complaints(process) == ""
