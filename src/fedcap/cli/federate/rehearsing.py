"""`fedcap federate rehearse`."""

from __future__ import annotations

from fedcap.cli.output import AsJson


def rehearse(as_json: AsJson = False) -> None:
    """Rehearse."""
