"""Messages, seals and the site's socket, with Flower's own classes and without its processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

pytest.importorskip("flwr")
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedcap.federation import keys
from fedcap.federation.flower import apps
from fedcap.federation.flower.node import SOCKET, ask, listening, write_programs
from fedcap.federation.flower.transport import Seal, check_seal, from_records, to_records
from fedcap.federation.messages import Answer, Malformed, Order

ORDER = Order("train", 7, "n" * 32, "p" * 64, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_flowers_records_preserve_a_message() -> None:
    blob, seal = from_records(to_records(ORDER.to_bytes(), {"signature": "ab"}))
    assert seal == {"signature": "ab"}
    back = Order.from_bytes(blob)
    assert (back.kind, back.round, back.nonce, back.plan) == ("train", 7, "n" * 32, "p" * 64)
    assert back.models.dtype == np.float32
    np.testing.assert_array_equal(back.models, ORDER.models)


def test_an_answer_without_update_or_extra_numbers_can_be_sent() -> None:
    answer = Answer("n", 1, refused="no")
    assert Answer.from_bytes(from_records(to_records(answer.to_bytes()))[0]) == answer


WHOLE = ORDER.to_bytes()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(WHOLE[:-1], id="cut short"),
        pytest.param(WHOLE + b"x", id="too long"),
        pytest.param(b"\x80\x04N.", id="pickle"),
        pytest.param(b"PK\x03\x04", id="a zip file"),
        pytest.param(WHOLE.replace(b"[2,3]", b"[2,9]"), id="another shape"),
        pytest.param(WHOLE.replace(b"[2,3]", b"[-2]"), id="no shape"),
        pytest.param((9 * 10**9).to_bytes(8, "little") + WHOLE[8:], id="a huge header"),
        pytest.param(WHOLE.replace(b'"round"', b'"round}'), id="no JSON"),
        pytest.param(save({"models": np.ones(3)}), id="no values"),
        pytest.param(save({"config": np.frombuffer(b"[" * 100_000, np.uint8)}), id="deep JSON"),
        pytest.param(save({"config": np.frombuffer(b"7", np.uint8)}), id="a number"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_other_bytes_than_a_message_are_malformed(content: bytes) -> None:
    with pytest.raises(Malformed, match="cannot be read"):
        Order.from_bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"message": ArrayRecord(), "seal": MetricRecord({})}),
        RecordDict({"message": ConfigRecord(), "seal": ConfigRecord()}),
        RecordDict({"message": ArrayRecord(), "seal": ConfigRecord()}),
        RecordDict({"message": ArrayRecord(), "seal": ConfigRecord(), "more": ConfigRecord()}),
        "text",
    ],
)
def test_other_records_than_a_messages_are_malformed(content: object) -> None:
    with pytest.raises(Malformed):
        from_records(content)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    keys.make_authority(folder, "test")
    keys.make_certificate(folder, ["localhost"])
    return folder


def seal_of(folder: Path) -> Seal:
    return Seal(folder / "server.key", folder / "server.crt")


def test_a_sealed_order_is_accepted_by_the_client_that_it_is_for(authority: Path) -> None:
    blob = ORDER.to_bytes()
    blob, seal = from_records(to_records(blob, seal_of(authority)(blob, "me")))
    check_seal(blob, seal, "me", (authority / "ca.crt").read_bytes())


@pytest.mark.parametrize("change", ["order", "client", "signature", "certificate", "nothing"])
def test_a_changed_order_or_one_for_another_site_has_no_valid_seal(authority: Path, change: str) -> None:
    blob, client = ORDER.to_bytes(), "me"
    seal: dict[str, Any] = seal_of(authority)(blob, client)
    if change == "order":
        blob = replace(ORDER, round=8).to_bytes()
    elif change == "client":
        client = "another"
    elif change == "nothing":
        seal = {}
    else:
        seal[change] = ""
    with pytest.raises(Malformed, match="seal"):
        check_seal(blob, seal, client, (authority / "ca.crt").read_bytes())


def test_a_seal_by_another_authority_does_not_count(authority: Path, tmp_path: Path) -> None:
    keys.make_authority(tmp_path, "test")
    keys.make_certificate(tmp_path, ["localhost"])
    blob = ORDER.to_bytes()
    with pytest.raises(Malformed, match="seal"):
        check_seal(blob, seal_of(tmp_path)(blob, "me"), "me", (authority / "ca.crt").read_bytes())


def echo(message: bytes) -> bytes:
    return message


def test_the_socket_works_in_a_directory_with_a_long_name(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    with listening(directory, echo, 10_000_000):
        assert (directory / SOCKET).stat().st_mode & 0o777 == 0o600
        for message in (b"", b"one", bytes(5_000_000)):
            assert ask(directory, message, 5) == message
    assert not (directory / SOCKET).exists()


def test_a_site_that_is_not_running_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="is not running"):
        ask(tmp_path, b"", 5)


def test_a_site_that_takes_too_long_is_reported(tmp_path: Path) -> None:
    def slow(message: bytes) -> bytes:
        time.sleep(0.5)
        return message

    with listening(tmp_path, slow, 10_000), pytest.raises(Malformed, match="in time"):
        ask(tmp_path, b"", 0.1)


def test_messages_are_answered_one_at_a_time(tmp_path: Path) -> None:
    working: list[int] = []

    def respond(message: bytes) -> bytes:
        working.append(1)
        time.sleep(0.05)
        found = len(working)
        working.pop()
        return bytes([found])

    with listening(tmp_path, respond, 10_000), ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: ask(tmp_path, b"x", 5), range(8))) == {b"\x01"}


def test_the_socket_still_answers_after_garbage_large_messages_and_a_peer_that_stalls(tmp_path: Path) -> None:
    with listening(tmp_path, echo, 10_000), socket.socket(socket.AF_UNIX) as stalled:
        stalled.connect(str(tmp_path / SOCKET))
        stalled.sendall(b"\0\0")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n" * 9, b"\xff" * 40, b""):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(tmp_path / SOCKET))
                peer.sendall(garbage)
        with pytest.raises(Malformed, match="ended"):
            ask(tmp_path, bytes(100_000), 5)
        assert ask(tmp_path, b"still there", 5) == b"still there"


def test_a_message_whose_sender_hung_up_while_it_waited_is_dropped(tmp_path: Path) -> None:
    answered: list[bytes] = []
    started, go_on = threading.Event(), threading.Event()

    def respond(message: bytes) -> bytes:
        answered.append(message)
        started.set()
        go_on.wait(5)
        return message

    with listening(tmp_path, respond, 10_000), ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, tmp_path, b"first", 5)
        assert started.wait(5)
        with Client(str(tmp_path / SOCKET), "AF_UNIX") as peer:
            peer.send_bytes(b"late")
        time.sleep(0.2)
        go_on.set()
        assert first.result() == b"first"
        assert ask(tmp_path, b"last", 5) == b"last"
    assert answered == [b"first", b"last"]


def test_the_socket_accepts_again_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, errors = Listener.accept, [OSError(24, "Too many open files")]

    def fail_once(listener: Listener) -> Any:
        connection = accept(listener)
        if errors:
            connection.close()
            raise errors.pop()
        return connection

    monkeypatch.setattr(Listener, "accept", fail_once)
    monkeypatch.setattr("fedcap.federation.flower.node.ACCEPT_PAUSE", 0.01)
    with listening(tmp_path, echo, 10_000):
        with pytest.raises(Malformed):
            ask(tmp_path, b"lost", 5)
        assert ask(tmp_path, b"x", 5) == b"x"


def test_the_client_app_answers_a_sealed_order_and_refuses_any_other(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCAP_SITE", str(tmp_path))
    monkeypatch.setenv("FEDCAP_CLIENT", "me")
    monkeypatch.setenv("FEDCAP_AUTHORITY", str(authority / "ca.crt"))
    blob = ORDER.to_bytes()
    sealed = to_records(blob, seal_of(authority)(blob, "me"))

    def answer(content: object) -> Answer:
        return Answer.from_bytes(apps.answer(content, 5))

    assert answer(sealed) == Answer("n" * 32, 7, refused="the site's process is not running")
    assert "seal" in (answer(to_records(blob)).refused or "")
    assert answer(RecordDict({})).refused == "the message has other records than it should"

    def train(message: bytes) -> bytes:
        order = Order.from_bytes(message)
        return Answer(order.nonce, order.round, order.models[0] + 1).to_bytes()

    with listening(tmp_path, train, 10_000):
        given = answer(sealed)
    assert given.refused is None
    np.testing.assert_array_equal(given.update, np.array([1, 2, 3], np.float32))


def test_the_client_app_loads_no_torch() -> None:
    code = "import sys, fedcap.federation.flower.apps; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_supernode_finds_its_two_programs_and_no_other(tmp_path: Path) -> None:
    folder = write_programs(tmp_path / "bin")
    assert {path.name for path in folder.iterdir()} == {"flower-superexec", "flwr-clientapp"}
    env = {**os.environ, "PATH": str(folder)}
    for name, words in (("flower-superexec", "SuperExec"), ("flwr-clientapp", "Run a Flower ClientApp")):
        done = subprocess.run([name, "--help"], capture_output=True, env=env, text=True)
        assert words in done.stdout
