"""Every message of one line for bad input, in one reviewed file: tests/golden/messages.txt.

The file lists the commands too: add `$ fedcap …` to a section, and write the messages again with
`python -m pytest tests/test_messages.py --update-golden`; review the diff.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from grid_tools import TINY
from helpers import call

import fedcap

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"


def sections(text: str) -> dict[str, str]:
    """Return the sections of the golden file by their names."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


REVIEWED = sections(GOLDEN.read_text())


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished, a started, a damaged and a changed run, and files of all kinds."""
    folder = tmp_path_factory.mktemp("messages")
    for name in ("cache", "data", "files"):
        (folder / name).mkdir()
    for name in ("tiny", "started", "damaged", "changed"):
        fedcap.Experiment(**TINY, method="fedavg").run(out=folder / name)
    for name in ("checkpoint.safetensors", "rounds.jsonl", "result.json"):
        (folder / "started" / name).unlink()
    (folder / "damaged" / "result.json").write_text("nonsense")
    config = folder / "changed" / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 7"))
    (folder / "files" / "notes.txt").write_text("not of a run")
    (folder / "broken.toml").write_text("rounds = = 3")
    (folder / "failing.py").write_text("raise ZeroDivisionError('no luck')\n")
    (folder / "unlabelled.csv").write_text("a,b\n1,2\n3,4\n")
    rows = "".join(f"{at},a,{at % 2}\n" for at in range(60))
    (folder / "alone.csv").write_text(f"height,patient,label\n{rows}")
    (folder / "words.csv").write_text("height,colour,label\n1,red,x\n3,blue,y\n")
    (folder / "gap.csv").write_text("height,weight,label\n1,2,x\n3,,y\n")
    (folder / "unlabelled-row.csv").write_text("height,label\n1,x\n2,\n3,y\n")
    (folder / "uneven.csv").write_text("height,label\n1,x\n2,y,3\n")
    (folder / "single.csv").write_text(f"height,client,label\n{rows}7,b,1\n")
    np.savez(folder / "table.npz", x=np.zeros((60, 4), np.float32), y=np.arange(60) % 2)
    np.savez(folder / "uneven.npz", x=np.zeros((2, 1, 8, 8), np.float32), y=[1])
    np.savez(folder / "small.npz", x=np.zeros((2, 7, 8), np.float32))
    np.savez(folder / "empty.npz", x=np.zeros((0, 8, 8), np.float32))
    np.savez(folder / "nameless.npz", z=np.zeros(3))
    np.savez(folder / "words.npz", x=np.zeros((1, 8, 8), np.float32), y=["cat"])
    return folder


@pytest.fixture(scope="module")
def federation(there: Path) -> None:
    """An operator, an approved site, a removed one, and another operator."""
    pytest.importorskip("flwr")
    from fedcap.cli.federate.operator import plan_like
    from fedcap.federation.config import FEDERATION, INVITATION, Federation, Invitation, Operator
    from fedcap.federation.keys import JoinRequest
    from fedcap.federation.setup import set_up_operator, set_up_site

    plan = plan_like("study", {"dataset": "digits"})
    for name in ("op", "other"):
        set_up_operator(there / name, Federation.of({"host": "localhost"}, FEDERATION), plan)
    ledger = Operator(there / "op").ledger
    for name in ("oslo", "removed"):
        site = {"name": name, "dataset": {"name": "digits"}}
        made = set_up_site(there / name, Invitation.read(there / "op" / INVITATION), site)
        asked = JoinRequest.read(made.request)
        ledger.approve(ledger.ask(asked.fingerprint, asked.name, asked.key).client)
        if name == "removed":
            ledger.remove(made.client, "left the consortium", 0, by="operator")


@pytest.mark.parametrize("section", REVIEWED)
def test_a_mistake_is_one_line_that_was_reviewed(
    section: str,
    there: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if section == "federation":
        request.getfixturevalue("federation")
    monkeypatch.chdir(there)
    monkeypatch.syspath_prepend(str(there))
    monkeypatch.setenv("FEDCAP_DATA", str(there / "data"))
    monkeypatch.setenv("FEDCAP_CACHE", str(there / "cache"))
    monkeypatch.setenv("FEDCAP_DEBUG", "")
    for gpu in (torch.cuda, torch.backends.mps):
        monkeypatch.setattr(gpu, "is_available", lambda: False)
    before = sorted(there.iterdir())
    found, wrong = [], []
    for command in re.findall(r"^\$ fedcap (.+)$", REVIEWED[section], re.MULTILINE):
        code, out, err = call(capsys, *shlex.split(command))
        if (
            (code, out) != (2, "")
            or not re.fullmatch(r"fedcap: .+\n", err)
            or sorted(there.iterdir()) != before
        ):
            wrong.append((command, code, out, err))
        found.append(f"$ fedcap {command}\n{err.removeprefix('fedcap: ').replace(str(there), '…')}")
    assert found
    text = "\n".join(found).strip()
    if request.config.getoption("--update-golden"):
        REVIEWED[section] = text
        GOLDEN.write_text("\n\n".join(f"## {name}\n\n{body}" for name, body in REVIEWED.items()) + "\n")
    else:
        assert text == REVIEWED[section]
    assert not wrong, "these are not one line with exit code 2, or leave files"
