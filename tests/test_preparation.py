"""Inputs as a user has them become what the run's networks saw, pixel by pixel and client by client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused
from safetensors import safe_open
from torch import Tensor

import fedcap
from fedcap.data import federate, partitions
from fedcap.data.base import Scaling
from fedcap.data.own import from_arrays
from fedcap.simulation.inputs import Predictor, Preparation, scaling_tensors

BYTES = np.random.default_rng(1).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
"""Six images of 5×4 in three colours, channels last."""


def as_dealt_out(x: np.ndarray) -> Tensor:
    """Return inputs as `federate` hands them to clients."""
    return from_arrays("test", x, np.zeros(len(x), int)).take(torch.arange(len(x))).x


@pytest.mark.parametrize("arrange", [lambda x: x, lambda x: np.moveaxis(x, -1, 1), torch.from_numpy])
def test_images_of_either_layout_become_what_the_data_set_gave(arrange: Any) -> None:
    prepare = Preparation((3, 5, 4), pixels=True)
    assert torch.equal(prepare(arrange(BYTES)), as_dealt_out(BYTES))


def test_grey_images_need_no_channel() -> None:
    grey = BYTES[..., 0]
    for given in (grey, grey[:, None], grey[..., None], grey.astype(int), grey.tolist()):
        assert torch.equal(Preparation((1, 5, 4), pixels=True)(given), as_dealt_out(grey))


def test_every_byte_has_the_same_bits_as_in_training() -> None:
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    assert torch.equal(Preparation((1, 16, 16), pixels=True)(every), as_dealt_out(every))


def test_floats_are_taken_as_they_are() -> None:
    x = np.random.default_rng(0).normal(size=(4, 7))
    for given in (x, x.astype(np.float32), x.tolist(), torch.from_numpy(x)):
        assert torch.equal(Preparation((7,), pixels=False)(given), torch.from_numpy(x.astype(np.float32)))
    whole = np.arange(8, dtype=np.uint8).reshape(2, 4)
    assert torch.equal(Preparation((4,), pixels=False)(whole), torch.from_numpy(whole).float())


def test_float_images_may_lack_the_channel_or_have_it_last() -> None:
    x = np.random.default_rng(0).normal(size=(4, 5, 6, 3)).astype(np.float32)
    assert torch.equal(Preparation((3, 5, 6), pixels=False)(x), torch.from_numpy(x).permute(0, 3, 1, 2))
    assert torch.equal(Preparation((1, 5, 6), pixels=False)(x[..., 0]), torch.from_numpy(x[..., 0])[:, None])


@pytest.mark.parametrize(
    ("shape", "pixels", "given"),
    [
        ((1, 5, 4), True, np.zeros((2, 5, 5), np.uint8)),
        ((1, 5, 4), True, np.zeros((2, 5, 4))),
        ((1, 5, 4), True, np.full((2, 5, 4), 256)),
        ((4,), False, np.zeros((2, 5))),
        ((4,), False, np.zeros(4)),
        ((4,), False, np.full((2, 4), np.nan)),
        ((4,), False, np.full((2, 4), "a")),
        ((4,), False, [[1, 2], [3]]),
    ],
)
def test_inputs_that_do_not_fit_are_one_line(shape: Any, pixels: bool, given: Any) -> None:
    with refused("data-shape") as error:
        Preparation(shape, pixels)(given)
    assert "\n" not in str(error.value)


def test_standardising_uses_the_clients_own_mean_and_deviation() -> None:
    mean, deviation = torch.tensor([[[1.0]], [[2.0]], [[3.0]]]), torch.tensor([[[0.5]], [[1.0]], [[4.0]]])
    found = Preparation((3, 5, 4), True, Scaling(mean, deviation))(BYTES)
    plain = as_dealt_out(BYTES)
    for channel in range(3):
        expected = (plain[:, channel] - mean[channel]) / deviation[channel]
        assert torch.equal(found[:, channel], expected)


def test_answers_are_probabilities() -> None:
    answering = Predictor(Preparation((4,), False), torch.nn.Linear(4, 3))
    x = torch.randn(5, 4)
    logits = x.double() @ answering.model.weight.double().T + answering.model.bias.double()
    expected = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    torch.testing.assert_close(answering(x), expected.float())


@pytest.fixture
def standardised(tmp_path: Path) -> dict[str, Any]:
    """A run on standardised bytes, with and without a directory, and its data."""
    generator = np.random.default_rng(0)
    y = np.tile([0, 1], 60)
    x = np.clip(generator.normal(90, 30, (120, 5, 4)) + 60 * y[:, None, None], 0, 255).astype(np.uint8)
    owners = np.repeat(["u01", "u02", "u03"], 40)
    np.savez(tmp_path / "mine.npz", x=x, y=y, client=owners)
    data = {"name": str(tmp_path / "mine.npz"), "standardise": True}
    settings = {"dataset": data, "method": "fedavg", "rounds": 2, "workers": 1}
    experiment = fedcap.Experiment(**settings)
    kept = experiment.run(out=tmp_path / "run")
    return {
        "run": fedcap.read(tmp_path / "run"),
        "holders": [kept.models, experiment.run().models],
        "data": experiment.load_data(),
        "path": tmp_path,
        "x": x,
        "owners": owners,
    }


def test_a_run_keeps_its_scalings_and_prepares_raw_inputs_with_them(standardised: dict[str, Any]) -> None:
    data, run = standardised["data"], standardised["run"]
    assert run.provenance.pixels is True
    with safe_open(standardised["path"] / "run" / "checkpoint.safetensors", framework="pt") as file:
        means, deviations = file.get_tensor("scaling.mean"), file.get_tensor("scaling.deviation")
    assert torch.equal(means, torch.stack([data.scaling[name].mean for name in data.names]))
    assert torch.equal(deviations, torch.stack([data.scaling[name].deviation for name in data.names]))
    raw = as_dealt_out(standardised["x"][standardised["owners"] == "u02"])
    expected = (raw - data.scaling["u02"].mean) / data.scaling["u02"].deviation
    for holder in (run, *standardised["holders"]):
        assert torch.equal(
            holder.preparation("u02")(standardised["x"][standardised["owners"] == "u02"]), expected
        )
    mean = run.preparation("u02").scaling.mean
    assert mean.untyped_storage().nbytes() == 4 * mean.numel()  # nothing of the other clients goes with it
    with refused("missing-client"):
        run.preparation()


def test_predictions_from_raw_inputs_are_as_accurate_as_the_run_says(standardised: dict[str, Any]) -> None:
    run, data = standardised["run"], standardised["data"]
    seen = as_dealt_out(standardised["x"])
    for client, train, test in zip(data.names, data.train, data.test, strict=True):
        spread = data.scaling[client]
        mine = (seen - spread.mean) / spread.deviation
        rows = [int((mine == sample).flatten(1).all(dim=1).nonzero()[0]) for sample in test.x]
        answers = run.predict(client, standardised["x"][rows]).argmax(dim=1)
        accuracy = 100 * float((answers == test.y).double().mean())
        expected = next(one.personal for one in run.clients if one.id == client)
        assert accuracy == pytest.approx(expected)
        assert len(train) == 30


def test_nothing_is_kept_where_nothing_is_standardised(tmp_path: Path) -> None:
    data = federate(from_arrays("t", np.eye(40), np.arange(40) % 2), partitions.make("iid"), 4, None, 0.5, 0)
    assert scaling_tensors(data) == {}
    fedcap.Experiment(method="fedavg", rounds=1, workers=1, training={"epochs": 1}).run(out=tmp_path / "run")
    with safe_open(tmp_path / "run" / "checkpoint.safetensors", framework="pt") as file:
        assert not [name for name in file.keys() if name.startswith("scaling")]  # noqa: SIM118
    prepare = fedcap.read(tmp_path / "run").preparation("3")
    assert (prepare.scaling, prepare.shape) == (None, (1, 8, 8))
