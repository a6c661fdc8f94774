"""Arrays and plain values as Flower's records, and back.

What comes back may be anything that Flower carries. It is looked at before it is turned into an array:
nothing is unpickled, and nothing larger than what was sent is allocated.
"""

from __future__ import annotations

import math
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcap.federation.messages import Arrays, Config, Malformed

if TYPE_CHECKING:
    from flwr.app import RecordDict

ARRAYS, CONFIG = "arrays", "config"
MOST_ARRAYS = 8
KINDS = "fiub"
"""Kinds of numbers that an array may hold: floating, integers, booleans."""


def to_records(arrays: Arrays, config: Config) -> RecordDict:
    """Return Flower's records of a message."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    record = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return RecordDict({ARRAYS: record, CONFIG: ConfigRecord(dict(config))})


def from_records(content: Any) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and values of a message; raise `Malformed` for anything else."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    if not isinstance(content, RecordDict) or set(content) != {ARRAYS, CONFIG}:
        raise Malformed("the message has other records than it should")
    record, config = content[ARRAYS], content[CONFIG]
    if not isinstance(record, ArrayRecord) or not isinstance(config, ConfigRecord):
        raise Malformed("the message's records are of the wrong kind")
    if len(record) > MOST_ARRAYS:
        raise Malformed(f"the message has {len(record)} arrays")
    return {str(name): to_array(array.data) for name, array in record.items()}, dict(config)


def to_array(content: bytes) -> np.ndarray:
    """Return the array that a file in NumPy's format holds."""
    form = np.lib.format
    file = BytesIO(content)
    try:
        version = form.read_magic(file)
        read = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file)
        size = math.prod(shape)
        if dtype.kind not in KINDS or fortran or min(shape, default=1) < 0:
            raise ValueError
        if len(content) - file.tell() != size * dtype.itemsize:
            raise ValueError
        return np.frombuffer(content, dtype, size, file.tell()).reshape(shape).copy()
    except Exception:  # a stranger's bytes can break a parser in many ways
        raise Malformed("the message holds an array that cannot be read") from None
