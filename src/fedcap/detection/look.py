"""What the server sees of a round's uploads, before anybody is judged: a row per client."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedcap.detection.sameness import noise_apart
from fedcap.matrix import Rows, cosines, finite_rows, folded

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
        return folded(rows, norms.to(self.updates.device), FOLDED, self._seed)

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
