"""The live page's server: it tells what is there now, to whoever knows its address and to nobody else."""

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
from urllib.parse import urlsplit

import pytest
from federation_tools import federation
from helpers import Killer, call
from run_tools import SMALL

import fedcap
from fedcap.cli.report import story_for
from fedcap.federation.config import Federation
from fedcap.report import watch as watching
from fedcap.report.story import Story
from fedcap.report.watch import Watch, waiting
from fedcap.runs import RoundRecord


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "REST", 0.0)
    monkeypatch.setattr(watching, "LEAST_REST", 0.0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Watch]:
    with Watch(tmp_path / "run") as watch:
        yield watch


def ask(
    watch: Watch, path: str = "", verb: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Ask for what is at the page's address and `path`, or at a path of its own if that begins with "/"."""
    parts = urlsplit(watch.address)
    assert parts.hostname == "127.0.0.1"
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(verb, path if path.startswith("/") else parts.path + path, headers=named)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def story(watch: Watch) -> dict[str, object]:
    status, content, _ = ask(watch, "story.json")
    assert status == 200
    return json.loads(content)  # type: ignore[no-any-return]


def test_a_run_is_followed_from_before_it_exists_to_its_end(served: Watch, tmp_path: Path) -> None:
    class Reader(Killer):
        def started(self, simulation: object) -> None:
            told.append(story(served))

        def round_done(self, simulation: object, record: RoundRecord) -> None:
            told.append(story(served))

    told = [story(served)]
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[Reader(0)])
    told.append(story(served))
    assert [one["played"] for one in told] == [0, 0, 1, 2, 3, 3]
    assert [one["state"] for one in told] == ["unfinished"] * 5 + ["finished"]
    assert "does not exist yet" in str(told[0]["sentence"])
    assert told[1]["planned"] == 3


def test_the_operator_sees_who_is_weighted_how_and_who_is_on_probation_and_why(tmp_path: Path) -> None:
    patient = {"name": "fedcap", "policy": {"name": "strikes", "strikes": 9}, "t_norm": 0.5}
    held = federation(tmp_path, patient)
    (tmp_path / "federation.toml").write_text(Federation(host="localhost").text())
    held.transport.ipm = frozenset("2")
    with Watch(tmp_path, tell=story_for) as watch, held.conductor() as conductor:
        assert "0 of 3 rounds so far" in str(story(watch)["sentence"])
        for _ in range(2):
            record = conductor.play()
        told = story(watch)
        assert record is not None
        assert (told["kind"], told["played"], told["state"]) == ("federation", 2, "unfinished")
        clients = {client["name"]: client for client in told["course"]["clients"]}  # type: ignore[index]
        suspect = clients.pop("site-2")
        assert (suspect["state"], suspect["reason"]) == ("probation", str(record.suspected["2"]))
        assert suspect["share"] is None
        assert {client["state"] for client in clients.values()} == {"active"}
        (mixing,) = fedcap.read(held.run).mixings
        means = dict(zip(mixing.contributors, 100 * mixing.weights.mean(axis=0), strict=True))
        assert {name: client["share"] for name, client in clients.items()} == {
            f"site-{client}": pytest.approx(share, abs=0.1) for client, share in means.items()
        }
        held.ledger.remove("0", "its disk burnt down")
        told = story(watch)
        (gone,) = (c for c in told["course"]["clients"] if c["name"] == "site-0")  # type: ignore[index]
        assert (gone["state"], gone["reason"]) == ("removed", "its disk burnt down")


def test_the_page_is_the_one_that_asks_for_newer_stories(served: Watch) -> None:
    status, content, headers = ask(served)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert b'data-live="story.json"' in content
    assert headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_a_story_that_has_not_changed_is_neither_told_nor_sent_again(tmp_path: Path) -> None:
    told: list[Path] = []

    def tell(path: Path) -> Story:
        told.append(path)
        return replace(waiting(path), played=(path / "config.toml").stat().st_size)

    (tmp_path / "config.toml").write_text("a")
    with Watch(tmp_path, tell=tell) as watch:
        _, _, headers = ask(watch, "story.json")
        for _ in range(3):
            assert ask(watch, "story.json", If_None_Match=headers["ETag"])[:2] == (304, b"")
        assert len(told) == 1
        os.utime(tmp_path / "config.toml")  # touched, with the same content: told anew, not sent
        assert ask(watch, "story.json", If_None_Match=headers["ETag"])[0] == 304
        assert len(told) == 2
        (tmp_path / "config.toml").write_text("ab")
        status, _, newer = ask(watch, "story.json", If_None_Match=headers["ETag"])
        assert status == 200
        assert newer["ETag"] != headers["ETag"]


def test_a_story_that_takes_long_to_tell_is_told_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "REST", 1000.0)
    told: list[Path] = []

    def tell(path: Path) -> Story:
        told.append(path)
        time.sleep(0.01)
        return waiting(path)

    with Watch(tmp_path, tell=tell) as watch:
        for turn in range(3):
            (tmp_path / "config.toml").write_text("x" * turn)
            story(watch)
    assert len(told) == 1


def test_whoever_does_not_know_the_token_finds_nothing(served: Watch) -> None:
    token = urlsplit(served.address).path.strip("/")
    assert len(token) >= 20
    others = [
        "/",
        "/story.json",
        f"/{token[:-1]}/",
        f"/{token}x/story.json",
        f"/{token}",
        f"/{token}/../",
        f"/{token}/config.toml",
        f"/{token}/story.json/",
        "/%00/",
    ]
    answers = {ask(served, path)[:2] for path in others}
    assert answers == {(404, b"")}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1", ""])
def test_a_page_of_another_host_cannot_pretend_to_be_this_one(served: Watch, host: str) -> None:
    assert ask(served, "story.json", Host=host)[:2] == (404, b"")


def test_localhost_is_this_host_too(served: Watch) -> None:
    assert ask(served, Host=f"localhost:{urlsplit(served.address).port}")[0] == 200


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(served: Watch, verb: str) -> None:
    status, content, _ = ask(served, verb=verb)
    assert (status, content) == (501, b"")


def test_it_listens_on_loopback_alone(served: Watch) -> None:
    port = urlsplit(served.address).port
    own = next(
        (info[4][0] for info in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)), "127.0.0.1"
    )
    if own.startswith("127."):
        own = "127.0.0.2"  # another address of this machine, which a server on all of them would answer on
    with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
        socket.create_connection((own, port), timeout=1)


def test_a_client_that_says_nothing_or_nonsense_holds_nobody_up(served: Watch) -> None:
    parts = urlsplit(served.address)
    with socket.create_connection((parts.hostname, parts.port)) as silent:
        with socket.create_connection((parts.hostname, parts.port)) as rude:
            rude.sendall(b"\x00\xff nonsense\r\n\r\n")
            rude.settimeout(5)
            rude.recv(1000)
        assert ask(served)[0] == 200
        silent.close()


def test_a_story_that_fails_leaves_the_last_one_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    titles = iter(["good", None, "better"])

    def tell(path: Path) -> Story:
        if (title := next(titles)) is None:
            raise RuntimeError("torn")
        return replace(waiting(path), title=title)

    with Watch(tmp_path, tell=tell) as watch:
        assert story(watch)["title"] == "good"
        (tmp_path / "config.toml").touch()
        assert story(watch)["title"] == "good"
        assert story(watch)["title"] == "better"
    assert [r.getMessage() for r in caplog.records] == ["the story could not be told: RuntimeError: torn"]


def test_what_is_awaited_is_told_as_it_comes(served: Watch, tmp_path: Path) -> None:
    assert "does not exist yet" in str(story(served)["sentence"])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.json").write_text("{}")
    assert "holds no rounds yet" in str(story(served)["sentence"])


def test_a_port_that_is_taken_is_told_in_a_line(
    served: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = urlsplit(served.address).port
    code, _, err = call(capsys, "report", tmp_path, "--live", "--port", port)
    assert code == 2
    assert err == f"fedcap: cannot listen on port {port}: Address already in use; give another --port\n"


def test_what_does_not_go_with_what_is_there_is_told_and_not_awaited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    code, _, err = call(capsys, "report", tmp_path / "run", "--live", "--local", tmp_path / "run")
    assert code == 2
    assert "is no run of clients alone" in err
    with Watch(tmp_path / "run", tell=lambda path: story_for(path, path)) as watch:
        assert "is no run of clients alone" in str(story(watch)["sentence"])


def test_the_command_says_where_the_page_is_and_ends_with_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedcap", "report", str(tmp_path / "later"), "--live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        address = line.split()[-3]
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port, timeout=10)
        connection.request("GET", urlsplit(address).path)
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    assert line == f"{tmp_path / 'later'}, which does not exist yet: {address} (Ctrl-C stops)\n"
    assert rest == "the page is closed; the run continues\n"
    assert (process.returncode, errors) == (0, "")
