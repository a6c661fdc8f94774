"""The live page's server: it returns the current report to those who know its address, and writes nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from federation_tools import federation
from helpers import Killer, call
from run_tools import SMALL

import fedcap
from fedcap.cli.report import report_on
from fedcap.federation.config import Federation
from fedcap.report import live
from fedcap.report.live import LivePage, waiting
from fedcap.report.model import Report
from fedcap.runs import RoundRecord


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 0.0)
    monkeypatch.setattr(live, "SHORTEST_PAUSE", 0.0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[LivePage]:
    with LivePage(tmp_path / "run") as page:
        yield page


def ask(
    page: LivePage, path: str = "", verb: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Ask for a path below the page's address, or for any path that begins with "/"."""
    parts = urlsplit(page.address)
    assert parts.hostname == "127.0.0.1"
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(verb, path if path.startswith("/") else parts.path + path, headers=named)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def report(page: LivePage) -> dict[str, Any]:
    status, content, _ = ask(page, "report.json")
    assert status == 200
    return json.loads(content)  # type: ignore[no-any-return]


def test_a_run_is_followed_from_before_its_start_to_its_end(served: LivePage, tmp_path: Path) -> None:
    class Reader(Killer):
        def started(self, simulation: object) -> None:
            seen.append(report(served))

        def round_done(self, simulation: object, record: RoundRecord) -> None:
            seen.append(report(served))

    seen = [report(served)]
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[Reader(0)])
    seen.append(report(served))
    assert [one["done"] for one in seen] == [0, 0, 1, 2, 3, 3]
    assert [one["state"] for one in seen] == ["unfinished"] * 5 + ["finished"]
    assert "does not exist yet" in seen[0]["summary"]
    assert seen[1]["planned"] == 3


def test_the_operator_sees_shares_and_suspected_and_removed_sites(tmp_path: Path) -> None:
    patient = {"name": "fedcap", "policy": {"name": "strikes", "strikes": 9}, "t_norm": 0.5}
    held = federation(tmp_path, patient)
    (tmp_path / "federation.toml").write_text(Federation(host="localhost").text())
    held.transport.ipm = frozenset("2")
    with LivePage(tmp_path, build=report_on) as page, held.conductor() as conductor:
        assert "0 of 3 rounds so far" in report(page)["summary"]
        for _ in range(2):
            record = conductor.play()
        seen = report(page)
        assert record is not None
        assert (seen["kind"], seen["done"], seen["state"]) == ("federation", 2, "unfinished")
        clients = {client["name"]: client for client in seen["run"]["clients"]}
        suspect = clients.pop("site-2")
        assert (suspect["state"], suspect["reason"]) == ("probation", str(record.suspected["2"]))
        assert suspect["share"] is None
        assert {client["state"] for client in clients.values()} == {"active"}
        (mixing,) = fedcap.read(held.run).mixings
        means = dict(zip(mixing.contributors, 100 * mixing.weights.mean(axis=0), strict=True))
        assert {name: client["share"] for name, client in clients.items()} == {
            f"site-{client}": pytest.approx(share, abs=0.1) for client, share in means.items()
        }
        held.ledger.remove("0", "its disk failed", 2, by="operator")
        (gone,) = (client for client in report(page)["run"]["clients"] if client["name"] == "site-0")
        assert (gone["state"], gone["reason"]) == ("removed", "by the operator: its disk failed")


def test_the_page_asks_for_newer_reports(served: LivePage) -> None:
    status, content, headers = ask(served)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert b'data-live="report.json"' in content
    assert headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_an_unchanged_report_is_neither_made_nor_sent_again(tmp_path: Path) -> None:
    made: list[Path] = []

    def build(path: Path) -> Report:
        made.append(path)
        return replace(waiting(path), done=(path / "config.toml").stat().st_size)

    (tmp_path / "config.toml").write_text("a")
    with LivePage(tmp_path, build=build) as page:
        _, _, headers = ask(page, "report.json")
        for _ in range(3):
            assert ask(page, "report.json", If_None_Match=headers["ETag"])[:2] == (304, b"")
        assert len(made) == 1
        os.utime(tmp_path / "config.toml")  # the same content: the report is made again, but not sent
        assert ask(page, "report.json", If_None_Match=headers["ETag"])[0] == 304
        assert len(made) == 2
        (tmp_path / "config.toml").write_text("ab")
        status, _, newer = ask(page, "report.json", If_None_Match=headers["ETag"])
        assert status == 200
        assert newer["ETag"] != headers["ETag"]


def test_a_report_that_takes_long_is_made_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 1000.0)
    made: list[Path] = []

    def build(path: Path) -> Report:
        made.append(path)
        time.sleep(0.01)
        return waiting(path)

    with LivePage(tmp_path, build=build) as page:
        for turn in range(3):
            (tmp_path / "config.toml").write_text("x" * turn)
            report(page)
    assert len(made) == 1


def test_without_the_token_there_is_nothing(served: LivePage) -> None:
    token = urlsplit(served.address).path.strip("/")
    assert len(token) >= 20
    others = [
        "/",
        "/report.json",
        f"/{token[:-1]}/",
        f"/{token}x/report.json",
        f"/{token}",
        f"/{token}/../",
        f"/{token}/config.toml",
        f"/{token}/report.json/",
        "/%00/",
    ]
    assert {ask(served, path)[:2] for path in others} == {(404, b"")}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1", ""])
def test_a_page_of_another_host_cannot_pretend_to_be_this_one(served: LivePage, host: str) -> None:
    assert ask(served, "report.json", Host=host)[:2] == (404, b"")
    assert ask(served, Host=f"localhost:{urlsplit(served.address).port}")[0] == 200


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(served: LivePage, verb: str) -> None:
    status, content, _ = ask(served, verb=verb)
    assert (status, content) == (501, b"")


def test_it_listens_only_on_loopback(served: LivePage) -> None:
    port = urlsplit(served.address).port
    own = next(
        (info[4][0] for info in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)), "127.0.0.1"
    )
    if own.startswith("127."):
        own = "127.0.0.2"  # another address of this machine, on which a server for all addresses would answer
    with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
        socket.create_connection((own, port), timeout=1)


def test_a_silent_or_invalid_connection_does_not_block_others(served: LivePage) -> None:
    parts = urlsplit(served.address)
    with socket.create_connection((parts.hostname, parts.port)):
        with socket.create_connection((parts.hostname, parts.port)) as invalid:
            invalid.sendall(b"\x00\xff nonsense\r\n\r\n")
            invalid.settimeout(5)
            invalid.recv(1000)
        assert ask(served)[0] == 200


def test_a_report_that_fails_leaves_the_last_one_and_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    titles = iter(["good", None, "better"])

    def build(path: Path) -> Report:
        if (title := next(titles)) is None:
            raise RuntimeError("torn")
        return replace(waiting(path), title=title)

    with LivePage(tmp_path, build=build) as page:
        assert report(page)["title"] == "good"
        (tmp_path / "config.toml").touch()
        assert report(page)["title"] == "good"
        assert report(page)["title"] == "better"
    assert [r.getMessage() for r in caplog.records] == ["the report could not be made: RuntimeError: torn"]


def test_a_port_that_is_taken_is_one_line(
    served: LivePage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = urlsplit(served.address).port
    code, _, err = call(capsys, "report", tmp_path, "--live", "--port", port)
    assert code == 2
    assert err.startswith(f"fedcap: cannot listen on port {port}: Address already in use")
    assert err.count("\n") == 1


def test_the_command_prints_the_address_and_ends_on_interrupt(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedcap", "report", str(tmp_path / "later"), "--live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://"))
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port, timeout=10)
        connection.request("GET", urlsplit(address).path)
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
