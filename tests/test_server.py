"""The server: rounds, names of clients, removal, and its state, for any method."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from helpers import refused
from torch import nn

from fedcap import methods
from fedcap.errors import InputError
from fedcap.methods.base import Sent
from fedcap.names import LONGEST_LIST, NumberedNames
from fedcap.server.index import ClientIndex
from fedcap.server.server import Server
from fedcap.server.uploads import Upload
from fedcap.state import names_to_tensor, owned, tensor_to_names, under
from fedcap.training import Layout

LAYOUT = Layout.of(nn.Linear(3, 2))
SIZE = LAYOUT.size
SITES = ("st-mary", "charité", "0", "käthe", "9f:3a")


def server(name: str = "fedcap", **options: object) -> Server:
    return Server(methods.make(name, **options), torch.zeros(SIZE), LAYOUT, clients=SITES)


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, SIZE))).float() / 10


def play(here: Server, clients: Sequence[str] = SITES, seed: int = 0) -> list[torch.Tensor]:
    """Play a round in which all clients answer; return the model that each was sent."""
    sent = here.begin(clients)
    pending = here.clients.names(sent.pending)
    sent = here.supply(
        [Upload(k, here.round, row, 5) for k, row in zip(pending, rows(9, seed + 1), strict=False)]
    )
    models = [model.clone() for model in sent.models[sent.index[:, 0]]]
    here.finish(answers(here, sent, rows(len(clients), seed)))
    return models


def answers(here: Server, sent: Sent, updates: torch.Tensor) -> list[Upload]:
    """Return the participants' uploads."""
    return [Upload(k, here.round, row, 5) for k, row in zip(names(here, sent), updates, strict=True)]


def names(here: Server, sent: Sent) -> list[str]:
    return here.clients.names(sent.ids)


def model_of(here: Server) -> torch.Tensor:
    model = here.inspect().global_model
    assert model is not None
    return model


def assert_same_state(here: Server, before: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(tensor, before[name]) for name, tensor in here.state_dict().items())


# --- Names and rows


@pytest.mark.parametrize("clients", [SITES, NumberedNames(5), NumberedNames(LONGEST_LIST + 1)], ids=len)
def test_clients_keep_their_rows_for_good(clients: Sequence[str]):
    index = ClientIndex(clients)
    index.add(clients[1])
    index.add("late")
    assert index.rows(["late", clients[1], clients[2]]).tolist() == [len(clients), 1, 2]
    assert index.names(torch.tensor([4, 0])) == [clients[4], clients[0]]
    assert index.sorted(["new", clients[4], clients[3]]) == [clients[3], clients[4], "new"]
    again = ClientIndex()
    again.load_state_dict(index.state_dict())
    assert list(again) == [*clients, "late"]
    for name in ("03", "-1", "٣", str(len(clients)), "", "9" * 5000):
        assert name not in again
        with refused("unknown-client"):
            again.row(name)


def test_numbered_names_are_a_sequence_that_is_saved_as_one_number():
    names = NumberedNames(12)
    assert names == tuple(map(str, range(12)))
    assert hash(names) == hash(tuple(names))
    assert names != ["0"]
    assert (names[3], names[-1], names[9:]) == ("3", "11", ("9", "10", "11"))
    assert names.index("11") == 11
    with pytest.raises(ValueError, match="'12'"):
        names.index("12")
    saved = ClientIndex(NumberedNames(1_000_000)).state_dict()
    assert sum(tensor.numel() for tensor in saved.values()) == 1


def test_names_and_prefixes_are_read_back_from_tensors():
    for names in (SITES, ()):
        assert tensor_to_names(names_to_tensor(names)) == list(names)
    tensors = {"a": torch.ones(1), "b.c": torch.zeros(2)}
    found = owned("x", {**under("x", tensors), **under("xy", tensors), "z": torch.ones(1)})
    assert found.keys() == {"a", "b.c"}


def test_selection_and_rounds_depend_on_no_order_of_the_clients():
    here = server()
    clients = [*SITES, "zoë", "anna"]
    drawn = here.select(0.5, clients)
    assert len(drawn) == 4
    assert here.select(0.5, clients[::-1]) == drawn
    assert here.select(0.5) == here.select(0.5, SITES)
    sent = here.begin(["käthe", "st-mary", "käthe", "new"])
    assert names(here, sent) == ["st-mary", "käthe", "new"]
    assert here.clients.row("new") == 5


# --- Rounds


def test_the_server_numbers_the_rounds():
    here = server()
    assert here.round == 0
    here.begin(SITES)
    assert here.round == 1
    assert here.finish([]).round == 1
    here.begin(SITES)
    assert here.round == 2


def test_steps_out_of_order_are_errors():
    here = server()
    for step in (lambda: here.supply([]), lambda: here.finish([]), here.cancel):
        with pytest.raises(RuntimeError):
            step()
    play(here, SITES[:3])
    with pytest.raises(RuntimeError):
        here.finish([])
    here.begin(SITES)  # two clients are pending
    with pytest.raises(RuntimeError):
        here.finish([])


def test_a_round_of_twenty_thousand_newcomers_begins_in_less_than_a_second():
    here = server()
    play(here)
    newcomers = [f"site {number}" for number in range(20_000)]
    requests = [Upload(k, 2, row, 5) for k, row in zip(newcomers, rows(len(newcomers)), strict=True)]
    began = time.process_time()
    assert len(here.begin(newcomers).pending) == len(newcomers)
    assert len(here.supply(requests).ids) == len(newcomers)
    assert time.process_time() - began < 1


def test_late_repeated_and_uninvited_answers_do_not_count():
    here = server("fedavg")
    play(here)
    here.begin(SITES[:3])
    before = model_of(here).clone()
    good = torch.ones(SIZE)
    outcome = here.finish(
        [
            Upload("st-mary", 1, 100 * good, 5),
            Upload("charité", 2, good, 5),
            Upload("charité", 2, 100 * good, 5),
            Upload("käthe", 2, 100 * good, 5),
            Upload("mallory", 2, 100 * good, 5),
        ]
    )
    torch.testing.assert_close(model_of(here), before + good)
    assert outcome.rejected == {
        "st-mary": "answers round 1, this is round 2",
        "käthe": "was not asked to take part",
        "mallory": "was not asked to take part",
    }
    assert outcome.ignored == (("charité", "sent more than once: only the first upload is used"),)


def test_newcomers_receive_a_model_after_a_valid_request_and_are_left_out_without():
    here = server()
    play(here, SITES[:2])
    sent = here.begin(SITES)
    assert here.clients.names(sent.pending) == ["0", "käthe", "9f:3a"]
    assert sent.start is not None
    nan = torch.full((SIZE,), torch.nan)
    sent = here.supply([Upload("0", 2, rows(1)[0], 5), Upload("käthe", 1, rows(1)[0], 5)])
    assert names(here, sent) == list(SITES[:3])
    reasons = {"käthe": "request answers round 1, this is round 2", "9f:3a": "request did not come"}
    assert sent.rejected == reasons
    assert here.finish(answers(here, sent, rows(3))).rejected == reasons
    here.begin(SITES)
    assert here.supply([Upload("9f:3a", 3, nan, 5)]).rejected["9f:3a"] == "request not finite"


def test_models_for_clients_are_those_of_the_next_round_and_change_nothing():
    here = server()
    play(here, SITES[:2])
    before = copy.deepcopy(here.state_dict())
    asked = ["käthe", "st-mary", "0"]
    assert set(here.clients.names(here.models_for(asked).pending)) == {"käthe", "0"}
    requests = [Upload("käthe", here.round, rows(1)[0], 5), Upload("0", here.round, rows(2)[1], 5)]
    sent = here.models_for(asked, requests)
    assert sent.rejected == {}
    of = dict(zip(names(here, sent), sent.models[sent.index[:, 0]], strict=True))
    assert of.keys() == set(asked)
    assert not torch.equal(of["käthe"], of["0"])
    assert_same_state(here, before)
    with refused("unknown-client"):
        here.models_for(["x"])
    expected = here.models_for(SITES[:2]).models
    assert torch.equal(here.begin(SITES[:2]).models, expected)


def test_an_upload_without_the_feedback_that_the_method_asks_for_is_rejected():
    here = server("fedfomo", models=3)
    assert here.begin(SITES).feedback == 1
    outcome = here.finish(
        [Upload(k, 1, row, 5, torch.zeros(1)) for k, row in zip(SITES, rows(5), strict=True)]
    )
    assert outcome.rejected == {}
    assert here.begin(SITES).feedback == 3
    outcome = here.finish([Upload(SITES[0], 2, rows(1)[0], 5)])
    assert outcome.rejected == {SITES[0]: "feedback is not 3 finite numbers"}


def test_an_error_in_finish_changes_nothing():
    here = Server(methods.make("fltrust"), torch.zeros(SIZE), LAYOUT, clients=SITES)
    assert torch.equal(here.begin(SITES).start, torch.zeros(SIZE))
    uploads = [Upload(k, 1, torch.ones(SIZE), 5) for k in SITES]
    with pytest.raises(InputError):
        here.finish(uploads)
    assert not model_of(here).any()
    here.finish(uploads, root=torch.ones(SIZE))
    torch.testing.assert_close(model_of(here), torch.ones(SIZE))


def test_a_cancelled_round_does_not_count():
    here, other = server(), server()
    for each in (here, other):
        play(each)
    before = here.state_dict()
    for _ in range(2):
        here.begin(SITES)
        here.cancel()
    assert_same_state(here, before)
    assert all(torch.equal(a, b) for a, b in zip(play(here, seed=1), play(other, seed=1), strict=True))
    assert here.round == other.round == 2


# --- Removal


def test_removed_suspected_and_rejected_clients_are_recorded_apart():
    for strikes in (1, 2):
        here = server(policy={"strikes": strikes}, t_norm=5.0)
        updates = rows(5)
        updates[1] *= 1000
        updates[2] = torch.nan
        uploads = answers(here, here.begin(SITES), updates)
        outcome = here.finish([*uploads[:4], Upload("9f:3a", here.round, "text", 5)])
        judged = outcome.removed if strikes == 1 else outcome.suspected
        assert judged.keys() == {"charité", "0"}
        assert judged["charité"].score == "norm"
        assert outcome.scores["norm"]["charité"] > 5
        assert outcome.limits == {"norm": 5}
        assert outcome.rejected["9f:3a"] == "not a tensor but str"
        if strikes == 1:
            assert here.select(1.0, SITES) == ["st-mary", "käthe", "9f:3a"]
            assert here.clients.names(here.begin(SITES).pending) == ["9f:3a"]
            assert names(here, here.supply([])) == ["st-mary", "käthe"]
        else:
            assert not outcome.removed
            assert outcome.rejected["0"] == "not finite"


def test_a_client_removed_by_the_operator_leaves_the_pool_and_may_return_as_a_newcomer():
    here = server()
    play(here)
    here.remove("0", "asked to leave")
    others = ["st-mary", "charité", "käthe", "9f:3a"]
    assert here.select(1.0) == others
    assert here.clients.names(here.inspect().ids) == others
    assert names(here, here.begin(SITES)) == others
    assert here.models_for(["0"]).rejected == {"0": "was removed"}
    other = server()
    other.load_state_dict(here.state_dict())
    assert other.removed["0"].sentence == "asked to leave"
    other.readmit("0")
    assert other.clients.names(other.begin(SITES).pending) == ["0"]


def test_detectors_forget_a_readmitted_client():
    here = server(preset="hardened")
    sent = here.begin(SITES)
    updates = torch.nn.functional.normalize(rows(len(SITES)))
    updates[2] *= 1000
    here.finish(answers(here, sent, updates))
    assert set(here.removed) == {"0"}
    here.readmit("0")
    for seed in range(4):
        play(here, seed=seed)
    assert not here.removed


# --- Save and restore


@pytest.mark.parametrize("name", [name for name in methods.names() if name not in ("local", "fltrust")])
def test_a_restored_server_continues_with_the_same_bits(name: str):
    one = server(name)
    play(one)
    saved = {key: tensor.clone() for key, tensor in one.state_dict().items()}
    other = Server(methods.make(name), torch.zeros(SIZE), LAYOUT)
    other.load_state_dict(saved)
    assert other.round == 1
    for mine, theirs in zip(play(one, seed=3), play(other, seed=3), strict=True):
        assert torch.equal(mine, theirs)
    assert_same_state(one, other.state_dict())


def test_a_round_under_way_is_forgotten_by_a_restart():
    here = server()
    play(here)
    saved = here.state_dict()
    here.begin(SITES)
    here.load_state_dict(saved)
    with pytest.raises(RuntimeError):
        here.finish([])
    here.begin(SITES)
    assert here.round == 2


@pytest.mark.parametrize("preset", ["paper", "hardened"])
def test_a_state_from_before_there_were_gains_is_read_and_any_other_part_is_needed(preset: str):
    here, other = server(preset=preset), server(preset=preset)
    play(here)
    saved = {name: tensor for name, tensor in here.state_dict().items() if name != "state.gains"}
    other.load_state_dict({**saved, "state.update_cosines": torch.eye(len(SITES))})
    mine, theirs = play(here, seed=1), play(other, seed=1)
    assert all(model.isfinite().all() for model in theirs)
    if preset == "paper":
        assert all(torch.equal(one, two) for one, two in zip(mine, theirs, strict=True))
    play(here, seed=2), play(other, seed=2)
    assert other.state_dict()["state.gains"].shape == here.state_dict()["state.gains"].shape
    del saved["state.votes"]
    with pytest.raises(KeyError):
        other.load_state_dict(saved)
