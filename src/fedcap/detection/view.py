"""Who sent the same but for noise: colluders who add noise of their own, so that no two rows are equal.

Training changes few weights much and most a little, and that is how two honest clients differ. Two copies of
one row that got independent noise differ by noise, which is alike in all weights:

    e = ‖x‖₁ / (√m · ‖x‖₂),    x the difference of two rows, m its columns,

is √(2/π) = 0.80 for normal noise and 0.82 for uniform noise. Between honest clients it was 0.3 to 0.65, with
networks and data of several kinds. Noise of other shapes, such as training's own, is not found by this.
Honest clients who are much alike and add normal noise for privacy, where the others do not, are found too.

What the server sees of a round's uploads, before anybody is judged: a row per client.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedcap.matrix import FEW_ROWS, Rows, cosines, finite_rows, sketch

SHARED = 0.5
"""Rows at a smaller cosine have less in common than not, whatever their difference looks like."""
NOISE = 0.775
"""A difference that is less even than this is no noise."""
MORE = 0.1
"""Nor is one that is more even than is usual by less than this."""
ROUNDING = 1e-5
"""Rows that differ by a smaller share of their length do so by rounding."""
FEWEST = 500
"""In fewer columns differences look even by chance, and are not judged."""


def noise_apart(rows: Tensor, cosines: Tensor) -> Tensor:
    """Return which pairs of rows, N×m, differ by nothing but noise, N×N flags; `cosines`, N×N, are theirs.

    Everybody is first compared with its nearest, and only those who are noise apart with each other. What is
    usual is the median over clients of the least even of their differences from the nearest and a few others:
    a minority cannot move it by lying near everybody.
    """
    apart = torch.zeros(len(rows), len(rows), dtype=torch.bool)
    if len(rows) < 2 or rows.shape[1] < FEWEST:
        return apart
    cosines = cosines.nan_to_num(-1.0).fill_diagonal_(-1.0)
    everybody = torch.arange(len(rows))
    even = _evenness(rows, everybody, cosines.argmax(dim=1))
    others = [
        _evenness(rows, everybody, everybody.roll(step)) for step in (1, len(rows) // 3, len(rows) // 2)
    ]
    least = torch.stack([even, *others]).nan_to_num(1.0).min(dim=0).values
    limit = max(NOISE, float(least.median()) + MORE)
    few = (even > limit).nonzero().flatten()
    for k in few.tolist():
        noise = _evenness(rows, few, torch.full_like(few, k)) > limit
        apart[k, few] = noise & (cosines[k, few] > SHARED)
    return apart | apart.T


def _evenness(rows: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return how even the differences between rows are, one of `left` and one of `right` each.

    Those that come of rounding are as even as can be. A few rows are taken at a time: new memory for all of
    them would take longer than the rest.
    """
    found = []
    for start in range(0, len(left), FEW_ROWS):
        few = slice(start, start + FEW_ROWS)
        here = rows[left[few].to(rows.device)]
        length = _norms(here, 2)
        here -= rows[right[few].to(rows.device)]
        short = _norms(here, 2)
        even = _norms(here, 1) / (short * rows.shape[1] ** 0.5)
        found.append(torch.where(short < ROUNDING * length, 1.0, even))
    return torch.cat(found).cpu()


def _norms(rows: Tensor, order: int) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, order, dim=1)
    return norms


EQUAL = 0.999
"""Updates at a larger cosine than this are the same: training on different samples never comes so close."""

FOLDED = 1 << 14
"""To so many columns updates are folded before they are compared."""
SOME = 1 << 12
"""In so many columns differences between two rows are looked at."""
UNFORESEEN = 16


@dataclass(frozen=True)
class Look:
    """What the server sees of a round's uploads, a row per client."""

    round: int
    ids: Tensor
    """N: whose rows they are, ascending."""
    updates: Tensor
    """N×D: the updates as they were sent."""
    calibrated: Rows
    """N×D: the updates as seen from one common point; as they were sent, if the method has none."""
    recovered: Tensor | None = None
    """N×D: the clients' models, what each received plus the update it sent, if the method needs them."""
    reference: Tensor | None = None
    """D: the common point, the server's global model."""
    samples: Tensor | None = None
    """N: the clients' sample counts, as claimed and bounded."""

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, mask: Tensor) -> Look:
        """Return what is seen of the rows for which the mask holds."""
        if bool(mask.all()):
            return self
        recovered = None if self.recovered is None else self.recovered[mask]
        return replace(
            self,
            ids=self.ids[mask],
            updates=self.updates[mask],
            calibrated=self.calibrated.only(mask),
            recovered=recovered,
            samples=None if self.samples is None else self.samples[mask],
        )

    @cached_property
    def norms(self) -> Tensor:
        """The length of each calibrated update, N, in double precision."""
        return self.calibrated.norms().cpu()

    @cached_property
    def lengths(self) -> Tensor:
        """How far each client went from the model it was sent, N, in double precision."""
        return Rows(self.updates).norms().cpu()

    @cached_property
    def finite(self) -> Tensor:
        """Which rows are finite, N flags: by their norms if models were recovered, else by the updates."""
        return finite_rows(self.updates).cpu() if self.recovered is None else self.norms.isfinite()

    @cached_property
    def likeness(self) -> Tensor:
        """The cosines between the calibrated updates, N×N."""
        return cosines(self.calibrated, self.calibrated).cpu()

    @cached_property
    def agreement(self) -> Tensor:
        """The cosines between the updates as they were sent, N×N: who goes whose way."""
        rows = Rows(self.folded_updates)
        return cosines(rows, rows).cpu()

    @cached_property
    def folded_updates(self) -> Tensor:
        """The updates as they were sent, at length 1, long ones folded."""
        return self._folded(Rows(self.updates), self.lengths)

    @cached_property
    def folded_calibrated(self) -> Tensor:
        """The calibrated updates at length 1, folded in the same way."""
        return self._folded(self.calibrated, self.norms)

    def _folded(self, rows: Rows, norms: Tensor) -> Tensor:
        """Return rows at length 1, long ones folded, in a way that depends on what everybody sent."""
        return sketch(rows, norms.to(self.updates.device), FOLDED, self._seed)

    def _some_columns(self) -> Tensor:
        """Return columns to compare, at most `SOME` of them, which depend on what everybody sent."""
        width = self.updates.shape[1]
        if width <= SOME:
            return torch.arange(width, device=self.updates.device)
        drawn = torch.randint(0, width, (SOME,), generator=torch.Generator().manual_seed(self._seed))
        return drawn.sort().values.to(self.updates.device)

    @cached_property
    def _seed(self) -> int:
        """A number that depends on everybody's update, so that no sender can foresee it."""
        few = self.updates[:, :UNFORESEEN].float().contiguous().cpu()
        return zlib.crc32(few.numpy().tobytes())

    @cached_property
    def equal(self) -> Tensor:
        """Which pairs sent the same but for noise, or came to the same model so; all are their own equals."""
        same = (self.agreement > EQUAL) | torch.eye(len(self), dtype=torch.bool)
        columns = self._some_columns()
        same |= noise_apart(self.updates.index_select(1, columns), self.agreement)
        if self.recovered is None:
            return same
        return same | noise_apart(self.calibrated.columns(columns), self.likeness)

    @cached_property
    def votes(self) -> Tensor:
        """How much each client counts, N: equals share one vote, so copies gain nothing."""
        return 1 / self.equal.sum(dim=1).double()
