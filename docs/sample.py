"""An example of the page of `fedcap report`: a short run on `digits`, played when the site is built."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import fedcap
from fedcap.cli.report import report_on
from fedcap.report.pack import pack
from fedcap.report.page import page

SETTINGS = {"dataset": "digits", "attack": "sign-flipping", "rounds": 15, "seed": 0}


def pages() -> dict[str, str]:
    """Return the page by its path."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        fedcap.Experiment(**SETTINGS, method="fedcap").run(out="flipped")
        fedcap.Experiment(**SETTINGS, method="local").run(out="alone")
        return {"report.html": page(pack(report_on(Path("flipped"), Path("alone"))))}
