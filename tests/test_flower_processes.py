"""Children that end with their parent, logs that grow, and the lock of the server app."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr")
from fedcap.federation.flower.node import NEWS, REASONS, Node
from fedcap.federation.flower.processes import Child, Tail, environment, free_port, listening
from fedcap.federation.flower.serving import end, is_locked, locked


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


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    with Child(["sh", "-c", "sleep 60 & echo $!; wait"], os.environ, tmp_path / "log") as child:
        assert soon(lambda: child.said().endswith("\n"))
        inner = int(child.said())
        assert alive(inner)
    assert not child.running
    assert soon(lambda: not alive(inner))


def test_a_child_that_takes_no_notice_is_killed(tmp_path: Path) -> None:
    child = Child(["sh", "-c", "trap '' TERM; echo here; sleep 60; sleep 60"], os.environ, tmp_path / "log")
    assert soon(lambda: "here" in child.said())
    child.stop(seconds=0.2)
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from fedcap.federation.flower.processes import Child\n"
        "print(Child(['sleep', '60'], os.environ, Path(sys.argv[1])).process.pid, flush=True); time.sleep(60)"
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


def test_what_was_said_before_a_child_started_is_not_its_word(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("earlier\n")
    with Child(["echo", "now"], os.environ, tmp_path / "log") as child:
        assert soon(lambda: child.said() == "now\n")
    assert (tmp_path / "log").read_text() == "earlier\nnow\n"


def test_a_log_is_told_line_by_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text("one\ntw")
    assert tail.read() == ["one"]
    path.write_text("one\ntwo\nthree\n")
    assert tail.read() == ["two", "three"]
    assert (tail.read(), tail.last) == ([], "three")
    assert Tail(path).read() == []


def test_flowers_own_settings_come_from_us_and_from_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", "/elsewhere")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_SUPERGRID_ADDRESS", "elsewhere")
    found = environment(tmp_path)
    assert found["FLWR_HOME"] == str(tmp_path)
    assert found["FLWR_TELEMETRY_ENABLED"] == "0"
    assert "FLWR_SUPERGRID_ADDRESS" not in found


def test_a_free_port_is_one_that_nobody_listens_on() -> None:
    assert not listening(free_port())


def test_the_lock_is_seen_from_outside_and_its_holder_is_ended(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    code = (
        "import sys, time; from pathlib import Path\n"
        "from fedcap.federation.flower.serving import locked\n"
        "with locked(Path(sys.argv[1])): time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    assert soon(lambda: is_locked(tmp_path))
    end(tmp_path)
    assert holder.wait(5) == -signal.SIGTERM
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("[code: 2004] Failed to activate SuperNode.", "its key is not approved yet (fingerprint me)"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: x",
            "is not by the authority in ca.crt",
        ),
        ("ERROR: SSL/TLS handshake error detected.", "no TLS with h:1"),
        ("Client error '401 Unauthorized' for url 'https://h:1/v1/fleet/activate-node'", "clock"),
        (
            "Client error '404 Not Found' for url 'https://h:1/v1/fleet/activate-node'",
            "h:1 is no federation's",
        ),
    ],
)
def test_a_site_is_told_why_its_node_was_not_let_in(said: str, meaning: str) -> None:
    node = Node(Path("site"), "h:1", Path("key"), "me", Path("ca.crt"), [])
    assert meaning in (node.means(f"Exit Code: 305\n{said}\nmore", REASONS) or "")
    assert node.means(said, NEWS) is None
