"""The one release of Flower that this room was written for and tested with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fedcap.errors import InputError

FLOWER = "1.41.0"


def require_flower() -> None:
    """Raise an `InputError` that says what to install unless Flower is here, in the release we know."""
    install = f"pip install 'fedcap[flower]' (flwr {FLOWER})"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError(f"a federation needs Flower: {install}") from None
    if found != FLOWER:
        raise InputError(f"this is flwr {found}, and our checks on what it runs are for another: {install}")
