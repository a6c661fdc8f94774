"""Children that end with their parent, logs that grow, and the lock of the server app."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from fedcap.federation.config import FEDERATION, Federation, Operator, SiteDirectory, held, is_held
from fedcap.federation.flower import node as node_module
from fedcap.federation.flower import server
from fedcap.federation.flower.node import Node
from fedcap.federation.flower.process import Program, Tail, environment
from fedcap.federation.flower.server import LOCK, end_server_app, locked


def soon(condition: Callable[[], bool], seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def alive(process: int) -> bool:
    """Return whether a process runs; one that has ended and was not asked about does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_children_of_a_program_end_with_it(tmp_path: Path) -> None:
    with Program(["sh", "-c", "sleep 60 & echo $!; wait"], os.environ, tmp_path / "log") as child:
        assert soon(lambda: child.output().endswith("\n"))
        inner = int(child.output())
        assert alive(inner)
    assert not child.is_running
    assert soon(lambda: not alive(inner))


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = Program(["sh", "-c", "trap '' TERM; echo here; sleep 60; sleep 60"], os.environ, tmp_path / "log")
    assert soon(lambda: "here" in child.output())
    child.stop(seconds=0.2)
    assert child.exit_code == -signal.SIGKILL


def test_a_program_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from fedcap.federation.flower.process import Program\n"
        "print(Program(['sleep', '60'], os.environ, Path(sys.argv[1])).pid, flush=True)\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    assert soon(lambda: not alive(child))


def test_the_output_of_a_program_begins_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("earlier\n")
    with Program(["echo", "now"], os.environ, tmp_path / "log") as child:
        assert soon(lambda: child.output() == "now\n")
    assert (tmp_path / "log").read_text() == "earlier\nnow\n"


def test_a_log_is_read_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text("one\ntw")
    assert tail.read() == ["one"]
    path.write_text("one\ntwo\nthree\n")
    assert tail.read() == ["two", "three"]
    assert (tail.read(), tail.last) == ([], "three")
    assert Tail(path).read() == []


def test_variables_of_flower_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", "/elsewhere")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_SUPERGRID_ADDRESS", "elsewhere")
    found = environment(tmp_path)
    assert found["FLWR_HOME"] == str(tmp_path)
    assert found["FLWR_TELEMETRY_ENABLED"] == "0"
    assert "FLWR_SUPERGRID_ADDRESS" not in found


def holder(directory: Path, variable: str = "") -> subprocess.Popen[bytes]:
    """Return a process that holds the lock of the server app; its environment names a directory."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from fedcap.federation.flower.server import locked\n"
        "with locked(Path(sys.argv[1])): time.sleep(60)"
    )
    env = {**os.environ, "FEDCAP_OPERATOR": variable or str(directory)}
    started = subprocess.Popen([sys.executable, "-c", code, str(directory)], env=env)
    assert soon(lambda: (directory / "server.pid").exists() and is_held(directory, LOCK))
    return started


def test_the_lock_is_visible_to_other_processes_and_its_holder_is_ended(tmp_path: Path) -> None:
    assert not is_held(tmp_path, LOCK)
    process = holder(tmp_path)
    end_server_app(tmp_path)
    assert process.wait(5) == -signal.SIGTERM
    assert not is_held(tmp_path, LOCK)
    with locked(tmp_path):
        assert is_held(tmp_path, LOCK)


def test_a_process_that_is_no_server_app_of_the_directory_is_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcap.federation.flower.server.END_SECONDS", 0.2)
    another = subprocess.Popen(["sleep", "60"], env={"FEDCAP_OPERATOR": str(tmp_path / "another")})
    with locked(tmp_path):  # a new holder, which has not written its number yet
        (tmp_path / "server.pid").write_text(str(another.pid))
        end_server_app(tmp_path)
        assert another.poll() is None
    another.kill()
    another.wait()


def test_a_command_of_flower_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flower").mkdir()
    (tmp_path / FEDERATION).write_text(Federation(host="localhost").text())
    (tmp_path / "hang").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "hang").chmod(0o755)
    monkeypatch.setattr(server, "program", lambda _: str(tmp_path / "hang"))
    monkeypatch.setattr(server, "COMMAND_SECONDS", 0.1)
    with pytest.raises(server.CommandFailed, match="flwr run did not end within"):
        server.flwr(Operator(tmp_path), "run")


def test_checking_a_lock_does_not_prevent_others_from_taking_it(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            is_held(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(50):
            with held(tmp_path):
                pass
    finally:
        stop.set()
        for looker in lookers:
            looker.join()
    with held(tmp_path):
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def test_a_reaped_program_is_not_signalled(tmp_path: Path) -> None:
    program = Program(["true"], os.environ, tmp_path / "log")
    assert soon(lambda: not program.is_running)
    assert Path(f"/proc/{program.pid}/stat").exists()  # its number cannot be given to another process
    program.stop()
    assert not Path(f"/proc/{program.pid}/stat").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "killpg", None)
        patch.setattr(os, "kill", None)
        program.kill()
        program.stop()
        program.signal(signal.SIGTERM)


def test_a_program_is_started_without_running_python_between_fork_and_exec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {}
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        given.update(options)
        return real(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", popen)
    Program(["true"], os.environ, tmp_path / "log").stop()
    assert "preexec_fn" not in given


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("SuperNode ID: 7", "connected to h:1"),
        ("Connection attempt failed, retrying in 3 seconds", "no answer from h:1"),
        ("[code: 2004] Failed to activate SuperNode.", "not approved yet (fingerprint me)"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: x", "not by the authority in"),
        ("ERROR: SSL/TLS handshake error detected.", "no TLS with h:1"),
        ("Client error '401 Unauthorized' for url 'https://h:1/v1/fleet/activate-node'", "clock"),
        ("Client error '404 Not Found' for url 'https://h:1/v1/fleet/activate-node'", "not a federation's"),
        ("Receiving: train message", "None"),
    ],
)
def test_lines_of_a_supernodes_log_are_explained(tmp_path: Path, line: str, meaning: str) -> None:
    assert meaning in str(Node(SiteDirectory(tmp_path), "h:1", "me", []).explain(line))


def test_a_node_is_kept_running_and_its_state_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    stop, starts = threading.Event(), iter(range(9))
    log = SiteDirectory(tmp_path).logs / "supernode.log"

    def start(node: Node) -> Program:
        lines = [["SuperNode ID: 7"] * 2, ["retrying in 1 s", "Exit: [code: 2004]"], ["SuperNode ID: 7"]]
        words = lines[next(starts)]
        return Program(["sh", "-c", "; ".join(f"echo '{word}'" for word in words)], os.environ, log)

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 5:
            stop.set()

    monkeypatch.setattr(Node, "start", start)
    monkeypatch.setattr(node_module, "PAUSE", 0.01)
    Node(SiteDirectory(tmp_path), "h:1", "me", []).run(say, stop)
    kinds = ["connected", "SuperNode ended", "no answer", "rejected", "connected"]
    assert [kind in line for kind, line in zip(kinds, said, strict=True)] == [True] * 5


def test_a_node_ends_when_the_server_of_a_finished_federation_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    log = SiteDirectory(tmp_path).logs / "supernode.log"
    command = ["sh", "-c", "echo SuperNode ID: 7; sleep 1; echo retrying in 1 s; sleep 60"]
    monkeypatch.setattr(Node, "start", lambda _: Program(command, os.environ, log))
    Node(SiteDirectory(tmp_path), "h:1", "me", []).run(said.append, threading.Event(), lambda: bool(said))
    assert said == ["connected to h:1", "the federation is finished: all rounds are done"]
