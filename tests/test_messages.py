"""Every message of one line for bad input, in one reviewed file: tests/golden/messages.txt.

`python -m pytest tests/test_messages.py --update-golden` writes the file again: review its diff.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from grid_tools import FLAGS, TINY
from helpers import call

import fedcap

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"
TINY_FLAGS = shlex.join(FLAGS)
SECTIONS: Mapping[str, str] = {
    "run": """
        run --method fedcup
        run --attack imp
        run --dataset digit
        run --method ditto --rule medain
        run --track comet
        run --model no.such:thing
        run --model failing:Net
        run --method json:JSONDecoder
        run --method fedcap --rule median
        run --method fedavg --rule gas --set method.rule.chunk=2
        run --method fedrod --set method.head=hat
        run --malicious -0.1
        run --attack ipm --malicious 30
        run --attack ipm --malicious 0.5
        run --attack ipm --set attack.clients=[99]
        run --attack ipm --set attack.clients=[0,1,2,3,4,5,6,7,8,9]
        run --attack ipm --set attack.epsilon=-2
        run --set attack.epsilon=1
        run --rounds 0
        run --seed -1
        run --workers 0
        run --device gpu
        run --set training.lr=1e99
        run --device cuda:99 --ray
        run --set nonsense
        run --set training.lr=-1
        run --set trainning.lr=1
        run --set training.learning_rate=1
        run --set lr=0.1
        run --set method.aplha=1
        run --set method.alpha=high
        run --set method.preset=soft
        run --set dataset.clients=1000
        run --set dataset.partition=dirichlet --set dataset.partition.beta=-1
        run --set dataset.partition=pathological --set dataset.partition.classes_per_client=11
        run missing.toml
        run broken.toml
        run words.csv
        run digits
        run tiny
        run --rule
        --rule
        data --set dataset.label=x
        run --dataset missing.csv
        run --dataset unlabelled.csv
        run --dataset words.csv --set dataset.label=label
        run --dataset alone.csv --set dataset.label=label --set dataset.client=patient
        run --dataset words.csv --set dataset.label=lable
        run --dataset csv
        run --dataset table.npz --model cnn-emnist
        run --dataset uneven.npz
        run --resume nowhere
        run --resume tiny --seed 5
        run --resume tiny --rounds 1
        run --resume tiny --dataset cifar10
        run --resume damaged
        run --resume changed
        run --out tiny --seed 1
        run tiny/config.toml --out tiny --rounds 5
        run tiny/config.toml --out tiny --rounds 1
        run --out files
        run --out broken.toml
    """,
    "compare": """
        compare
        compare absent.toml
        compare fedavg,fedcap
        compare words.csv
        compare --method fedcapp
        compare --method fedavg --dataset emnist
        compare --seed 1-x
        compare --seed 0-99999
        compare --seed 0-999 --attack all --rule median,mean --method fedavg,ditto
        compare --seed 0 --vary lr
        compare --seed 0 --vary lr=0.1
        compare --seed 0 --vary rounds=1 --vary rounds=2
        compare --seed 0 --against ditto
        compare --seed 0 --workers 0
        compare --seed 0 --workers 2 --ray
        compare --seed 0 --out broken.toml
        compare --seed 0 --reuse broken.toml
        demo --out broken.toml
        tune --set seed=1
        tune --set holdout=0.1
        tune --method local
        tune --vary alpha
        tune --vary beta=1,2
        tune --trials 3
    """,
    "data": """
        data get digits
        data get table.npz
        data get cifra10
        data check emnist
        data check --set dataset.label=x
        data check digits --set rounds=3
        data check missing.csv
        data plot emnist
    """,
    "results": """
        show nowhere
        show broken.toml
        report nowhere
        report tiny --out no/page.html
        report tiny --local tiny
        report tiny --port 8000
        report tiny --live --out page.html
        report broken.toml --live
        plot tiny nothing
        plot tiny accuracy --out accuracy.gif
        plot tiny accuracy --rounds first
        list fedcup
        list qqqqq
        list json:JSONDecoder
        list json:nothing
    """,
    "models": """
        export tiny
        export tiny --client 99
        export tiny --client 1 --reading own
        export tiny --client 1 --out model.onnx
        export tiny --client 1 --out no/model.pt2
        export started --client 1
        predict tiny nothing.npz --client 1
        predict tiny tiny/config.toml --client 1
        predict tiny words.npz --client 1
        predict tiny empty.npz --client 1
        predict tiny nameless.npz --client 1
        predict tiny small.npz --client 1
        predict tiny uneven.npz --client 1
        predict tiny words.npz --client 1 --out answers.txt
    """,
    "federation": """
        federate rehearse --malicious 3
        federate rehearse --out tiny
        federate init new --dataset digits
        federate init new --host h
        federate init new --host h --classes a,b --shape x
        federate init op --rounds 9
        federate join new --invitation missing.toml --name x --dataset digits
        federate join new --invitation broken.toml --name x --dataset digits
        federate join new --invitation op/invitation.toml --name ../x --dataset digits
        federate join oslo --invitation op/invitation.toml --name oslo --dataset digits
        federate approve op nobody --yes
        federate approve op removed --yes
        federate approve oslo oslo --yes
        federate remove op olso --reason x
        federate readmit op oslo --reason x
        federate readmit op removed --reason ' '
        federate agree op
        federate agree oslo --invitation other/invitation.toml
        federate site op
        federate site oslo
        federate customise oslo
        federate status tiny
        federate status op --clients --events
        federate status op --event lunch
        federate status oslo --clients
        federate audit tiny
        federate serve oslo
        run --resume op
    """,
}


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
        ledger.approve(ledger.ask(asked.client, asked.name, asked.key).client)
        if name == "removed":
            ledger.remove(made.client, "left the consortium", 0, by="operator")


def sections(text: str) -> dict[str, str]:
    """Return the sections of the golden file by their names."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("section", SECTIONS)
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
    for command in filter(None, map(str.strip, SECTIONS[section].splitlines())):
        code, out, err = call(capsys, *shlex.split(command))
        if (
            (code, out) != (2, "")
            or not re.fullmatch(r"fedcap: .+\n", err)
            or sorted(there.iterdir()) != before
        ):
            wrong.append((command, code, out, err))
        found.append(f"$ fedcap {command}\n{err.removeprefix('fedcap: ').replace(str(there), '…')}")
    text = "\n".join(found).strip()
    golden = sections(GOLDEN.read_text() if GOLDEN.exists() else "")
    if request.config.getoption("--update-golden"):
        golden = {name: golden.get(name, "") for name in SECTIONS} | {section: text}
        GOLDEN.write_text("\n\n".join(f"## {name}\n\n{body}" for name, body in golden.items()) + "\n")
    else:
        assert text == golden.get(section)
    assert not wrong, "these are not one line with exit code 2, or leave files"
