"""The examples of CONTRIBUTING.md run unchanged, and resume."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedcap.cli import main

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, re.DOTALL))
COMMANDS = re.findall(r"^`fedcap (run .*)`$", GUIDE, re.MULTILINE)


@pytest.mark.usefixtures("restored_registries")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(COMMANDS) == len(FILES) == 6
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    quick = "--rounds=3 --workers=1 --set training.epochs=1 --out=run"
    with pytest.raises(SystemExit) as stop:
        main([*shlex.split(command), *shlex.split(quick)])
    assert not stop.value.code
    assert (tmp_path / "run" / "result.json").exists()
    with pytest.raises(SystemExit) as stop:
        main(["run", "--resume", "run"])
    assert not stop.value.code
