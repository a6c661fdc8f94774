"""What several test files share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's empty folder of data, and an empty cache."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("FEDCAP_DATA", str(folder))
    monkeypatch.setenv("FEDCAP_CACHE", str(tmp_path / "cache"))
    return folder
