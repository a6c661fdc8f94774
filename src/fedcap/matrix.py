"""Operations on matrices with a row per client and a column per weight, N×D, one block of columns at a time.

A block fits the processor's cache, so no operation copies the whole matrix. Lengths and products of rows are
summed in double precision. The last part has robust statistics of N numbers, such as the median weighted by
votes: a minority of the numbers cannot move them far, whatever its values are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedcap.errors import InputError
from fedcap.products import fast_products

Values = Tensor | ArrayLike
"""Numbers in the forms that users have them in: a tensor, a NumPy array, or nested lists."""

CACHED = 1 << 18
"""The number of entries in a block of `blocks`: a megabyte in single precision."""
BLOCK = 1 << 13
"""The number of columns in a block of `cosines`."""
NARROW = 1 << 11
"""The number of columns in a block where models are mixed or rows are measured."""
STRIPE = 256
"""The number of rows in a stripe of `cosines`. Each stripe is multiplied by itself and the rows after it."""
SHORTEST = 1e-12
"""Shorter rows count as this long where lengths are divided by, or their logarithm is taken."""
FEW_ROWS = 32
"""The number of rows that are sketched, or compared with one other row each, at a time."""

_NETWORK_ROWS = 32
"""Up to this number of rows, a sorting network over whole rows is faster than sorting each coordinate."""
_SIGMA = 1.4826
"""The standard deviation of normal numbers over their MAD, or over half the width of their shortest half."""
_FEW_VALUES = 5.0
"""The shortest majority of few numbers is narrower than that of many; this factor corrects for it."""
_THETA = 0.8


# Conversion


def to_tensor(values: Values) -> Tensor:
    """Return numbers as a tensor. A tensor is returned unchanged, anything else is copied.

    A NumPy array keeps its type. Lists of floats become single precision.
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
            f" (got {type(values).__name__})",
            code="wrong-type",
        ) from None
    is_list = not isinstance(values, np.ndarray)
    return tensor.to(torch.get_default_dtype()) if is_list and tensor.is_floating_point() else tensor


def to_floats(values: Values) -> Tensor:
    """Return numbers as `to_tensor` does, with integers and flags converted to floats.

    A tensor is returned unchanged.
    """
    tensor = to_tensor(values)
    if isinstance(values, Tensor) or tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_default_dtype())


# Blocks of columns


def column_blocks(columns: int | slice, width: int) -> Iterator[slice]:
    """Yield slices of `width` columns over the first `columns`, or over a range; the last may be narrower."""
    first, stop = (0, columns) if isinstance(columns, int) else (columns.start, columns.stop)
    for start in range(first, stop, width):
        yield slice(start, min(start + width, stop))


def blocks(rows: Tensor) -> Iterator[slice]:
    """Yield the columns of each block; a block of all N rows has at most `CACHED` entries."""
    return column_blocks(rows.shape[1], max(1, CACHED // max(1, len(rows))))


@dataclass(frozen=True)
class Rows:
    """The rows of a matrix, N×D, minus an origin: one point, D, or one point per row, N×D.

    The origin is subtracted block by block, when the rows are read. Rows in bfloat16 are read as float32.
    """

    matrix: Tensor
    origin: Tensor | None = None

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def width(self) -> int:
        """D."""
        return self.matrix.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers that are read."""
        return torch.float32 if self.matrix.dtype == torch.bfloat16 else self.matrix.dtype

    def only(self, mask: Tensor) -> Rows:
        """Return the rows for which the mask holds."""
        origin_per_row = self.origin is not None and self.origin.ndim == 2
        return Rows(self.matrix[mask], self.origin[mask] if origin_per_row else self.origin)  # type: ignore[index]

    def block(self, columns: slice, buffer: Tensor | None = None) -> Tensor:
        """Return a range of columns; a difference from the origin is written to `buffer`, if given."""
        part = self.matrix[:, columns].to(self.dtype)
        if self.origin is None:
            return part
        out = None if buffer is None else buffer[:, : part.shape[1]]
        return torch.sub(part, self.origin[..., columns], out=out)

    def columns(self, chosen: Tensor) -> Tensor:
        """Return the columns with these indices, in the order of the indices."""
        part = self.matrix.index_select(1, chosen)
        return part if self.origin is None else part.sub_(self.origin[..., chosen])

    def norms(self) -> Tensor:
        """Return the length of each row, N, in double precision."""
        squares = self.matrix.new_zeros(len(self), dtype=torch.float64)
        for columns in column_blocks(self.matrix.shape[1], NARROW):
            squares += torch.linalg.vector_norm(self.block(columns), dim=1).double().square()
        return squares.sqrt()


def to_bfloat16(rows: Rows) -> Tensor:
    """Return the rows, N×D, in bfloat16."""
    half = rows.matrix.new_empty(rows.matrix.shape, dtype=torch.bfloat16)
    for columns in column_blocks(rows.width, NARROW):
        half[:, columns] = rows.block(columns)
    return half


def finite_rows(matrix: Tensor) -> Tensor:
    """Return which rows are finite in every column, N flags."""
    finite = matrix.sum(dim=1).isfinite()
    if not bool(finite.all()):  # the row has NaN or infinity, or its sum overflows
        finite[~finite] = matrix[~finite].isfinite().all(dim=1)
    return finite


def move_up(matrix: Tensor, mask: Tensor) -> Tensor:
    """Move the rows for which the mask holds to the top of the matrix, and return them."""
    rows = mask.nonzero().flatten().tolist()
    for place, row in enumerate(rows):
        if place != row:
            matrix[place] = matrix[row]
    return matrix[: len(rows)]


# Sums and means of rows


@fast_products()
def weighted_mean(rows: Tensor | Rows, weights: Tensor) -> Tensor:
    """Return the mean of the rows, D, by their weights, N. The shares are computed in double precision."""
    matrix = rows.matrix if isinstance(rows, Rows) else rows
    shares = weights.to(matrix.device, torch.float64)
    shares = (shares / shares.sum()).to(rows.dtype)
    if isinstance(rows, Rows):
        return torch.cat([shares @ rows.block(columns) for columns in column_blocks(rows.width, NARROW)])
    return shares @ matrix


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Return Σ_i w_i r_i, D."""
    return weights.to(rows) @ rows


def mean_of(rows: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of the rows with these indices, D."""
    weights = rows.new_zeros(len(rows))
    weights[chosen] = 1 / len(chosen)
    return weighted_sum(weights, rows)


# Products, distances and cosines of rows


def gram(rows: Tensor, exact: bool = True) -> Tensor:
    """Return the product of each row with each row, N×N, in double precision.

    Double precision holds products of single-precision numbers exactly, so rows that differ little stay
    distinguishable, and a row of 1e30 does not overflow. With `exact=False`, the products within a block are
    summed in the precision of the rows, which is faster.
    """
    if rows.device.type != "cpu":
        total = rows.new_zeros((len(rows), len(rows)), dtype=torch.float64)
        for block in blocks(rows):
            columns = rows[:, block].double()
            total.addmm_(columns, columns.T)
        return total
    array = rows.numpy()
    found = np.zeros((len(rows), len(rows)))
    double = np.empty((len(rows), 0))
    for block in blocks(rows):
        part = array[:, block]
        if exact:
            if part.shape != double.shape:
                double = np.empty(part.shape)
            double[:] = part
            part = double
        with np.errstate(over="ignore", invalid="ignore"):  # infinity means: use exact=True
            found += part @ part.T  # NumPy detects that the product is symmetric and computes half of it
    return torch.from_numpy(found)


def gram_to_squared_distances(products: Tensor) -> Tensor:
    """Return the squared distances between the rows with these products, N×N."""
    squares = products.diagonal()
    return (squares[:, None] + squares - 2 * products).fill_diagonal_(0).clamp_min_(0)


def gram_to_cosines(products: Tensor) -> Tensor:
    """Return the cosines between the rows with these products, N×N.

    A row of zeros has the cosine 0 with other rows, and 1 with itself.
    """
    lengths = products.diagonal().sqrt()
    inverse = torch.where(lengths > 0, 1 / lengths, 0)
    return (products * inverse * inverse[:, None]).clamp(-1, 1).fill_diagonal_(1)


def squared_distances(rows: Tensor) -> Tensor:
    """Return the squared distances between all rows, N×N, in double precision."""
    return gram_to_squared_distances(gram(rows))


def distances_to(rows: Tensor, point: Tensor | None = None) -> Tensor:
    """Return each row's distance to a point, or to the origin, N, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for block in blocks(rows):
        part = rows[:, block] if point is None else rows[:, block] - point[block]
        total += torch.linalg.vector_norm(part, dim=1).double().square_()
    if rows.dtype != torch.float64 and not bool(total.isfinite().all()):  # the squares of a row overflow
        return distances_to(rows.double(), point)
    return total.sqrt_()


@fast_products()
def cosines(left: Rows, right: Rows, columns: slice | None = None) -> Tensor:
    """Return the cosine of every row of `left` with every row of `right`, L×R, in the rows' precision.

    A row of zeros has no direction: its cosine with any row is 0. `columns` limits the comparison to a range
    of columns.
    """
    matrix = right.matrix
    products = matrix.new_zeros((len(left), len(right)), dtype=torch.float64)
    squares_left = matrix.new_zeros(len(left), dtype=torch.float64)
    squares_right = matrix.new_zeros(len(right), dtype=torch.float64)
    width = min(BLOCK, matrix.shape[1])
    # One buffer for all blocks: allocating one for each would take longer.
    buffer = matrix.new_empty(len(right), width, dtype=right.dtype)
    for block in column_blocks(columns or matrix.shape[1], BLOCK):
        b = right.block(block, buffer)
        squares_right += torch.linalg.vector_norm(b, dim=1).double().square()
        if left is right:  # compute only the upper triangle
            for start in range(0, len(right), STRIPE):
                products[start : start + STRIPE, start:] += b[start : start + STRIPE] @ b[start:].T
        else:
            a = left.block(block)
            squares_left += torch.linalg.vector_norm(a, dim=1).double().square()
            products += a @ b.T
    if left is right:
        squares_left, products = squares_right, products.triu() + products.triu(1).T
    lengths = (squares_left[:, None] * squares_right).sqrt()
    return torch.where(lengths > 0, products / lengths, 0.0).to(right.dtype)


def sketch(rows: Rows, norms: Tensor, width: int, seed: int) -> Tensor:
    """Return a count sketch of the rows scaled to length 1, N×width; `norms` are the rows' lengths.

    Each block of `width` columns is shifted and each column gets a sign, both at random, and the blocks are
    added up. Cosines between rows change by about 1/√width. Comparing sketches takes a small part of the time
    that comparing the rows takes. Rows that are not wider than `width` are only scaled.
    """
    matrix, origin = rows.matrix, rows.origin
    scales = (1 / norms.clamp_min(torch.finfo(matrix.dtype).tiny)).to(matrix)[:, None]
    if matrix.shape[1] <= width:
        return rows.block(slice(None)) * scales
    sums = _sketch_sums(matrix, width, seed)
    if origin is not None:
        sums -= _sketch_sums(origin.view(-1, matrix.shape[1]), width, seed)
    return sums * scales


def _sketch_sums(matrix: Tensor, width: int, seed: int) -> Tensor:
    """Return the sum of the signed and shifted blocks, N×width, computed for a few rows at a time."""
    generator = torch.Generator().manual_seed(seed)
    sums = matrix.new_zeros(len(matrix), width)
    slices = list(column_blocks(matrix.shape[1], width))
    signs = [
        torch.randint(0, 2, (c.stop - c.start,), generator=generator).mul_(2).sub_(1).to(matrix)
        for c in slices
    ]
    shifts = torch.randint(0, width, (len(slices),), generator=generator).tolist()
    for start in range(0, len(matrix), FEW_ROWS):
        out, few = sums[start : start + FEW_ROWS], matrix[start : start + FEW_ROWS]
        for columns, sign, shift in zip(slices, signs, shifts, strict=True):
            part, first = few[:, columns], min(len(sign), width - shift)
            out[:, shift : shift + first].addcmul_(part[:, :first], sign[:first])
            out[:, : len(sign) - first].addcmul_(part[:, first:], sign[first:])
    return sums


# Order statistics of columns


def order_statistics(block: Tensor) -> Tensor:
    """Return a block, N×B, with the values of each column in ascending order."""
    if block.device.type != "cpu":
        return block.sort(dim=0).values
    if len(block) > _NETWORK_ROWS:
        values = block.T.clone(memory_format=torch.contiguous_format)
        values.numpy().sort(axis=1)
        return values.T
    rows = list(block.numpy().copy())
    spare = np.empty_like(rows[0])
    for low, high in _comparators(len(rows)):
        first, second = rows[low], rows[high]
        np.minimum(first, second, out=spare)
        np.maximum(first, second, out=second)
        rows[low], spare = spare, first
    return torch.from_numpy(np.stack(rows))


@cache
def _comparators(count: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs that a sorting network for `count` values compares, in order.

    This is Batcher's merge exchange: Knuth, "The Art of Computer Programming", volume 3, section 5.2.2,
    algorithm M.
    """
    pairs: list[tuple[int, int]] = []
    top = 1 << max(0, (count - 1).bit_length() - 1)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(count - d) if i & p == r]
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2
    return tuple(pairs)


# Robust statistics of N numbers


def weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """Return the smallest value at which half of the weight is reached.

    If exactly half is reached there, return the mean of this value and the next one.
    """
    order = torch.argsort(values)
    reached = torch.cumsum(weights[order], dim=0)
    half = reached[-1] / 2
    at = int(torch.searchsorted(reached, half * (1 - 1e-12)))
    low = values[order[at]]
    is_half = math.isclose(float(reached[at]), float(half), rel_tol=1e-9) and at + 1 < len(values)
    return (low + values[order[at + 1]]) / 2 if is_half else low


def deviations(values: Tensor, votes: Tensor, floor: float) -> Tensor:
    """Return (x − median) / max(σ, floor), N, with σ = 1.4826 · MAD.

    The median and the median absolute deviation (MAD) are weighted by votes: clients that sent the same
    values share one vote.
    """
    middle = weighted_median(values, votes)
    spread = _SIGMA * weighted_median((values - middle).abs(), votes)
    return (values - middle) / spread.clamp_min(floor)


def shortest_majority(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the middle of the shortest interval that holds a majority of the values, and their spread.

        σ = 1.4826 · (1 + 5 / (n − 1)) · half the width

    This is the least median of squares (Rousseeuw, 1984) with its factor for few values. Of intervals of
    equal width the lowest counts. It serves better than median and MAD where all malicious values lie on one
    side: with four such values of ten, the median is near the edge of the honest values, and the MAD is
    nearly their whole range.
    """
    ascending, majority = values.sort().values, len(values) // 2 + 1
    low, high = ascending[: len(values) - majority + 1], ascending[majority - 1 :]
    at = int((high - low).argmin())
    few = 1 + _FEW_VALUES / max(len(values) - 1, 1)
    return (low[at] + high[at]) / 2, _SIGMA * few * (high[at] - low[at]) / 2


def evidence(deviation: Tensor, usual: float) -> Tensor:
    """Return the logarithm of the evidence against each client, N, given its deviation z from the others.

        log e = max(θ · (z − usual), −1),    θ = 0.8

    Deviations below the usual one count in favour of a client; the limit −1 bounds what one round adds. If
    nine rounds of ten are below usual − 1/θ, and the others exceed usual by no more than an exponential
    number would, then E[e] < 1. The product of e over rounds is then a supermartingale, and by Ville's
    inequality it ever reaches 1/δ with probability at most δ.
    """
    return (_THETA * (deviation - usual)).clamp_min(-1.0)
