"""What can be carried to a worker process: what pickles, and is made of what the worker can import."""

from __future__ import annotations

import io
import logging
import pickle
from dataclasses import replace
from typing import Any

from fedcap.fingerprint import importable
from fedcap.training.bench import Bench

ADVICE = "to use several workers, put it into a module of its own"


class NotPortableError(Exception):
    """Something cannot go to another process; the message says what and why."""


class _Carrier(pickle.Pickler):
    """A pickler that refuses classes and functions of modules that a worker could not import."""

    def persistent_id(self, thing: Any) -> None:
        """Look at each thing before it is pickled."""
        module = getattr(thing, "__module__", None) if callable(thing) else None
        if isinstance(module, str) and hasattr(thing, "__qualname__") and not importable(module):
            raise NotPortableError(
                f"{thing.__qualname__} is defined in {module}, where worker processes cannot find it"
            )


def carried(thing: Any) -> bytes:
    """Return a thing as bytes for a worker process; raise `NotPortableError` if it could not read them."""
    there = io.BytesIO()
    try:
        _Carrier(there).dump(thing)
    except NotPortableError:
        raise
    except Exception as error:  # what pickling raises depends on what is pickled
        said = " ".join(str(error).split())
        raise NotPortableError(
            f"the method or the model cannot be sent to worker processes ({said})"
        ) from error
    return there.getvalue()


def portable(bench: Bench) -> bytes | None:
    """Return a bench as bytes for worker processes; if it cannot go there, log why and return none."""
    try:
        return carried(replace(bench))  # a copy, which has no networks yet
    except NotPortableError as reason:
        logging.getLogger("fedcap").warning(
            "%s: training in this process instead, one client at a time; %s", reason, ADVICE
        )
        return None
