"""Matrices with a row per client and a column per weight, taken a block of columns at a time.

A block fits the processor's cache, and no step needs a copy of the whole matrix. Lengths and products are
summed over blocks in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedcap.products import fast_products
from fedcap.registry import InputError

Values = Tensor | ArrayLike
"""Numbers as users have them: a tensor, a NumPy array, or nested lists."""

BLOCK = 1 << 13
"""Columns that are compared at a time."""
NARROW = 1 << 11
"""Columns that are mixed, or measured, at a time."""
STRIPE = 256
"""Rows per stripe when rows are compared with each other: a stripe with itself and the rows after it."""

FEW_ROWS = 32
"""Rows that are folded, or compared with one other each, at a time."""


def to_tensor(values: Values) -> Tensor:
    """Return numbers as a tensor: a tensor as it is, anything else as a copy.

    A NumPy array keeps its type; lists become single precision, unless they hold whole numbers or flags.
    """
    if isinstance(values, Tensor):
        return values
    try:
        if isinstance(values, list | tuple) and any(isinstance(row, Tensor) for row in values):
            return torch.stack([to_tensor(row) for row in values])
        tensor = torch.from_numpy(np.array(values, order="C"))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "expected a tensor, a NumPy array, or lists of numbers with rows of one length"
            f" (got {type(values).__name__})"
        ) from None
    listed = not isinstance(values, np.ndarray)
    return tensor.to(torch.get_default_dtype()) if listed and tensor.is_floating_point() else tensor


def to_floats(values: Values) -> Tensor:
    """Return numbers as `to_tensor` does, whole ones as floats; a tensor is left as it is."""
    tensor = to_tensor(values)
    if isinstance(values, Tensor) or tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_default_dtype())


def column_blocks(columns: int | slice, width: int) -> Iterator[slice]:
    """Yield slices of `width` columns over the first `columns`, or over a range; the last may be narrower."""
    first, stop = (0, columns) if isinstance(columns, int) else (columns.start, columns.stop)
    for start in range(first, stop, width):
        yield slice(start, min(start + width, stop))


def finite_rows(matrix: Tensor) -> Tensor:
    """Return which rows are finite in every column, N flags."""
    finite = matrix.sum(dim=1).isfinite()
    if not bool(finite.all()):  # a bad row, or one so large that its sum overflows
        finite[~finite] = matrix[~finite].isfinite().all(dim=1)
    return finite


@fast_products()
def weighted_mean(matrix: Tensor, weights: Tensor) -> Tensor:
    """Return the mean of the rows, D, by their weights, N, whose shares are taken in double precision."""
    shares = weights.to(matrix.device, torch.float64)
    return (shares / shares.sum()).to(matrix.dtype) @ matrix


@dataclass(frozen=True)
class Rows:
    """The rows of a matrix, N×D, minus an origin (D, or a point for each row, N×D), subtracted when read."""

    matrix: Tensor
    origin: Tensor | None = None

    def __len__(self) -> int:
        return len(self.matrix)

    def only(self, mask: Tensor) -> Rows:
        """Return the rows for which the mask holds."""
        each = self.origin is not None and self.origin.ndim == 2
        return Rows(self.matrix[mask], self.origin[mask] if each else self.origin)  # type: ignore[index]

    def block(self, columns: slice, room: Tensor | None = None) -> Tensor:
        """Return some columns of the rows; what must be computed is put into `room`, if there is any."""
        part = self.matrix[:, columns]
        if self.origin is None:
            return part
        into = None if room is None else room[:, : part.shape[1]]
        return torch.sub(part, self.origin[..., columns], out=into)

    def columns(self, chosen: Tensor) -> Tensor:
        """Return the chosen columns of the rows, in the order in which they are named."""
        part = self.matrix.index_select(1, chosen)
        return part if self.origin is None else part.sub_(self.origin[..., chosen])

    def norms(self) -> Tensor:
        """Return the length of each row, N, in double precision."""
        squares = self.matrix.new_zeros(len(self), dtype=torch.float64)
        for columns in column_blocks(self.matrix.shape[1], NARROW):
            squares += torch.linalg.vector_norm(self.block(columns), dim=1).double().square()
        return squares.sqrt()


def folded(rows: Rows, norms: Tensor, width: int, seed: int) -> Tensor:
    """Return the rows at length 1, their columns added up to `width` of them, N×width; `norms` are theirs.

    This is a count sketch: each block of columns is shifted and each column has a sign, at random. Cosines
    between rows are kept, but for an error of about 1/√width, in a fraction of the time that comparing the
    rows themselves takes. Rows that are not wider than `width` are only brought to length 1.
    """
    matrix, origin = rows.matrix, rows.origin
    scales = (1 / norms.clamp_min(torch.finfo(matrix.dtype).tiny)).to(matrix)[:, None]
    if matrix.shape[1] <= width:
        return rows.block(slice(None)) * scales
    sums = _sums(matrix, width, seed)
    if origin is not None:
        sums -= _sums(origin.view(-1, matrix.shape[1]), width, seed)
    return sums * scales


def _sums(matrix: Tensor, width: int, seed: int) -> Tensor:
    """Return the signed and shifted columns added up, N×width, a stripe of rows at a time."""
    generator = torch.Generator().manual_seed(seed)
    sums = matrix.new_zeros(len(matrix), width)
    blocks = list(column_blocks(matrix.shape[1], width))
    signs = [
        torch.randint(0, 2, (c.stop - c.start,), generator=generator).mul_(2).sub_(1).to(matrix)
        for c in blocks
    ]
    shifts = torch.randint(0, width, (len(blocks),), generator=generator).tolist()
    for start in range(0, len(matrix), FEW_ROWS):
        into, stripe = sums[start : start + FEW_ROWS], matrix[start : start + FEW_ROWS]
        for columns, sign, shift in zip(blocks, signs, shifts, strict=True):
            part, first = stripe[:, columns], min(len(sign), width - shift)
            into[:, shift : shift + first].addcmul_(part[:, :first], sign[:first])
            into[:, : len(sign) - first].addcmul_(part[:, first:], sign[first:])
    return sums


@fast_products()
def cosines(left: Rows, right: Rows, columns: slice | None = None) -> Tensor:
    """Return the cosine of every row of `left` with every row of `right`, L×R.

    A row of zeros points nowhere: its cosine with anything is 0. `columns` limits the comparison.
    """
    matrix = right.matrix
    products = matrix.new_zeros((len(left), len(right)), dtype=torch.float64)
    squares_left = matrix.new_zeros(len(left), dtype=torch.float64)
    squares_right = matrix.new_zeros(len(right), dtype=torch.float64)
    width = min(BLOCK, matrix.shape[1])
    room = matrix.new_empty(len(right), width)  # new memory for each block would take longer than the block
    for block in column_blocks(columns or matrix.shape[1], BLOCK):
        theirs = right.block(block, room)
        squares_right += torch.linalg.vector_norm(theirs, dim=1).double().square()
        if left is right:  # the half below the diagonal mirrors the half above it
            for start in range(0, len(right), STRIPE):
                products[start : start + STRIPE, start:] += theirs[start : start + STRIPE] @ theirs[start:].T
        else:
            ours = left.block(block)
            squares_left += torch.linalg.vector_norm(ours, dim=1).double().square()
            products += ours @ theirs.T
    if left is right:
        squares_left, products = squares_right, products.triu() + products.triu(1).T
    lengths = (squares_left[:, None] * squares_right).sqrt()
    return torch.where(lengths > 0, products / lengths, 0.0).to(matrix.dtype)
