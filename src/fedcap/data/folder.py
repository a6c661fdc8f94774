"""The user's own images from a folder: class/image.png, client/class/image.png, or train/class/image.png.

If the top folders are called train and test, they are the data's own split and not clients. All images must
have the same size. If any image has colour, all are read in colour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcap.data.base import Dataset, registry, text_digest
from fedcap.data.cache import cached
from fedcap.data.files import content_hash, file_stamp, unusable_error
from fedcap.data.own import Own, from_arrays
from fedcap.errors import InputError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
_SPLIT = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The names of the folders of a split, in any case."""
_FORMS = "class/image.png, client/class/image.png, or train/class/image.png and test/class/image.png"


@registry.register("folder")
@dataclass(frozen=True)
class Folder(Own):
    """Your own images: --dataset FOLDER with class/1.png, client/class/1.png, or train/class/1.png."""

    path: str = ""
    """The folder."""

    def has_owners(self) -> bool:
        """Return whether the images are in folders by client."""
        return _layout(Path(self.path), self.files()).by_client

    @property
    def heading(self) -> str:
        """The folder's name."""
        return Path(self.path).name

    def files(self) -> list[Path]:
        """Return all images, sorted; raise an `InputError` if there are none in folders by class."""
        folder = Path(self.path)
        if self.integers:
            raise InputError(
                "dataset.integers is for tables and arrays: images are scaled to [−1, 1]",
                code="bad-value",
                field="integers",
            )
        if not self.path or not folder.is_dir():
            raise InputError(
                f"cannot read {self.path or 'data set folder'}: give the path of a folder of images",
                code="missing-path",
                field="folder",
            )
        found = sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in _SUFFIXES
            and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
        _layout(folder, found)
        return found

    def load(self) -> Dataset:
        """Return all images as C×H×W bytes."""
        folder, files = Path(self.path), self.files()
        stamps = {str(path.relative_to(folder)): file_stamp(path) for path in files}
        # Older versions cached a split as two clients, so the entry of a split has another name.
        form = "split" if _layout(folder, files).tests else "folder"
        return cached(form, {"path": self.path, "files": stamps, "depth": 8}, lambda: _decode(folder, files))

    def fingerprint(self) -> str:
        """Return a hash of all images and of their paths in the folder, which name class and client."""
        folder = Path(self.path)
        return text_digest(
            f"{content_hash(path)} {path.relative_to(folder).as_posix()}" for path in self.files()
        )


@dataclass(frozen=True)
class _Layout:
    """The meaning of the top folders: clients, parts of a split, or classes."""

    by_client: bool
    tests: frozenset[str] = frozenset()
    """The folders whose images are for testing only; empty if the data has no split of its own."""
    notes: tuple[str, ...] = ()


def _layout(folder: Path, files: Sequence[Path]) -> _Layout:
    """Return the meaning of the folders of these images; raise an `InputError` for other forms."""
    places = [path.relative_to(folder).parts for path in files]
    depths = Counter(map(len, places))
    if not files:
        raise InputError(
            f"{folder} must hold images by class, as {_FORMS}; it has no images", code="bad-folder"
        )
    if len(depths) > 1 or not depths.keys() <= {2, 3}:
        usual = max(depths.keys() & {2, 3}, key=depths.__getitem__, default=0)
        odd = next(path for path, parts in zip(files, places, strict=True) if len(parts) != usual)
        raise InputError(
            f"{folder} must hold images by class, as {_FORMS}; its images are elsewhere, such as {odd}",
            code="bad-folder",
        )
    parts = {top: _SPLIT.get(top.lower()) for top in sorted({place[0] for place in places})}
    is_split = len(parts) > 1 and len({*parts.values(), None}) == len(parts) + 1 and "train" in parts.values()
    if not is_split:
        return _Layout(by_client=depths.keys() == {3})
    if 2 in depths:
        raise InputError(
            f"{folder} has {' and '.join(parts)}, and no folder for each class inside them", code="bad-folder"
        )
    tested = "test" if "test" in parts.values() else "validation"
    spare = [top for top, part in parts.items() if part not in ("train", tested)]
    return _Layout(
        by_client=False,
        tests=frozenset(top for top, part in parts.items() if part == tested),
        notes=tuple(f"{folder.name}: images in {top} are used for training" for top in spare),
    )


def _decode(folder: Path, files: Sequence[Path]) -> Dataset:
    images = [_read(path) for path in files]
    colour = any(image.ndim == 3 for image in images)
    if colour:
        images = [image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2) for image in images]
    for path, image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            size, first = (f"{shape[1]}×{shape[0]}" for shape in (image.shape, images[0].shape))
            raise InputError(
                f"{path} is {size} pixels, {files[0].name} is {first}: make them one size", code="data-shape"
            )
    places = [path.relative_to(folder).parts for path in files]
    layout = _layout(folder, files)
    tops = [place[0] for place in places]
    pixels = np.stack(images)
    return from_arrays(
        str(folder),
        np.moveaxis(pixels, -1, 1) if colour else pixels,
        np.array([place[-2] for place in places]),
        np.array(tops) if layout.by_client else None,
        np.array([top in layout.tests for top in tops]) if layout.tests else None,
        layout.notes,
    )


def _read(path: Path) -> np.ndarray:
    """Return an image as bytes: H×W if it is grey, else H×W×3."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return pixels_of(image)
    except InputError as error:
        raise error.prefixed(path) from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
        raise unusable_error(path, f"it is not a whole image ({error})") from None


def pixels_of(image: Any) -> np.ndarray:
    """Return an opened image as bytes: H×W if it is grey, else H×W×3."""
    grey = image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16")
    if grey and image.mode not in ("1", "L", "LA"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 255 or (values != values.round()).any():
            raise InputError(
                f"the image has pixels of {values.min():g} to {values.max():g}, and fedcap reads images of 8"
                " bits, 0 to 255: scale its pixels, or give arrays of numbers (.npz)",
                code="deep-image",
            )
        return values.astype(np.uint8)
    return np.asarray(image.convert("L" if grey else "RGB"))
