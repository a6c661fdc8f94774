"""Workers: no more than are useful, replaced if they are killed, not replaced if they are slow."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import without_times
from training_tools import (
    TASKS,
    Pair,
    Sleepy,
    assert_same,
    data_of,
    outcome,
    own_children,
    runner_of,
    tiny_data,
    tiny_runner,
)

import fedcap
from fedcap.errors import warn_once
from fedcap.training import available_cores, make_pool
from fedcap.training.workers import InProcessPool, ProcessPool, processes


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.5)


@pytest.fixture(scope="module")
def expected():
    """The results of the tasks in this process."""
    return outcome(InProcessPool(), runner_of(Pair()))


def test_there_are_no_more_workers_than_clients() -> None:
    before = own_children()
    with ProcessPool(9) as pool:
        pool.open(tiny_runner(Pair()), tiny_data())
        assert len(own_children() - before) == len(tiny_data()) == 3
        pool.open(runner_of(Pair()), data_of())
        assert len(own_children() - before) == 6


def test_there_are_no_more_workers_than_cores_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_once.cache_clear()
    cores = available_cores()
    with caplog.at_level(logging.WARNING, "fedcap"):
        for _ in range(2):
            pool = make_pool(cores + 7)
            assert isinstance(pool, ProcessPool if cores > 1 else InProcessPool)
        pool = make_pool(cores)
    plural = "s" * (cores > 1)
    said = f"{cores + 7} workers asked for, {cores} core{plural} here: one worker per core is used"
    assert [record.message for record in caplog.records] == [said]


def test_an_experiment_with_too_many_workers_has_the_same_bits() -> None:
    settings = {"rounds": 2, "training": {"epochs": 1}, "attack": "lie"}
    alone = fedcap.Experiment(workers=1, **settings).run()
    many = fedcap.Experiment(workers=64, **settings)
    assert without_times(many.run()) == without_times(alone)
    assert many.settings()["workers"] == 64


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_is_stopped_is_replaced_and_its_task_run_again(
    caplog: pytest.LogCaptureFixture, expected
) -> None:
    before = own_children()
    with ProcessPool(2) as pool, caplog.at_level(logging.WARNING, "fedcap"):
        outcome(pool, runner_of(Pair()))
        victim, other = own_children() - before
        os.kill(victim, signal.SIGSTOP)
        assert_same(outcome(pool, None), expected)
        assert victim not in own_children()
        assert other in own_children()
    said = f"worker process {victim} was stopped for 0.5 s: it is replaced, and its task is run again"
    assert [record.message for record in caplog.records] == [said]


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_goes_on_in_time_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    before = own_children()
    with ProcessPool(1) as pool, caplog.at_level(logging.WARNING, "fedcap"):
        pool.open(runner_of(Sleepy(seconds=0)), data_of())
        outcome(pool, None)
        (worker,) = own_children() - before
        os.kill(worker, signal.SIGSTOP)
        threading.Timer(0.25, os.kill, (worker, signal.SIGCONT)).start()
        outcome(pool, None)
        assert own_children() - before == {worker}
    assert caplog.records == []


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_is_merely_slow_is_never_replaced(caplog: pytest.LogCaptureFixture) -> None:
    before = own_children()
    with ProcessPool(2) as pool, caplog.at_level(logging.WARNING, "fedcap"):
        pool.open(runner_of(Sleepy(seconds=1)), data_of())
        workers = own_children() - before
        outcome(pool, None, TASKS[:2])
        assert own_children() - before == workers
    assert caplog.records == []


def test_checks_that_were_missed_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-Z, this process and its workers stand still together, for however long."""
    monkeypatch.setattr(processes, "PATIENCE", 10.0)
    clock = iter([0.0, 1.5, 1.5, 5000.0, 5000.0])
    monkeypatch.setattr(processes.time, "monotonic", lambda: next(clock))
    stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.kill(stopped.pid, signal.SIGSTOP)
        while Path(f"/proc/{stopped.pid}/stat").read_text().split()[2] != "T":
            time.sleep(0.01)
        detector = processes.StopDetector()
        assert detector.stopped([stopped.pid]) == set()
        assert detector.stopped([stopped.pid]) == set()
    finally:
        stopped.kill()
        stopped.wait()


LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
START = (
    f"{LISTEN}; import runpy, sys; sys.argv[0] = 'fedcap'; runpy.run_module('fedcap', run_name='__main__')"
)


@pytest.mark.parametrize("imported", ["click.core", "torch._C", "fedcap.data"])
def test_ctrl_c_while_something_is_imported_is_one_line_and_exit_code_130(
    tmp_path: Path, imported: str
) -> None:
    """`-X importtime` tells on stderr when a module has been imported; its importers have not, by then."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", START, "run", "--rounds", "500"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.rpartition("|")[2].strip() == imported:
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, out, said) == (130, "", ["fedcap: interrupted"])


def test_ctrl_c_before_there_is_a_directory_does_not_tell_to_resume_it(tmp_path: Path) -> None:
    (tmp_path / "slow_network.py").write_text(
        "import time\n\n\ndef net():\n    print('here', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", START, "run", "--model", "slow_network:net", "--out", "run"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "here\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "fedcap: interrupted\n")


def command_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_text()


@pytest.mark.parametrize("forked", [True, False])
def test_forks_and_new_interpreters_compute_the_same_bits(
    forked: bool, monkeypatch: pytest.MonkeyPatch, expected
) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: forked)
    before = own_children()
    with ProcessPool(2) as pool:
        assert_same(outcome(pool, runner_of(Pair())), expected)
        commands = {command_of(worker) for worker in own_children() - before}
        assert ("workers.worker" in commands.pop()) is not forked


def test_a_process_with_another_thread_is_not_forked() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert not processes.can_fork()
    finally:
        ended.set()
        thread.join()


def test_a_fork_has_no_open_file_but_its_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: True)
    before = own_children()
    with open(tmp_path / "held", "w") as held, ProcessPool(1) as pool:
        outcome(pool, runner_of(Pair()))
        (worker,) = own_children() - before
        files = {int(file.name): os.readlink(file) for file in Path(f"/proc/{worker}/fd").iterdir()}
        assert held.name not in files.values()
        assert files[0] == os.devnull
        assert files[1] == files[2]
        assert [name for number, name in files.items() if number > 2] == [
            name for name in files.values() if name.startswith("socket")
        ]
