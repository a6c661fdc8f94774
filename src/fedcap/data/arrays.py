"""One's own data from Python: a pair of arrays, or any `torch.utils.data.Dataset` of such pairs.

`Experiment(dataset=(x, y))`, or with options `Experiment(dataset={"data": (x, y), "client": users})`. A
run's directory keeps the data's hash, not the data: such a run is resumed from Python too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from fedcap.data.base import Dataset, registry
from fedcap.data.own import Own, from_arrays
from fedcap.registry import InputError

WHAT = "dataset"


@registry.register("arrays")
@dataclass(frozen=True)
class Arrays(Own):
    """From Python, a pair of arrays or a torch Dataset: Experiment(dataset=(x, y))."""

    data: Any = None
    client: Any = None
    """Whose each sample is."""
    test: Any = None
    """Which samples are for testing only."""
    hash: str = ""
    """What the data was when a run began."""

    def has_owners(self) -> bool:
        """Whether clients were given."""
        return self.client is not None

    @cached_property
    def _dataset(self) -> Dataset:
        x, y = self.data if isinstance(self.data, tuple | list) and len(self.data) == 2 else _pairs(self.data)
        return from_arrays(WHAT, x, y, self.client, self.test)

    def load(self) -> Dataset:
        """Return the samples."""
        if self.data is None:
            raise InputError(
                "the data of this run was given from Python and is not kept in its directory: continue it"
                " from there, with Experiment(dataset=…).run(out=…)"
            )
        return self._dataset

    def settings(self) -> dict[str, Any]:
        """Return the options; of the data, its hash."""
        plain = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("data", "client", "test")
        }
        return {**plain, "hash": self.hash if self.data is None else self.load().digest()}


def _pairs(data: Any) -> tuple[Any, Any]:
    """Return the inputs and labels of a `torch.utils.data.Dataset`, or of anything that yields pairs."""
    try:
        items = [data[at] for at in range(len(data))] if hasattr(data, "__len__") else list(data)
        pairs = [(_input(x), int(y)) for x, y in items]
        return np.stack([x for x, _ in pairs]), np.array([y for _, y in pairs])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            "dataset must be a name, a path, a pair of arrays (x, y), or a Dataset of pairs of an input and"
            f" its class: {error}"
        ) from None


def _input(x: Any) -> np.ndarray:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
