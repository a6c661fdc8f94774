"""The undocumented names of Flower that fedcap relies on: each exists, takes our arguments, and behaves."""

from __future__ import annotations

import copy
import hashlib
import inspect
import re
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")
import httpx
from flwr.app import Array
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as PIECE

from fedcap.errors import InputError
from fedcap.federation.flower import compat, nginx


def test_another_release_of_flower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compat.require_flower()
    monkeypatch.setattr(compat, "FLOWER", "1.0.0")
    with pytest.raises(InputError) as error:
        compat.require_flower()
    assert error.value.code == "flower-version"


def test_only_compat_imports_undocumented_names_of_flower() -> None:
    documented = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
    folder = Path(compat.__file__).parent
    for path in folder.parents[1].rglob("*.py"):
        found = set(re.findall(r"(?:from|import) (flwr[\w.]*)", path.read_text()))
        assert path.name == "compat.py" or found <= documented, path


OPENSSL = "certificate verify failed"
"""A phrase of OpenSSL's, which tests/test_keys.py provokes."""


@pytest.fixture(scope="module")
def flowers_source() -> str:
    folder = Path(str(import_module("flwr").__file__)).parent
    return "".join(path.read_text() for path in folder.rglob("*.py"))


@pytest.mark.parametrize("name", compat.OFFLINE)
def test_flower_reads_the_variables_that_are_set(flowers_source: str, name: str) -> None:
    assert f'"{name}"' in flowers_source


@pytest.mark.parametrize("phrase", sorted({*compat.LOG_MEANINGS, compat.KEY_IS_KNOWN} - {OPENSSL}))
def test_flower_writes_the_phrases_that_are_looked_for(flowers_source: str, phrase: str) -> None:
    code = re.match(r"(?P<http>\d{3} )|\[code: (?P<flower>\d+)", phrase)
    if code is None:
        assert phrase in flowers_source
    elif code["flower"]:
        assert f"FLEET_NODE_ACTIVATION_FAILED = {code['flower']}" in flowers_source
        assert "[code: {flower_error.code}]" in flowers_source
    else:
        response = httpx.Response(int(code["http"]), request=httpx.Request("POST", "https://h/"))
        with pytest.raises(httpx.HTTPStatusError, match=phrase):
            response.raise_for_status()


# --- The bundle


def test_the_bundle_is_what_flwr_run_builds_of_its_folder(tmp_path: Path) -> None:
    from flwr.cli.build import build_fab_from_disk

    (tmp_path / "pyproject.toml").write_text(compat.bundle_file())
    assert hashlib.sha256(build_fab_from_disk(tmp_path)).hexdigest() == compat.bundle_digest()


def test_the_bundle_names_the_two_apps() -> None:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from fedcap.federation.flower import apps

    assert '"fedcap.federation.flower.apps:server"' in compat.bundle_file()
    assert '"fedcap.federation.flower.apps:client"' in compat.bundle_file()
    assert isinstance(apps.server, ServerApp)
    assert isinstance(apps.client, ClientApp)


# --- The check of bundles at a site


def test_flower_unpacks_bundles_with_the_function_that_is_replaced() -> None:
    from flwr.supernode.runtime import run_clientapp

    program = import_module("flwr.supernode.cli.flwr_clientapp")
    assert run_clientapp.__name__ == compat.CLIENT_APP_MODULE
    assert next(iter(inspect.signature(run_clientapp.install_from_fab).parameters)) == "fab_file"
    source = inspect.getsource(run_clientapp.run_clientapp)
    assert source.index("install_from_fab(fab.content") < source.index("load_client_app_fn(")
    assert program.run_clientapp is run_clientapp.run_clientapp
    assert not inspect.signature(program.flwr_clientapp).parameters


def test_a_bundle_that_the_site_has_not_agreed_to_is_not_unpacked() -> None:
    unpacked: list[bytes] = []
    unpack = compat.guarded(
        lambda content, skip_prompt: unpacked.append(content), frozenset({compat.bundle_digest()})
    )
    with pytest.raises(compat.NotAgreed, match=hashlib.sha256(b"evil").hexdigest()):
        unpack(b"evil", skip_prompt=True)
    assert unpacked == []
    bundle = compat.build_bundle(compat.bundle_file())
    unpack(bundle, skip_prompt=True)
    assert unpacked == [bundle]


def test_without_the_function_that_it_replaces_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("flwr.supernode.runtime.run_clientapp.install_from_fab")
    with pytest.raises(SystemExit, match="nothing is run"):
        compat.run_client_app(frozenset())


# --- Bounded replies


class Objects:
    """Flower's client, as far as fetching objects goes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def PullObject(self, request: object) -> SimpleNamespace:
        return SimpleNamespace(object_found=True, object_available=True, object_content=self.content)


def test_the_grid_fetches_objects_through_the_client_that_is_replaced() -> None:
    from flwr.superlink.grid.http_grid import HttpGrid

    grid = HttpGrid("127.0.0.1:1", insecure=True, token="x")
    client = Objects(b"")
    other = copy.copy(grid)
    other._client = client
    assert other._runtime_client is client
    assert grid._client is None
    assert "self._runtime_client.PullObject" in inspect.getsource(HttpGrid.pull_messages)


def test_fetching_a_reply_ends_at_its_bound() -> None:
    client = compat.BoundedClient(Objects(b"x" * 1_000_000), 1_950_000, time.monotonic() + 60)
    client.PullObject(None)
    client.PullObject(None)
    with pytest.raises(compat.TooLarge):
        client.PullObject(None)


def test_fetching_a_reply_ends_at_its_deadline() -> None:
    with pytest.raises(compat.TooLate):
        compat.BoundedClient(Objects(b""), 10, time.monotonic()).PullObject(None)


def test_an_array_of_the_largest_size_is_fetched_even_if_its_pieces_repeat() -> None:
    array = Array(np.zeros(3 * PIECE, np.uint8))
    assert len(array.children) == 3 < len(array.slice_array())
    compat.BoundedClient(Objects(array.deflate()), 3 * PIECE + 200, time.monotonic() + 60).PullObject(None)


def test_a_small_reply_that_repeats_a_piece_many_times_is_not_assembled() -> None:
    array = Array(np.zeros(PIECE - 128, np.uint8))
    assert compat.count_pieces(array.deflate()) == 1
    bomb = array.deflate().replace(b'"arraychunk_ids": [0]', b'"arraychunk_ids": [' + b"0," * 9999 + b"0]")
    assert len(bomb) < 50_000
    assert compat.count_pieces(bomb) == 10_000
    with pytest.raises(compat.TooLarge):
        compat.BoundedClient(Objects(bomb), PIECE, time.monotonic() + 60).PullObject(None)


def test_nginx_accepts_a_piece_of_an_array_and_all_calls_of_a_supernode_except_registering() -> None:
    from flwr.supernode.fleet_http_client import FleetHttpClient

    called = set(re.findall(r'"/v1/fleet/([a-z-]+)"', inspect.getsource(FleetHttpClient)))
    assert set(compat.FLEET_CALLS) == called - {"register-node", "unregister-node"}
    assert PIECE < 6 << 20
    assert "client_max_body_size 6m;" in nginx.TEMPLATE
