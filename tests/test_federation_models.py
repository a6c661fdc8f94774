"""The models of a federation: those made for newcomers, a site's own in use, and the run's directory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from federation_tools import Federation, federation
from helpers import call, refused
from safetensors.torch import load_file

import fedcap
from fedcap.federation.messages import Answer, Order
from fedcap.federation.rounds import Conductor
from fedcap.federation.site import newest
from fedcap.training import fresh_network


@pytest.fixture
def trained(tmp_path: Path) -> Federation:
    """Three sites that have played two rounds of many; a fourth that is approved and has stayed away."""
    made = federation(tmp_path, {"name": "fedcap", "alpha": 5.0}, ("0", "1", "2"), rounds=9)
    with made.conductor() as conductor:
        assert conductor.play()
        assert conductor.play()
    made.join("3")
    return made


def ask_for_model(made: Federation, conductor: Conductor, client: str) -> set[str]:
    """Let a site ask for a model; return the clients that the server found to ask for one."""
    wish = made.transport.sites[client].directory.wish
    wish.touch()
    found = conductor.welcome()
    wish.unlink()
    return found


def test_a_newcomer_gets_its_customised_model_and_nothing_changes_on_the_server(trained: Federation) -> None:
    answers: dict[str, Answer] = {}

    def listen(order: Order, answer: Answer) -> Answer:
        answers[order.kind] = answer
        return answer

    trained.transport.twists = {"3": listen}
    with trained.conductor() as conductor:
        before = conductor.server.state_dict()
        assert ask_for_model(trained, conductor, "3") == {"3"}
        after = conductor.server.state_dict()
    start, pool = before["state.model"], before["state.models"]
    weights = fedcap.customization_weights(
        torch.from_numpy(answers["request"].update)[None], pool - start, own=[-1], alpha=5.0, phi=0.3
    )
    state = trained.state("3")
    assert torch.allclose(state.received, weights.float()[0] @ pool, atol=1e-6)
    assert (state.round, dict(state.kept)) == (2, {})
    assert (answers["customise"].tested, answers["customise"].refused) == (9, None)
    roster = before.pop("roster.names"), after.pop("roster.names")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(roster[0]) < len(roster[1])  # it joined in the meantime, and has its row
    assert trained.ledger.find("3").customised == 1
    assert [event.client for event in trained.events("customised")] == ["3"]


def test_models_for_newcomers_are_bounded_and_for_approved_clients_only(trained: Federation) -> None:
    trained.join("4")
    trained.transport.twists = {"4": lambda order, answer: None if order.kind == "customise" else answer}
    with trained.conductor() as conductor:
        assert ask_for_model(trained, conductor, "3") == {"3"}
        assert ask_for_model(trained, conductor, "3") == set()  # it has received one
        assert ask_for_model(trained, conductor, "1") == set()  # it takes part
        assert ask_for_model(trained, conductor, "4") == {"4"}
        assert trained.ledger.find("4").customised == 1  # it was sent, so it counts
        assert trained.events("refused")[-1].reason == "did not answer within 5 s"
        trained.join("0")
        trained.ledger.remove("0", "left", by="operator")
        assert ask_for_model(trained, conductor, "0") == set()
    assert [event.client for event in trained.events("customised")] == ["3", "4"]


def test_a_newcomer_that_asks_for_a_model_does_not_take_part_in_the_round(trained: Federation) -> None:
    wish = trained.transport.sites["3"].directory.wish
    wish.touch()
    with trained.conductor() as conductor:
        assert conductor.play().participants == ["0", "1", "2"]
        assert trained.state("3").round == 2
        wish.unlink()
        record = conductor.play()
        assert (record.participants, record.asked) == (["0", "1", "2", "3"], ["3"])
        assert conductor.welcome() == set()  # no client is new


@pytest.mark.parametrize("method", ["fedavg", "fedrod", "fedfomo"])
def test_every_method_that_shares_has_a_model_for_a_newcomer(tmp_path: Path, method: str) -> None:
    made = federation(tmp_path, method, ("0", "1"))
    with made.conductor() as conductor:
        assert ask_for_model(made, conductor, "0") == set()  # no round is done yet
        conductor.play()
        made.join("2")
        assert ask_for_model(made, conductor, "2") == {"2"}
        assert made.state("2").received is not None
        if method != "fedfomo":  # with FedFomo a site mixes by itself
            assert torch.equal(made.state("2").received, conductor.server.inspect().global_model)


# --- Use


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A federation of two sites that is through, and a third that was given a model."""
    made = federation(
        tmp_path_factory.mktemp("used"), {"name": "fedcap", "t_norm": 3.0}, ("0", "1"), rounds=2
    )
    with made.conductor() as conductor:
        conductor.run()
        made.join("2")
        ask_for_model(made, conductor, "2")
    return made


def answers(made: Federation, client: str, weights: torch.Tensor, x: np.ndarray) -> torch.Tensor:
    network = fresh_network(made.transport.sites[client].prepare(made.plan).built.runner.build, 0)
    return torch.softmax(network.logits(weights, torch.from_numpy(x)), dim=1)


@pytest.mark.parametrize(
    ("client", "reading", "model"),
    [("0", "personal", "kept"), ("0", "shared", "received"), ("2", "personal", "received")],
)
def test_a_site_predicts_with_the_models_in_its_directory(
    used: Federation,
    client: str,
    reading: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = used.transport.sites[client]
    test = site.prepare(used.plan).data.local.test
    np.savez(tmp_path / "new.npz", x=test.x.numpy(), y=test.y.numpy())
    folder = site.directory.directory
    code, out, _ = call(
        capsys,
        "predict",
        folder,
        tmp_path / "new.npz",
        "--reading",
        reading,
        "-o",
        tmp_path / "a.npz",
        "--json",
    )
    assert code == 0
    state = newest(site.directory)[1]
    weights = state.kept["personal"] if model == "kept" else state.received
    expected = answers(used, client, weights, test.x.numpy())
    assert np.allclose(np.load(tmp_path / "a.npz")["probabilities"], expected, atol=1e-6)
    right = 100 * float((expected.argmax(dim=1) == test.y).float().mean())
    assert json.loads(out)["accuracy"] == json.loads(out)["tested"] == pytest.approx(right)
    assert json.loads(out)["client"] == f"site {client}"


def test_a_sites_model_is_exported(
    used: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = used.transport.sites["0"].directory.directory
    code, out, _ = call(capsys, "export", folder, "-o", tmp_path / "m.safetensors", "--json")
    assert code == 0
    assert json.loads(out)["run"] == used.plan.digest
    count = sum(tensor.numel() for tensor in load_file(tmp_path / "m.safetensors").values())
    assert count == used.plan.weights


def test_a_model_that_a_site_does_not_have_is_an_error(
    used: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = used.transport.sites["0"].directory.directory
    for arguments, said in (
        (("--reading", "global"), "a site has no global model: choose personal or shared"),
        (("--client", "9"), "unknown client '9': there is only site 0"),
    ):
        code, _, err = call(capsys, "export", folder, *arguments)
        assert (code, err) == (2, f"fedcap: {said}\n")
    used.join("4")
    folder = used.transport.sites["4"].directory.directory
    code, _, err = call(capsys, "export", folder)
    assert (code, err) == (2, f"fedcap: {folder} has no model yet: the site has taken part in no round\n")


def test_the_run_of_a_federation_is_read_like_a_simulated_run(
    used: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, "show", used.run)
    assert (code, err) == (0, "")
    assert out.startswith("digits · fedcap · federation · seed 0 · 2 rounds in ")
    assert "no clients removed" in out
    assert "honest" not in out
    run = fedcap.read(used.run)
    assert (run.result.rounds, run.result.tacc) == (2, run.rounds[-1].accuracy.best)
    assert run.provenance.clients == ["0", "1"]
    module = run.model(reading="global")
    assert sum(p.numel() for p in module.parameters()) == used.plan.weights
    with refused("no-model"):
        run.model("0")
    code, _, err = call(capsys, "run", "--resume", used.run)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{used.run} is a federation's: its server continues it (fedcap federate serve" in err
