"""What several test files share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedcap import aggregators, attacks, detection, methods
from fedcap.runs import history
from fedcap.simulation import store
from fedcap.training import single_thread

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it; tables are as wide as they are in a pipe


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the golden messages again."""
    parser.addoption("--update-golden", action="store_true", help="Write tests/golden/messages.txt again.")
    parser.addoption(
        "--client-states",
        choices=("memory", "file"),
        default="memory",
        help="Store the clients' states and the records of all runs in files, however small they are.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Store all states and records in files, also in processes that tests start, if the option says so."""
    if config.getoption("--client-states") == "file":
        os.environ["FEDCAP_STATE_MEMORY"] = "0"
        store.IN_MEMORY = history.IN_MEMORY = 0


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's empty folder of data, an empty cache, and an empty folder to work in."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("FEDCAP_DATA", str(folder))
    monkeypatch.setenv("FEDCAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


@pytest.fixture
def restored_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    for room in (aggregators, attacks, detection, methods):
        room.names()
        for table in ("_classes", "_aliases"):
            monkeypatch.setattr(room.registry, table, dict(getattr(room.registry, table)))


@pytest.fixture
def seeded_modules() -> Iterator[None]:
    """Modules that the test builds are the same each time; the process's random state and threads stay."""
    with torch.random.fork_rng(), single_thread():
        torch.manual_seed(0)
        yield
