"""What several test files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcap import aggregators, attacks, detection, methods


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
