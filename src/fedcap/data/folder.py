"""The user's own images from a folder: folder/class/image.png, or folder/client/class/image.png.

All images must have the same size. If any of them has colour, all are read in colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcap.data.base import Dataset, registry, text_digest
from fedcap.data.cache import cached
from fedcap.data.files import content_hash, corrupted, file_stamp
from fedcap.data.own import Own, from_arrays
from fedcap.registry import InputError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}


@registry.register("folder")
@dataclass(frozen=True)
class Folder(Own):
    """Your own images: --dataset FOLDER with class/image.png, or client/class/image.png."""

    path: str = ""
    """The folder."""

    def has_owners(self) -> bool:
        """Whether the images are by client."""
        return _depth(Path(self.path), self.files()) == 3

    @property
    def label(self) -> str:
        """The folder's name."""
        return Path(self.path).name

    def files(self) -> list[Path]:
        """Return all images, sorted; raise an error if there are none, or none in folders by class."""
        folder = Path(self.path)
        if not self.path or not folder.is_dir():
            raise InputError(f"cannot read {self.path or 'data set folder'}: give --dataset FOLDER")
        found = sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in SUFFIXES
            and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
        _depth(folder, found)
        return found

    def load(self) -> Dataset:
        """Return all images as C×H×W bytes."""
        folder, files = Path(self.path), self.files()
        stamps = {str(path.relative_to(folder)): file_stamp(path) for path in files}
        return cached("folder", {"path": self.path, "files": stamps}, lambda: _decode(folder, files))

    def fingerprint(self) -> str:
        """Return a hash of all images and of their paths inside the folder, which name class and client."""
        folder = Path(self.path)
        return text_digest(
            f"{content_hash(path)} {path.relative_to(folder).as_posix()}" for path in self.files()
        )


def _depth(folder: Path, files: Sequence[Path]) -> int:
    """Return 2 if the images are by class, 3 if they are by client and class; refuse anything else."""
    depths = {len(path.relative_to(folder).parts) for path in files}
    if depths not in ({2}, {3}):
        raise InputError(
            f"{folder} must hold images by class (class/image.png) or by client and class"
            f" (client/class/image.png); {'it has no images' if not files else 'its images are elsewhere'}"
        )
    return depths.pop()


def _decode(folder: Path, files: Sequence[Path]) -> Dataset:
    images = [_read(path) for path in files]
    colour = any(image.ndim == 3 for image in images)
    if colour:
        images = [image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2) for image in images]
    for path, image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            size, first = (f"{shape[1]}×{shape[0]}" for shape in (image.shape, images[0].shape))
            raise InputError(f"{path} is {size} pixels, {files[0].name} is {first}: make them one size")
    places = [path.relative_to(folder).parts for path in files]
    pixels = np.stack(images)
    return from_arrays(
        str(folder),
        np.moveaxis(pixels, -1, 1) if colour else pixels,
        np.array([parts[-2] for parts in places]),
        np.array([parts[0] for parts in places]) if len(places[0]) == 3 else None,
    )


def _read(path: Path) -> np.ndarray:
    """Return an image as H×W bytes if it is grey, else as H×W×3."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L", "LA", "I", "I;16", "F")
            return np.asarray(image.convert("L" if grey else "RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
        raise corrupted(path, f"it is not an image ({error})") from None
