"""Preparation of inputs: from data as users have it to the inputs of a run's networks.

Bytes are scaled to [−1, 1] if the run's inputs were bytes. If the run standardised its data, inputs are
standardised by the mean and the deviation of the client's own training samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedcap.data import FederatedData
from fedcap.data.base import Scaling
from fedcap.data.encoding import Encoding, Levels, encode
from fedcap.data.own import as_array, as_inputs
from fedcap.data.tables import is_frame, listed, matched, matched_matrix, row_in_words
from fedcap.errors import InputError, warn_once
from fedcap.runs import Provenance

WHAT = "inputs"
FAR = 25.0
"""A value that is more deviations from the mean is far from the training samples."""


@dataclass(frozen=True)
class Inputs:
    """The inputs and the classes of a run's networks."""

    shape: tuple[int, ...]
    """The shape of one input."""
    class_names: tuple[str, ...]
    """In the order of the network's outputs."""
    pixels: bool
    """Whether inputs were bytes, which are scaled to [−1, 1]."""
    features: tuple[str, ...] = ()
    """The names of the features of a table, in order; empty if they have no names."""
    levels: Levels = ()
    """The categories of each column of an encoded table, empty for numbers; else empty."""
    integers: bool = False
    """Whether inputs are integers."""

    @classmethod
    def of(cls, data: FederatedData) -> Inputs:
        """Return the inputs and classes of networks that train on this data."""
        names = data.class_names or tuple(str(label) for label in range(data.classes))
        return cls(data.shape, names, data.pixels, data.features, data.levels, data.integers)

    @classmethod
    def recorded(cls, provenance: Provenance) -> Inputs:
        """Return what a run recorded."""
        names, features = tuple(provenance.class_names), tuple(provenance.features)
        levels = tuple(map(tuple, provenance.levels))
        shape, pixels, integers = tuple(provenance.shape), provenance.pixels, provenance.integers
        return cls(shape, names, pixels, features, levels, integers)


@dataclass(frozen=True, eq=False)
class Preparation:
    """How one client's inputs are prepared. Call it with inputs as users have them."""

    shape: tuple[int, ...]
    pixels: bool
    scaling: Scaling | None = None
    """How the client's inputs were standardised, if they were."""
    features: tuple[str, ...] = ()
    """The names of the features of a table, in order; empty if they have no names."""
    encoding: Encoding | None = None
    """How missing values and categories of a table were encoded, if they were."""
    integers: bool = False
    """Whether the inputs are integers."""

    def __call__(self, inputs: Any) -> Tensor:
        """Return inputs, n×H×W, n×H×W×C, n×C×H×W or n×…, as the client's network takes them."""
        return self.scaled(self.arranged(inputs))

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of one input that `scaled` takes."""
        return self.shape if self.encoding is None else (len(self.encoding.levels),)

    @property
    def dtype(self) -> str:
        """The type of the numbers that `scaled` takes."""
        return "int64" if self.integers else "uint8" if self.pixels else "float32"

    def arranged(self, inputs: Any) -> Tensor:
        """Return inputs in the shape of the network's, as bytes if the run's were bytes, else as floats.

        The columns of a data frame are matched to the run's features by name, in any order.
        """
        if self.encoding is not None:
            encoded = torch.from_numpy(self._encoded(inputs, self.encoding.levels))
            self._warn_far(encoded)
            return encoded
        if self.features and is_frame(inputs):
            array = matched_matrix(WHAT, self.features, inputs)
        else:
            array = as_array(WHAT, inputs)
            if self.features:
                warn_once(
                    f"{WHAT}: the columns of x have no names: they must be, in order, {listed(self.features)}"
                )
        if not self.integers:
            array = _bytes(array) if self.pixels else _numbers(array)
        x = as_inputs(WHAT, array, self.integers)
        found = tuple(x.shape[1:])
        if found == self.shape:
            self._warn_far(x)
            return x
        if len(self.shape) == 3 and found == (*self.shape[1:], self.shape[0]):
            return x.movedim(-1, 1).contiguous()
        if self.shape[0] == 1 and found == self.shape[1:]:
            return x[:, None]
        given, taken = ("×".join(map(str, ("n", *shape))) for shape in (found, self.shape))
        raise InputError(
            f"{WHAT}: x has the shape {given}; the run's networks take {taken}", code="data-shape", field="x"
        )

    def _encoded(self, inputs: Any, levels: Levels) -> np.ndarray:
        """Return a table as numbers, n×C."""
        if not is_frame(inputs):
            raise InputError(
                f"{WHAT}: the run's table has missing values or categories: give a table with named columns",
                code="data-shape",
                field="x",
            )
        return encode(WHAT, matched(WHAT, self.features, inputs), levels, new=True)

    def _warn_far(self, x: Tensor) -> None:
        """Warn of a value of a table that is far from the training samples, as after a change of units."""
        if self.scaling is None or len(self.shape) != 1 or x.shape[1:] != self.raw_shape:
            return
        levels = ((),) * x.shape[1] if self.encoding is None else self.encoding.levels
        columns = [place for place, known in enumerate(levels) for _ in range(len(known) + 1 if known else 1)]
        numbers = torch.tensor([not levels[column] for column in columns])
        distances = self.scaled(x).abs() * numbers
        farthest, row = distances.max(dim=0)
        place = int(farthest.argmax())
        if not float(farthest[place]) > FAR:
            return
        column = columns[place]
        name = f"column {self.features[column]!r}" if self.features else f"feature {column}"
        mean, deviation = (
            float(part.flatten()[place]) for part in (self.scaling.mean, self.scaling.deviation)
        )
        warn_once(
            f"{WHAT}: {name} has the value {float(x[int(row[place]), column]):g} in"
            f" {row_in_words(int(row[place]))}, and the client's training samples have a mean of {mean:.4g}"
            f" and a deviation of {deviation:.4g}: check its unit"
        )

    def scaled(self, x: Tensor) -> Tensor:
        """Return arranged inputs as the network takes them."""
        if self.integers:
            return x
        x = x.to(torch.float32)
        if self.encoding is not None:
            x = self.encoding.apply(x)
        if self.pixels:
            x = x / 127.5 - 1
        return x if self.scaling is None else self.scaling.apply(x)


class Predictor(nn.Module):
    """A model with its preparation and a softmax: arranged inputs in, probabilities n×classes out."""

    def __init__(self, preparation: Preparation, model: nn.Module) -> None:
        super().__init__()
        self.preparation = preparation
        self.model = model
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the probability of each class."""
        return torch.softmax(self.model(self.preparation.scaled(x)), dim=1)


def scaling_tensors(data: FederatedData) -> dict[str, Tensor]:
    """Return the clients' means, deviations and medians, if any, stacked in the order of their names."""
    found = {}
    if data.scaling:
        each = [data.scaling[name] for name in data.names]
        found["mean"] = torch.stack([scaling.mean for scaling in each])
        found["deviation"] = torch.stack([scaling.deviation for scaling in each])
    if data.medians:
        found["median"] = torch.stack([data.medians[name] for name in data.names])
    return found


def _bytes(x: np.ndarray) -> np.ndarray:
    """Return whole numbers from 0 to 255 as bytes; refuse anything else."""
    whole = x.dtype.kind in "iu" and x.size > 0
    if x.dtype != np.uint8 and not (whole and x.min() >= 0 and x.max() <= 255):
        raise InputError(
            f"{WHAT}: the run's inputs were images as bytes: x should hold whole numbers from 0 to 255, not"
            f" {x.dtype}",
            code="data-shape",
            field="x",
        )
    return x.astype(np.uint8, copy=False)


def _numbers(x: np.ndarray) -> np.ndarray:
    """Return numbers as floats; `as_inputs` refuses arrays of anything else."""
    return x.astype(np.float32, copy=False) if x.dtype.kind in "fiub" else x
