"""What the server sees of one round: the uploads that passed validation, one row per client.

`Batch` holds the uploads as matrices. `RoundView` adds what a method computes from them (recovered models,
calibrated updates) and quantities that detectors share, each computed once when first used.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcap.detection.noise import noise_apart
from fedcap.matrix import Rows, cosines, finite_rows, sketch

if TYPE_CHECKING:
    from fedcap.detection.base import Verdict

EQUAL_COSINE = 0.999
"""Updates at a larger cosine count as equal: training on different samples never comes so close."""
SKETCH_COLUMNS = 1 << 14
"""The number of columns of a sketch, in which updates are compared."""
SAMPLED_COLUMNS = 1 << 12
"""The number of columns in which differences between two rows are examined."""
SEED_COLUMNS = 16
"""The number of columns from which the seed of the sketch is computed."""


@dataclass(frozen=True)
class Batch:
    """The uploads of a round that passed validation: one row per client, in ascending order of ids."""

    ids: Tensor
    """N rows of the client index."""
    updates: Tensor
    """N×D. The matrix belongs to the round: a method that keeps updates must copy them."""
    samples: Tensor
    """N sample counts, as claimed, limited to plausible values."""
    assumed_malicious: int = 0
    """The number of rows that the server assumes to be malicious; rules that need a number use it."""
    feedback: Tensor | None = None
    """N×e finite numbers: what else the method asked each client for."""
    root: Tensor | None = None
    """D: the update trained on the server's own root set, for methods that have one."""
    round: int = 1

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, mask: Tensor) -> Batch:
        """Return the batch of only the rows that the mask, N flags, selects."""
        if bool(mask.all()):
            return self
        return replace(
            self,
            ids=self.ids[mask],
            updates=self.updates[mask],
            samples=self.samples[mask],
            feedback=None if self.feedback is None else self.feedback[mask],
        )


@dataclass(frozen=True)
class RoundView:
    """What the server sees of a round's uploads, one row per client."""

    batch: Batch
    calibrated: Rows
    """N×D: the updates measured from one common point; as they were sent if the method has no such point."""
    recovered: Tensor | None = None
    """N×D: the clients' models, i.e. what each received plus the update it sent, if the method needs them."""
    reference: Tensor | None = None
    """D: the common point, which is the server's global model."""
    notes: list[str] = field(default_factory=list)
    """A method appends where it departs from its settings, such as another rule for too few rows."""

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def round(self) -> int:
        """The number of the round."""
        return self.batch.round

    @property
    def ids(self) -> Tensor:
        """N rows of the client index, ascending."""
        return self.batch.ids

    @property
    def updates(self) -> Tensor:
        """N×D: the updates as they were sent."""
        return self.batch.updates

    @property
    def samples(self) -> Tensor:
        """N sample counts, as claimed, limited to plausible values."""
        return self.batch.samples

    def only(self, mask: Tensor) -> RoundView:
        """Return the view of only the rows that the mask, N flags, selects."""
        if bool(mask.all()):
            return self
        return replace(
            self,
            batch=self.batch.only(mask),
            calibrated=self.calibrated.only(mask),
            recovered=None if self.recovered is None else self.recovered[mask],
        )

    def counting(self, verdict: Verdict) -> Tensor:
        """Return which uploads count, N flags: those that are finite, and neither removed nor suspected."""
        out = torch.tensor([*verdict.removed, *verdict.suspected], dtype=torch.long)
        return self.finite & ~torch.isin(self.ids, out)

    def counted(self, verdict: Verdict) -> Batch:
        """Return the uploads that count.

        Their `assumed_malicious` is smaller by the number of rows that are not finite or of removed clients,
        because these count as malicious rows that were found. Suspected clients may be honest.
        """
        mask = self.counting(verdict)
        if bool(mask.all()):
            return self.batch
        removed = torch.tensor(list(verdict.removed), dtype=torch.long)
        found = int((~self.finite | torch.isin(self.ids, removed)).sum())
        left = max(0, self.batch.assumed_malicious - found)
        return replace(self.batch.only(mask), assumed_malicious=left)

    @cached_property
    def norms(self) -> Tensor:
        """The norm of each calibrated update, N, in double precision."""
        return self.calibrated.norms().cpu()

    @cached_property
    def update_norms(self) -> Tensor:
        """The norm of each update as it was sent, N, in double precision."""
        return Rows(self.updates).norms().cpu()

    @cached_property
    def finite(self) -> Tensor:
        """Which rows are finite, N flags: by `norms` if models were recovered, otherwise by the updates."""
        return finite_rows(self.updates).cpu() if self.recovered is None else self.norms.isfinite()

    @cached_property
    def cosines(self) -> Tensor:
        """The cosines between the calibrated updates, N×N."""
        return cosines(self.calibrated, self.calibrated).cpu()

    @cached_property
    def update_cosines(self) -> Tensor:
        """The cosines between the updates as they were sent, N×N."""
        rows = Rows(self.update_sketch)
        return cosines(rows, rows).cpu()

    @cached_property
    def update_sketch(self) -> Tensor:
        """A sketch of the updates as they were sent, scaled to norm 1; at most `SKETCH_COLUMNS` wide."""
        return self._sketch(Rows(self.updates), self.update_norms)

    @cached_property
    def calibrated_sketch(self) -> Tensor:
        """The same sketch of the calibrated updates."""
        return self._sketch(self.calibrated, self.norms)

    def _sketch(self, rows: Rows, norms: Tensor) -> Tensor:
        return sketch(rows, norms.to(self.updates.device), SKETCH_COLUMNS, self._seed)

    def _sampled_columns(self) -> Tensor:
        """Return at most `SAMPLED_COLUMNS` columns, drawn with a seed that depends on all updates."""
        width = self.updates.shape[1]
        if width <= SAMPLED_COLUMNS:
            return torch.arange(width, device=self.updates.device)
        drawn = torch.randint(
            0, width, (SAMPLED_COLUMNS,), generator=torch.Generator().manual_seed(self._seed)
        )
        return drawn.sort().values.to(self.updates.device)

    @cached_property
    def _seed(self) -> int:
        """A number that depends on all clients' updates, so that no sender can predict it."""
        few = self.updates[:, :SEED_COLUMNS].float().contiguous().cpu()
        return zlib.crc32(few.numpy().tobytes())

    @cached_property
    def duplicates(self) -> Tensor:
        """Which pairs of clients sent the same update, or the same with independent noise, N×N flags.

        If models were recovered, pairs whose calibrated updates differ only by noise are duplicates, too.
        Each row is a duplicate of itself.
        """
        same = (self.update_cosines > EQUAL_COSINE) | torch.eye(len(self), dtype=torch.bool)
        columns = self._sampled_columns()
        same |= noise_apart(self.updates.index_select(1, columns), self.update_cosines)
        if self.recovered is None:
            return same
        return same | noise_apart(self.calibrated.columns(columns), self.cosines)

    @cached_property
    def votes(self) -> Tensor:
        """The weight of each client, N: duplicates share one vote, so that copies gain nothing."""
        return 1 / self.duplicates.sum(dim=1).double()
