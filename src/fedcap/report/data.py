"""Figures of a data set: the classes of each client, and some samples of each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor
from torch.nn import functional

from fedcap.report.charts import save
from fedcap.state import Samples

SHEET_COLUMNS = 12
SHEET_ROWS = 20
SHEET_CLASSES = 62
CELL = 0.55
"""Width and height of a sample, in inches."""
CHANNEL_COLOURS = ("#1f6fb2", "#d9822b", "#3b8f5a")
NAMES_SHOWN = 60
"""How many clients' names fit along the axis; if there are more, some are left out."""
NAME_LENGTH = 20


def draw_partition(
    name: str,
    names: Sequence[str],
    train: Sequence[Samples],
    test: Sequence[Samples],
    classes: Sequence[str],
    path: Path,
) -> None:
    """Draw the number of samples of each class by client, and in total; `names` are those of the clients."""
    counts = torch.stack(
        [
            torch.bincount(torch.cat([mine.y, held.y]), minlength=len(classes))
            for mine, held in zip(train, test, strict=True)
        ]
    )
    clients = len(counts)
    figure = Figure(figsize=(max(6.0, 0.16 * len(classes) + 5), max(3.5, 0.11 * clients + 1.8)))
    figure.set_layout_engine("constrained")
    by_class, sizes = figure.subplots(1, 2, width_ratios=[4, 1], sharey=True)
    shaded = np.where(counts > 0, counts, np.nan)
    image = by_class.imshow(shaded, aspect="auto", cmap="viridis_r", interpolation="nearest", vmin=0)
    by_class.set_facecolor("#f4f4f4")
    crowded = len(classes) > 20
    by_class.set_xticks(
        range(len(classes)),
        classes,
        rotation=0 if _short(classes) else 60,
        fontsize=5 if crowded else 8,
        parse_math=False,
    )
    _name_clients(by_class, names)
    by_class.set_xlabel("class")
    by_class.set_ylabel("client")
    by_class.set_title(f"{name}: samples of each class by client", fontsize=10)
    figure.colorbar(image, ax=by_class, location="left", shrink=0.6, pad=0.02)
    trained = [len(part) for part in train]
    sizes.barh(range(clients), trained, color="#1f6fb2", label="training")
    sizes.barh(range(clients), [len(part) for part in test], left=trained, color="#9fc3e0", label="test")
    sizes.set_xlabel("samples")
    sizes.legend(frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    sizes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def draw_samples(name: str, clients: Sequence[Samples], classes: Sequence[str], path: Path) -> None:
    """Draw a strip of samples of each class, from different clients; with many classes in three columns."""
    shown = list(enumerate(classes))[:SHEET_CLASSES]
    columns = 1 if len(shown) <= SHEET_ROWS else 3
    rows = -(-len(shown) // columns)
    height = CELL * rows + 0.5
    figure = Figure(figsize=(CELL * (SHEET_COLUMNS + 1.5 * columns), height))
    figure.suptitle(f"{name}: samples of each class", fontsize=10, y=1 - 0.12 / height)
    strips = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(0.1, 0.01, 0.99, 1 - 0.4 / height, wspace=0.25, hspace=0.06)
    for axes in strips.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    for (label, class_name), axes in zip(shown, strips.flat, strict=False):
        found = _some_of(clients, label, SHEET_COLUMNS // columns)
        axes.set_ylabel(class_name, rotation=0, ha="right", va="center", fontsize=8, parse_math=False)
        if found and _is_image(found[0]):
            axes.imshow(_side_by_side(found), vmin=0, vmax=1, cmap="gray", aspect="auto")
        else:
            _draw_lines(axes, found, SHEET_COLUMNS // columns)
    save(figure, path)


def _name_clients(axes: Axes, names: Sequence[str]) -> None:
    """Write the clients' names next to their rows, not all of them if there are many."""
    if list(names) == [str(client) for client in range(len(names))]:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        return
    places = range(0, len(names), -(-len(names) // NAMES_SHOWN))
    shown = [names[place] for place in places]
    short = [name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…" for name in shown]
    axes.set_yticks(places, short, fontsize=8 if len(names) <= 20 else 5, parse_math=False)


def _some_of(clients: Sequence[Samples], label: int, count: int) -> list[Tensor]:
    """Return a few inputs of one class, from one client after the other."""
    own = [part.x[part.y == label] for part in clients]
    return [x[index] for index in range(count) for x in own if index < len(x)][:count]


def _is_image(x: Tensor) -> bool:
    return x.ndim == 3 and x.shape[0] in (1, 3) and min(x.shape[1:]) > 1


def _side_by_side(images: Sequence[Tensor]) -> np.ndarray:
    """Return images as one, H×W×3, between 0 and 1, separated by white lines."""
    low, high = (-1.0, 1.0) if min(float(x.min()) for x in images) < 0 else (0.0, 1.0)
    edged = [functional.pad(((x - low) / (high - low)).clamp(0, 1), (0, 1), value=1.0) for x in images]
    return torch.cat(edged, dim=2).expand(3, -1, -1).permute(1, 2, 0).numpy()


def _draw_lines(axes: Axes, inputs: Sequence[Tensor], places: int) -> None:
    """Draw inputs that are not images side by side, with a line per channel."""
    for place, x in enumerate(inputs):
        lines = x.reshape(x.shape[0], -1) if x.ndim > 1 else x[None]
        across = place + 0.9 * torch.arange(lines.shape[1]) / lines.shape[1]
        for channel, line in enumerate(lines[: len(CHANNEL_COLOURS)]):
            axes.plot(across.numpy(), line.numpy(), linewidth=0.6, color=CHANNEL_COLOURS[channel])
    axes.set_xlim(0, places)


def _short(names: Sequence[str]) -> bool:
    return max(map(len, names)) <= 2
