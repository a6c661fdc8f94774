"""What goes through Flower, and what keeps it in bounds: with Flower's own classes, and nothing running."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as PIECE
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

from fedcap.errors import InputError
from fedcap.federation import certificates
from fedcap.federation.flower import bundle, client_app, guard, nginx, version
from fedcap.federation.flower.door import DOOR, ask, from_bytes, opened, to_bytes
from fedcap.federation.flower.pulling import Bounded, TooLate, TooMuch
from fedcap.federation.flower.records import from_records, to_records
from fedcap.federation.flower.sealing import Seal, unseal
from fedcap.federation.messages import Answer, Malformed, Order

ORDER = Order("train", 7, "n" * 32, "p" * 64, np.arange(6, dtype=np.float32).reshape(2, 3))


def npy(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def with_array(content: bytes, stype: str = "numpy.ndarray") -> RecordDict:
    array = Array("float32", (3,), stype, content)
    return RecordDict({"arrays": ArrayRecord({"update": array}), "config": ConfigRecord({})})


def test_a_message_comes_back_from_flowers_records_as_it_was() -> None:
    arrays, config = from_records(to_records(*ORDER.pack()))
    back = Order.unpack(arrays, config)
    assert (back.kind, back.round, back.nonce, back.plan) == ("train", 7, "n" * 32, "p" * 64)
    assert back.models.dtype == np.float32
    np.testing.assert_array_equal(back.models, ORDER.models)


def test_an_answer_without_update_or_extra_numbers_can_be_sent() -> None:
    answer = Answer("n", 1, refused="no")
    assert Answer.unpack(*from_records(to_records(*answer.pack()))) == answer


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(npy(np.ones(3))[:-1], id="cut short"),
        pytest.param(npy(np.ones(3)) + b"x", id="too long"),
        pytest.param(npy(np.array([{}], object), allow_pickle=True), id="pickle"),
        pytest.param(npy(np.array(["text"])), id="text"),
        pytest.param(b"PK\x03\x04", id="a zip file"),
        pytest.param(npy(np.ones(3)).replace(b"(3,)", b"(3e9,)"), id="no shape"),
        pytest.param(
            npy(np.ones(3, np.float32)).replace(b"(3,), }" + b" " * 9, b"(9000000000,), }"), id="vast"
        ),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_garbage_array_is_malformed(content: bytes) -> None:
    with pytest.raises(Malformed, match="cannot be read"):
        from_records(with_array(content))


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"arrays": ArrayRecord(), "config": MetricRecord({})}),
        RecordDict({"arrays": ConfigRecord(), "config": ConfigRecord()}),
        RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord(), "more": ConfigRecord()}),
        RecordDict(
            {
                "arrays": ArrayRecord({str(k): Array(np.ones(1)) for k in range(9)}),
                "config": ConfigRecord(),
            }
        ),
        "text",
    ],
)
def test_other_records_than_a_messages_are_malformed(content: object) -> None:
    with pytest.raises(Malformed):
        from_records(content)


class Objects:
    """Flower's client, as far as fetching objects goes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def PullObject(self, request: object) -> SimpleNamespace:
        return SimpleNamespace(object_found=True, object_available=True, object_content=self.content)


def test_fetching_a_reply_ends_at_its_bound() -> None:
    client = Bounded(Objects(b"x" * 1_000_000), 1_950_000, time.monotonic() + 60)
    client.PullObject(None)
    client.PullObject(None)
    with pytest.raises(TooMuch):
        client.PullObject(None)


def test_fetching_a_reply_ends_at_its_deadline() -> None:
    with pytest.raises(TooLate):
        Bounded(Objects(b""), 10, time.monotonic()).PullObject(None)


def test_an_array_of_zeros_as_large_as_allowed_is_fetched_though_its_pieces_repeat() -> None:
    array = Array(np.zeros(3 * PIECE, np.uint8))
    assert len(array.children) == 3 < len(array.slice_array())
    Bounded(Objects(array.deflate()), 3 * PIECE + 200, time.monotonic() + 60).PullObject(None)


def test_a_small_reply_that_repeats_its_pieces_into_a_vast_one_is_not_put_together() -> None:
    array = Array(np.zeros(PIECE - 128, np.uint8))
    bomb = array.deflate().replace(b'"arraychunk_ids": [0]', b'"arraychunk_ids": [' + b"0," * 9999 + b"0]")
    assert len(bomb) < 50_000
    with pytest.raises(TooMuch):
        Bounded(Objects(bomb), PIECE, time.monotonic() + 60).PullObject(None)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    certificates.make_authority(folder, "test")
    certificates.make_certificate(folder, ["localhost"])
    return folder


def seal_of(folder: Path) -> Seal:
    return Seal(folder / "server.key", folder / "server.crt")


def test_a_sealed_order_is_opened_by_the_client_that_it_is_for(authority: Path) -> None:
    arrays, config = ORDER.pack()
    sealed = seal_of(authority)(arrays, config, "me")
    arrays, sealed = from_records(to_records(arrays, sealed))
    assert unseal(arrays, sealed, "me", (authority / "ca.crt").read_bytes()) == config


@pytest.mark.parametrize("change", ["round", "models", "client", "seal", "certificate"])
def test_an_order_that_was_changed_bears_no_seal(authority: Path, change: str) -> None:
    arrays, config = ORDER.pack()
    sealed: dict[str, Any] = seal_of(authority)(arrays, config, "me")
    if change == "models":
        arrays = {"models": arrays["models"] + 1}
    elif change == "client":
        sealed[change] = "another"
    else:
        sealed[change] = sealed["round"] + 1 if change == "round" else ""
    with pytest.raises(Malformed, match="seal"):
        unseal(arrays, sealed, "me", (authority / "ca.crt").read_bytes())


def test_an_order_for_another_client_is_refused(authority: Path) -> None:
    arrays, config = ORDER.pack()
    sealed = seal_of(authority)(arrays, config, "another")
    with pytest.raises(Malformed, match="for another site"):
        unseal(arrays, sealed, "me", (authority / "ca.crt").read_bytes())


def test_a_seal_by_another_authority_is_none(authority: Path, tmp_path: Path) -> None:
    certificates.make_authority(tmp_path, "test")
    certificates.make_certificate(tmp_path, ["localhost"])
    arrays, config = ORDER.pack()
    sealed = seal_of(tmp_path)(arrays, config, "me")
    with pytest.raises(Malformed, match="seal"):
        unseal(arrays, sealed, "me", (authority / "ca.crt").read_bytes())


def echo(arrays: dict[str, np.ndarray], config: dict[str, Any]) -> tuple[dict[str, np.ndarray], Any]:
    return arrays, config


def test_a_message_goes_through_the_door_of_a_directory_with_a_long_name(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    with opened(directory, echo, 10_000):
        assert (directory / DOOR).stat().st_mode & 0o777 == 0o600
        for number in range(3):
            arrays, config = ask(directory, {"a": np.full(5, number)}, {"x": number, "l": [0.5]}, 5)
            np.testing.assert_array_equal(arrays["a"], np.full(5, number))
            assert config == {"x": number, "l": [0.5]}
    assert not (directory / DOOR).exists()


def test_nobody_behind_the_door_is_told(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="is not running"):
        ask(tmp_path, {}, {}, 5)


def test_a_site_that_takes_too_long_is_told(tmp_path: Path) -> None:
    def slow(arrays: Any, config: Any) -> Any:
        time.sleep(0.5)
        return arrays, config

    with opened(tmp_path, slow, 10_000), pytest.raises(Malformed, match="in time"):
        ask(tmp_path, {}, {}, 0.1)


def test_the_door_stays_open_after_garbage_and_after_too_much(tmp_path: Path) -> None:
    import socket

    with opened(tmp_path, echo, 10_000):
        for garbage in (b"GET / HTTP/1.1\r\n\r\n" * 9, b"\0" * 7 + b"\x09" + b"x" * 9, b""):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(tmp_path / DOOR))
                line.sendall(garbage)
        with pytest.raises(Malformed, match="went away"):
            ask(tmp_path, {"a": np.ones(100_000)}, {}, 5)
        assert ask(tmp_path, {}, {"still": "there"}, 5)[1] == {"still": "there"}


def test_bytes_at_the_door_that_are_no_message_are_malformed() -> None:
    whole = to_bytes({"a": np.ones(3)}, {"x": 1})[8:]
    for content in (b"", whole[:-1], b"\xff" * 40):
        with pytest.raises(Malformed):
            from_bytes(content)


def test_the_client_app_answers_a_sealed_order_and_refuses_any_other(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCAP_SITE", str(tmp_path))
    monkeypatch.setenv("FEDCAP_CLIENT", "me")
    monkeypatch.setenv("FEDCAP_AUTHORITY", str(authority / "ca.crt"))
    arrays, config = ORDER.pack()
    sealed = seal_of(authority)(arrays, config, "me")

    def refused(content: object) -> Answer:
        return Answer.unpack(*client_app.answer(content, 5))

    assert refused(to_records(arrays, sealed)) == Answer(
        "n" * 32, 7, refused="the site's process is not running"
    )
    assert refused(to_records(arrays, config)).refused == "the order does not bear the operator's seal"
    assert refused(RecordDict({})).refused == "the message has other records than it should"

    def train(arrays: Any, config: Any) -> Any:
        order = Order.unpack(arrays, config)
        return Answer(order.nonce, order.round, order.models[0] + 1).pack()

    with opened(tmp_path, train, 10_000):
        answer = refused(to_records(arrays, sealed))
    assert answer.refused is None
    np.testing.assert_array_equal(answer.update, np.array([1, 2, 3], np.float32))


def test_the_client_app_loads_no_torch() -> None:
    code = "import sys, fedcap.federation.flower.client_app; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_bundle_is_what_flower_builds_and_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    from flwr.cli.build import build_fab_from_disk

    (tmp_path / "pyproject.toml").write_text(bundle.content())
    assert hashlib.sha256(build_fab_from_disk(tmp_path)).hexdigest() == bundle.digest()


def test_a_bundle_that_the_site_has_not_agreed_to_is_not_unpacked() -> None:
    unpacked: list[bytes] = []
    install = guard.guarded(
        lambda content, skip_prompt: unpacked.append(content), frozenset({bundle.digest()})
    )
    with pytest.raises(guard.NotAgreed, match=hashlib.sha256(b"evil").hexdigest()):
        install(b"evil", skip_prompt=True)
    assert unpacked == []
    install(bundle.build(), skip_prompt=True)
    assert unpacked == [bundle.build()]


def test_a_site_has_a_program_for_every_task_of_flower_and_all_but_one_refuse(tmp_path: Path) -> None:
    folder = guard.write_programs(tmp_path / "bin")
    names = {path.name for path in folder.iterdir()}
    assert names == {"flower-superexec", *TASK_TYPE_TO_COMMAND.values()}
    for name in names - {"flower-superexec", "flwr-clientapp"}:
        done = subprocess.run([folder / name, "--token", "x"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "a site runs no such task" in done.stderr
    env = {name: value for name, value in os.environ.items() if name != "PATH"}
    done = subprocess.run(["flwr-clientapp", "--help"], capture_output=True, env=env | {"PATH": str(folder)})
    assert b"Run a Flower ClientApp" in done.stdout


def test_another_release_of_flower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    version.require_flower()
    monkeypatch.setattr(version, "FLOWER", "1.0.0")
    with pytest.raises(InputError, match=r"this is flwr 1\.41\.0.*pip install"):
        version.require_flower()


def test_without_the_function_that_it_guards_the_guard_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("flwr.supernode.runtime.run_clientapp.install_from_fab")
    with pytest.raises(SystemExit, match="nothing is run"):
        guard.main()


def test_nginx_lets_a_supernode_call_all_that_it_calls_but_registering(tmp_path: Path) -> None:
    import inspect
    import re

    from flwr.supernode.fleet_http_client import FleetHttpClient

    called = set(re.findall(r'"/v1/fleet/([a-z-]+)"', inspect.getsource(FleetHttpClient)))
    assert set(nginx.FLEET) == called - {"register-node", "unregister-node"}
    assert nginx.PIECE == PIECE
