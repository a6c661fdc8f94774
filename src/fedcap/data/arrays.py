"""The user's own data from Python: a pair of arrays, or a `torch.utils.data.Dataset` of pairs.

`Experiment(dataset=(x, y))`, or with options `Experiment(dataset={"data": (x, y), "client": users})`. A run's
directory keeps the data's hash and not the data, so such a run can be resumed from Python only.
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
    """Your own data from Python, a pair of arrays or a torch Dataset: Experiment(dataset=(x, y))."""

    data: Any = None
    """A pair of arrays (x, y), or a torch Dataset."""
    client: Any = None
    """The owner of each sample, n."""
    test: Any = None
    """Whether each sample is for testing only, n."""
    hash: str = ""
    """The digest of the data; it takes the data's place in the settings that a run's directory keeps."""

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
                " from Python, with Experiment(dataset=…).run(out=…)"
            )
        return self._dataset

    def settings(self) -> dict[str, Any]:
        """Return the options, with the digest of the data in place of the data."""
        plain = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("data", "client", "test")
        }
        return {**plain, "hash": self.hash if self.data is None else self.load().digest()}

    def fingerprint(self) -> str:
        """Return the digest of the data, or the one that a run's directory kept of it."""
        if self.data is None and self.hash:
            return self.hash
        return self.load().digest()


def _pairs(data: Any) -> tuple[Any, Any]:
    """Return the inputs and the labels of a `torch.utils.data.Dataset` or any other series of pairs."""
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
