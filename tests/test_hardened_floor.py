"""The floor under the personal model, against its formula by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedcap.methods.hardened import Floor


class Still:
    """A client with fixed losses: what `floor` asks of one."""

    def __init__(self, losses: dict[float, float], classes: int = 4) -> None:
        self.losses, self.classes = losses, classes
        self.samples = type("Samples", (), {"x": torch.zeros(8, 1), "y": torch.zeros(8, dtype=torch.long)})

    def network(self) -> Still:
        return self

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, y)

    def logits(self, weights: Tensor, x: Tensor) -> Tensor:
        """Return logits whose cross-entropy for class 0 is the loss that belongs to the weights."""
        loss = self.losses[float(weights)]
        logits = torch.zeros(len(x), self.classes, dtype=torch.float64)
        logits[:, 0] = -math.log((math.exp(loss) - 1) / (self.classes - 1))
        return logits


def floor_of(theirs: float, own: float, least: float = math.inf, trained: float = 0.0) -> Floor:
    client = Still({1.0: theirs, 2.0: own, 3.0: trained})
    return Floor(client, torch.tensor(1.0), torch.tensor(2.0), least)  # type: ignore[arg-type]


def worth(theirs: float, own: float, least: float = math.inf) -> tuple[float, float]:
    floor = floor_of(theirs, own, least)
    return floor.worth, floor.least


def test_a_received_model_as_good_as_ones_own_is_worth_all():
    assert worth(theirs=0.2, own=0.2) == (pytest.approx(1.0), pytest.approx(0.2))
    assert worth(theirs=0.1, own=0.2)[0] == pytest.approx(1.0)


def test_worth_is_the_share_known_times_the_fourth_power_of_what_is_left():
    guess = math.log(4)
    expected = (guess - 0.6) / (guess - 0.1) * ((guess - 0.6) / (guess - 0.3)) ** 4
    assert worth(theirs=0.6, own=0.1, least=0.3) == (pytest.approx(expected), pytest.approx(0.3))


@pytest.mark.parametrize("theirs", [math.log(4) + 0.01, 5.0])
def test_a_model_worse_than_a_guess_is_worth_nothing(theirs):
    assert worth(theirs, own=0.1) == (0.0, pytest.approx(theirs))


def test_before_anything_is_learnt_a_better_model_is_worth_all_and_a_worse_one_nothing():
    assert worth(theirs=1.5, own=1.6)[0] == pytest.approx(1.0)
    assert worth(theirs=1.7, own=1.6)[0] == 0.0


@pytest.mark.parametrize(
    ("trained", "theirs", "own", "kept"),
    [
        (0.05, 0.3, 0.1, 3.0),
        (0.2, 0.3, 0.1, 3.0),  # worse than its own was, and not than what it was pulled to
        (0.5, 0.3, 0.1, 2.0),
        (0.5, 0.1, 0.3, 2.0),
        (math.nan, 0.3, 0.1, 2.0),
        (0.5, math.nan, 0.1, 2.0),
        (0.5, math.nan, math.nan, 3.0),
        (0.5, 0.3, math.nan, 3.0),
    ],
)
def test_a_personal_model_that_training_made_worse_is_not_kept(trained, theirs, own, kept):
    floor = floor_of(theirs, own, trained=trained)
    assert float(floor.keep(torch.tensor(3.0))) == kept


def test_a_received_model_of_nans_is_worth_nothing_and_leaves_the_least_loss_as_it_was():
    assert worth(theirs=math.nan, own=0.1, least=0.3) == (0.0, 0.3)
