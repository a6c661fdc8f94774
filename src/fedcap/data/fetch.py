"""Downloads of archives from an official source, with checksum, and the files to unpack from them.

pooch downloads; an interrupted download continues where it stopped. Each file is written under a temporary
name, checked and then renamed, so no file is ever incomplete.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedcap.data.base import Progress
from fedcap.errors import InputError
from fedcap.files import aside

ATTEMPTS = 3
_TIMEOUT = (10, 60)
"""Seconds to wait for a connection, and for the next bytes."""
_CHUNK = 1 << 18
Check = Callable[[str, Path], None]
"""A check of a file, given its name and temporary path before it is renamed; it raises an error."""


@dataclass(frozen=True)
class Download:
    """The address of an official archive, and its published checksum, if there is one."""

    url: str
    checksum: str | None = None

    @property
    def name(self) -> str:
        """The archive's file name."""
        return self.url.rpartition("/")[2]


class Unreachable(Exception):
    """A download or an archive failed; the message says why."""


def fetch_archive(
    name: str,
    download: Download,
    folder: Path,
    wanted: Sequence[str],
    progress: Progress,
    check: Check | None = None,
) -> None:
    """Unpack the wanted files of an archive into a folder, unless it has all of them."""
    if all((folder / file).is_file() for file in wanted):
        return
    try:
        with archive(download, folder, progress) as fetched:
            unpack(fetched, folder, wanted, check)
    except Unreachable as why:
        raise by_hand(name, str(why), download, wanted, folder) from None


def by_hand(name: str, why: str, download: Download, wanted: Sequence[str], folder: Path) -> InputError:
    """Return the error for a data set that cannot be fetched, with the steps to fetch it by hand."""
    return InputError(
        f"cannot fetch {name}: {why}; fetch {download.url} by hand and put {' and '.join(wanted)}"
        f" from it into {folder}",
        code="cannot-fetch",
    )


@contextmanager
def archive(download: Download, folder: Path, progress: Progress) -> Iterator[Path]:
    """Download an archive into a folder, and remove it after the block."""
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
    except OSError as error:  # the errors of requests are OSErrors too
        kept = f" ({part.stat().st_size:,} bytes are kept: try again to continue)" if part.exists() else ""
        raise Unreachable(f"{download.url} cannot be reached: {reason(error)}{kept}") from None
    except ValueError:
        raise Unreachable(f"{download.name} has another checksum than the official one") from None
    try:
        yield Path(path)
    finally:
        Path(path).unlink(missing_ok=True)


class _Resuming:
    """A downloader for pooch that keeps an interrupted download and later requests only the rest."""

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
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == 416:  # the download is complete
                return
            response.raise_for_status()
            if response.status_code != 206:
                have = 0
            length = int(response.headers.get("Content-Length", 0))
            total = have + length if length else 0
            with open(self._part, "ab" if have else "wb") as file:
                try:
                    for chunk in response.raw.stream(_CHUNK, decode_content=False):
                        file.write(chunk)
                        have += len(chunk)
                        self._progress(url.rpartition("/")[2], have, total)
                except Exception as error:  # urllib3 raises errors of other classes
                    raise ConnectionError(f"the connection broke: {reason(error)}") from None
        if have < total:
            raise ConnectionError(f"the connection broke after {have:,} of {total:,} bytes")


def unpack(packed: Path, folder: Path, wanted: Sequence[str], check: Check | None = None) -> None:
    """Copy the wanted files, from any folder of the archive, into a folder."""
    try:
        with members(packed) as inside:
            for name in wanted:
                if name not in inside:
                    raise Unreachable(f"{packed.name.lstrip('.')} does not hold {name}")
                with aside(folder / name) as partial:
                    with inside[name]() as source, open(partial, "wb") as target:
                        shutil.copyfileobj(source, target)
                    if check is not None:
                        check(name, partial)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise Unreachable(f"{packed.name.lstrip('.')} cannot be unpacked: {reason(error)}") from None


@contextmanager
def members(packed: Path) -> Iterator[dict[str, Callable[[], IO[bytes]]]]:
    """Yield a function for each file of an archive that opens it, by file name without folders."""
    if zipfile.is_zipfile(packed):
        with zipfile.ZipFile(packed) as zipped:
            yield {Path(name).name: lambda name=name: zipped.open(name) for name in zipped.namelist()}  # type: ignore[misc]
        return
    with tarfile.open(packed) as tar:
        yield {
            Path(member.name).name: lambda member=member: tar.extractfile(member)  # type: ignore[misc]
            for member in tar.getmembers()
            if member.isfile()
        }


def _make(folder: Path) -> None:
    """Create a folder, and check that files can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; set FEDCAP_DATA to another folder",
            code="cannot-write",
            field=str(folder),
        ) from None


def reason(error: BaseException) -> str:
    """Return why a download or an archive failed, in a few words."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error) or type(error).__name__
