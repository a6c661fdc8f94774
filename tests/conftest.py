"""What several test files share."""

from __future__ import annotations

from pathlib import Path

import pytest


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
