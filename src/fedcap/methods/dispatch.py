"""What a server sends in a round: models, and which of them go to whom."""

from __future__ import annotations

import torch
from torch import Tensor


class Dispatch:
    """What the server sends: participant n receives the rows `rows[n]` of `models`."""

    def __init__(
        self, ids: Tensor, models: Tensor, rows: Tensor, mixing: Tensor | None = None, fresh: bool = False
    ) -> None:
        self.ids = ids
        """N: rows of the roster, ascending."""
        self._models: Tensor | None = models
        self.rows = rows
        """N×k: k is 1, unless the method sends each client several models, or none."""
        self.mixing = mixing
        """N×P: if participants' models were mixed from a pool of P models, the weights of the mixtures."""
        self._fresh = fresh
        """Whether the models were made for this dispatch alone, so that `hand_over` need not copy them."""

    @classmethod
    def to_all(cls, ids: Tensor, model: Tensor) -> Dispatch:
        """Send everybody the same model, D."""
        return cls(ids, model[None], torch.zeros(len(ids), 1, dtype=torch.long))

    def copy(self) -> Dispatch:
        """Return the same dispatch, to be used up in its place."""
        return Dispatch(self.ids, self.models, self.rows, self.mixing)

    @property
    def models(self) -> Tensor:
        """R×D: the models that are sent."""
        if self._models is None:
            raise RuntimeError("the models of this dispatch were handed over: a round is closed once")
        return self._models

    def hand_over(self, ids: Tensor) -> Tensor:
        """Return the model that each of these participants received, N×D, for the caller to write to.

        If `ids` are all participants, and each had a model made for it alone, the models themselves are
        returned, and can no longer be read from this dispatch. Otherwise they are copied.
        """
        at = torch.searchsorted(self.ids, ids)
        first = self.rows[at, 0]
        if self._fresh and len(at) == len(self.models) and bool((first == torch.arange(len(at))).all()):
            given, self._models = self.models, None
            return given
        return self.models[first.to(self.models.device)]
