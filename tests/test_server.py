"""The driver's contract: all that a federation needs of a server, with identities that are not numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedcap import methods
from fedcap.errors import InputError
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


def play(here: Server, clients: tuple[str, ...] = SITES, seed: int = 0) -> list[torch.Tensor]:
    """Play a round in which everybody answers; return the models that were served."""
    sent = here.open(clients)
    sent = rows(len(clients), seed)
    requests = [Upload(k, sent.round, row, 5) for k, row in zip(sent.asked, rows(9, seed + 1), strict=False)]
    serving = here.serve(requests)
    models = [m.clone() for m in serving.dispatch.models[serving.dispatch.rows[:, 0]]]
    here.close([Upload(k, serving.round, row, 5) for k, row in zip(serving.clients, sent, strict=True)])
    return models


# --- Identities and rows


def test_clients_keep_their_rows_for_good_whatever_they_are_called():
    roster = ClientIndex(SITES)
    assert roster.add("charité") == 1
    assert roster.add("late") == 5
    assert roster.rows(["late", "0"]).tolist() == [5, 2]
    assert roster.names([4, 0]) == ["9f:3a", "st-mary"]
    again = ClientIndex()
    again.restore(roster.tensors())
    assert list(again) == [*SITES, "late"]
    with pytest.raises(InputError, match="'nobody' is not enrolled"):
        roster.row("nobody")


def test_names_and_owners_survive_among_tensors():
    assert tensor_to_names(names_to_tensor(SITES)) == list(SITES)
    assert tensor_to_names(names_to_tensor([])) == []
    tensors = {"a": torch.ones(1), "b.c": torch.zeros(2)}
    assert owned("x", {**under("x", tensors), **under("xy", tensors), "z": torch.ones(1)}).keys() == {
        "a",
        "b.c",
    }


def test_participants_are_served_in_the_order_of_the_roster():
    here = server()
    sent = here.open(["käthe", "st-mary", "käthe", "new"])
    assert sent.clients == ("st-mary", "käthe", "new")
    assert here.serve().clients == sent.clients
    assert here.clients.row("new") == 5


# --- Rounds


def test_the_server_knows_its_round():
    here = server()
    assert here.round == 0
    assert here.open(SITES).round == 1
    assert here.serve().round == 1
    assert here.close([]).round == 1
    assert here.open(SITES).round == 2


def test_steps_out_of_order_are_refused():
    here = server()
    with pytest.raises(RuntimeError, match="no round is open"):
        here.serve()
    here.open(SITES)
    with pytest.raises(RuntimeError, match="no round is being played"):
        here.close([])
    here.serve()
    here.close([])
    with pytest.raises(RuntimeError, match="no round is being played"):
        here.close([])


def test_late_repeated_and_uninvited_answers_count_for_nothing():
    here = server("fedavg")
    play(here)
    here.open(SITES[:3])
    here.serve()
    before = here.global_model.clone()
    good = torch.ones(SIZE)
    closing = here.close(
        [
            Upload("st-mary", 1, 100 * good, 5),
            Upload("charité", 2, good, 5),
            Upload("charité", 2, 100 * good, 5),
            Upload("käthe", 2, 100 * good, 5),
            Upload("mallory", 2, 100 * good, 5),
        ]
    )
    torch.testing.assert_close(here.global_model, before + good)
    assert closing.refused == {
        "st-mary": "answers round 1, this is round 2",
        "käthe": "was not asked to take part",
        "mallory": "was not asked to take part",
    }
    assert closing.ignored == (("charité", "sent more than once: only the first was looked at"),)


def test_newcomers_are_asked_and_served_by_their_request():
    here = server()
    play(here, SITES[:3])
    sent = here.open(SITES)
    assert sent.asked == ("käthe", "9f:3a")
    assert sent.start is not None
    requests = [Upload("käthe", 2, rows(1)[0], 5), Upload("9f:3a", 1, rows(1)[0], 5)]
    serving = here.serve(requests)
    assert serving.clients == SITES[:4]
    assert serving.offer.refused == {"9f:3a": "request answers round 1, this is round 2"}


def test_whoever_does_not_send_its_request_sits_the_round_out():
    here = server()
    play(here, SITES[:3])
    here.open(SITES)
    nan = torch.full((SIZE,), torch.nan)
    serving = here.serve([Upload("9f:3a", 2, nan, 5)])
    assert serving.clients == SITES[:3]
    assert serving.offer.refused == {"käthe": "request did not come", "9f:3a": "request not finite"}


def test_the_removed_are_out_for_good_and_known_by_name():
    here = server(t_norm=5.0)
    here.open(SITES)
    serving = here.serve()
    sent = rows(5)
    sent[1] *= 1000
    closing = here.close([Upload(k, 1, row, 5) for k, row in zip(serving.clients, sent, strict=True)])
    assert list(closing.removed) == ["charité"]
    assert closing.removed["charité"].score == "norm"
    assert closing.scores["norm"]["charité"] > 5
    assert closing.limits == {"norm": 5}
    assert "charité" not in here.select(SITES, 1.0)
    assert here.open(SITES).clients == ("st-mary", "0", "käthe", "9f:3a")


def test_what_a_client_would_be_sent_can_be_asked_without_changing_anything():
    here = server()
    play(here)
    before = copy.deepcopy(here.tensors())
    offer = here.models_for(SITES)
    assert offer.clients == SITES
    assert offer.refused == {}
    after = here.tensors()
    assert all(torch.equal(before[name], after[name]) for name in before)
    here.open(SITES)
    assert torch.equal(here.serve().dispatch.models, offer.dispatch.models)


def test_what_else_a_method_asks_for_is_declared_by_it():
    here = server("fedfomo", models=3)
    here.open(SITES)
    serving = here.serve()
    assert serving.extra == 1
    closing = here.close(
        [Upload(k, 1, row, 5, torch.zeros(1)) for k, row in zip(SITES, rows(5), strict=True)]
    )
    assert closing.refused == {}
    here.open(SITES)
    assert here.serve().extra == 3
    closing = here.close([Upload(SITES[0], 2, rows(1)[0], 5)])
    assert closing.refused == {SITES[0]: "extra is not 3 finite numbers"}


@pytest.mark.parametrize("name", [name for name in methods.names() if name not in ("local", "fltrust")])
def test_a_server_restored_from_its_tensors_goes_on_with_the_same_bits(name: str):
    one = server(name)
    play(one)
    saved = {key: tensor.clone() for key, tensor in one.tensors().items()}
    other = Server(methods.make(name), torch.zeros(SIZE), LAYOUT)
    other.restore(saved)
    assert other.round == 1
    for mine, theirs in zip(play(one, seed=3), play(other, seed=3), strict=True):
        assert torch.equal(mine, theirs)
    assert all(torch.equal(part, other.tensors()[key]) for key, part in one.tensors().items())


def test_a_round_under_way_is_forgotten_by_a_restart():
    here = server()
    play(here)
    saved = here.tensors()
    here.open(SITES)
    here.serve()
    here.restore(saved)
    with pytest.raises(RuntimeError, match="no round is being played"):
        here.close([])
    assert here.open(SITES).round == 2


def test_answers_to_a_round_that_was_given_up_are_late():
    here = server("fedavg")
    here.open(SITES)
    old = here.serve().round
    here.open(SITES)
    here.serve()
    closing = here.close([Upload("0", old, torch.ones(SIZE), 5)])
    assert closing.refused == {"0": "answers round 1, this is round 2"}


def test_an_error_in_closing_changes_nothing():
    here = Server(methods.make("fltrust"), torch.zeros(SIZE), LAYOUT, clients=SITES)
    here.open(SITES)
    serving = here.serve()
    assert torch.equal(serving.root_start, torch.zeros(SIZE))
    sent = [Upload(k, 1, torch.ones(SIZE), 5) for k in SITES]
    with pytest.raises(InputError, match="root set"):
        here.close(sent)
    assert not here.global_model.any()
    here.close(sent, root=torch.ones(SIZE))
    torch.testing.assert_close(here.global_model, torch.ones(SIZE))


def test_somebody_removed_by_hand_leaves_the_pools_and_may_come_back_as_a_newcomer():
    here = server()
    play(here)
    here.remove("0", "asked to leave")
    assert here.pools[0] == ("st-mary", "charité", "käthe", "9f:3a")
    assert here.open(SITES).clients == ("st-mary", "charité", "käthe", "9f:3a")
    assert here.models_for(["0"]).refused == {"0": "was removed"}
    other = server()
    other.restore(here.tensors())
    assert other.removed["0"].sentence == "asked to leave"
    other.readmit("0")
    assert other.open(SITES).asked == ("0",)


@pytest.mark.parametrize("preset", ["paper", "hardened"])
def test_a_state_from_before_there_were_gains_is_read_and_goes_on(preset: str):
    here, other = server(preset=preset), server(preset=preset)
    play(here)
    saved = {name: tensor for name, tensor in here.tensors().items() if name != "state.gains"}
    other.restore({**saved, "state.update_cosines": torch.eye(len(SITES))})
    mine, theirs = play(here, seed=1), play(other, seed=1)
    assert all(model.isfinite().all() for model in theirs)
    if preset == "paper":
        assert all(torch.equal(one, two) for one, two in zip(mine, theirs, strict=True))
    play(here, seed=2), play(other, seed=2)
    assert other.tensors()["state.gains"].shape == here.tensors()["state.gains"].shape


def test_a_state_without_what_every_state_has_is_not_read():
    here = server()
    play(here)
    saved = {name: tensor for name, tensor in here.tensors().items() if name != "state.votes"}
    with pytest.raises(KeyError, match="votes"):
        server().restore(saved)


def test_nothing_is_held_against_whoever_is_readmitted():
    here = server(preset="hardened")
    here.open(SITES)
    serving = here.serve([])
    sent = rows(len(SITES))
    sent /= sent.norm(dim=1, keepdim=True)
    sent[2] *= 1000
    here.close([Upload(k, serving.round, row, 5) for k, row in zip(serving.clients, sent, strict=True)])
    assert set(here.removed) == {"0"}
    here.readmit("0")
    for seed in range(4):
        play(here, seed=seed)
    assert not here.removed


def test_a_stranger_can_be_made_a_model_without_being_enrolled():
    here = server()
    play(here)
    before = len(here.clients)
    assert here.asks(["x", "st-mary", "y"]) == ["x", "y"]
    requests = [Upload("x", here.round, rows(1)[0], 5), Upload("y", here.round, rows(2)[1], 5)]
    offer = here.models_for(["x", "st-mary", "y"], requests)
    assert offer.clients == ("x", "st-mary", "y")
    assert not torch.equal(offer.dispatch.models[0], offer.dispatch.models[2])
    assert len(here.clients) == before


def test_the_draw_depends_on_who_is_there_and_not_on_the_order():
    here = server()
    everybody = [*SITES, "zoë", "anna"]
    drawn = here.select(everybody, 0.5)
    assert len(drawn) == 4
    assert here.select(everybody[::-1], 0.5) == drawn


# --- A round that is given up


def test_a_round_given_up_counts_for_nothing():
    here, other = server(), server()
    for each in (here, other):
        play(each)
    before = here.tensors()
    here.open(SITES)
    here.cancel()
    here.open(SITES)
    here.serve()
    here.cancel()
    assert all(torch.equal(tensor, before[name]) for name, tensor in here.tensors().items())
    assert all(torch.equal(a, b) for a, b in zip(play(here, seed=1), play(other, seed=1), strict=True))
    assert here.round == other.round == 2
    with pytest.raises(RuntimeError, match="no round is under way"):
        here.cancel()


def test_suspects_are_told_apart_from_others_who_are_refused():
    here = server(policy={"strikes": 2}, t_norm=1.0)
    sent = here.open(SITES)
    here.serve()
    sent = rows(5)
    sent[1] *= 1000
    sent[2] = torch.nan
    uploads = [Upload(k, sent.round, row, 5) for k, row in zip(SITES, sent, strict=True)]
    closing = here.close([*uploads[:4], Upload("9f:3a", sent.round, "text", 5)])
    assert closing.suspected.keys() == {"charité", "0"}
    assert closing.refused.keys() == {"charité", "0", "9f:3a"}
    assert not closing.removed
