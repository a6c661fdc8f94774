"""Data sets of Hugging Face and partitioners of flwr-datasets; everything is made here, without network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
from helpers import refused

import fedcap
from fedcap.data import FederatedData
from fedcap.data.tables import Table

datasets = pytest.importorskip("datasets", reason="needs the extra huggingface: make test-extras")

QUICK: dict[str, Any] = {"rounds": 1, "workers": 1, "training": {"lr": 0.1, "epochs": 1}}
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(120, 2))
CODES = np.arange(120) % 3
CLASSES = ["benign", "malignant", "unclear"]
SITES = np.array(["oslo", "rome", "bern"]).repeat(40)


def patients(**more: Any) -> Any:
    features = {"age": X[:, 0], "weight": X[:, 1].astype(np.float32), "label": CODES, **more}
    found = datasets.Dataset.from_dict({name: list(values) for name, values in features.items()})
    return found.cast_column("label", datasets.ClassLabel(names=CLASSES))


def federated(dataset: Any) -> FederatedData:
    return fedcap.Experiment(dataset=dataset, **QUICK).load_data()


def partitioners() -> Any:
    return pytest.importorskip(
        "flwr_datasets.partitioner", reason="needs the extra huggingface: make test-extras"
    )


def same(left: FederatedData, right: FederatedData) -> bool:
    hashes = (left.data_hash, left.partition_hash) == (right.data_hash, right.partition_hash)
    return hashes and left.names == right.names and left.class_names == right.class_names


def test_a_table_is_that_of_a_data_frame_with_the_same_columns() -> None:
    frame = Table({"age": X[:, 0], "weight": X[:, 1], "label": np.array(CLASSES)[CODES], "client": SITES})
    found = federated(patients(client=SITES))
    assert found.features == ("age", "weight")
    assert found.class_names == ("benign", "malignant", "unclear")
    assert same(found, federated(frame))
    named = {"data": patients(place=SITES, note=["text"] * 120), "client": "place", "ignore": ["note"]}
    assert same(federated(named), found)


def test_a_selected_and_shuffled_data_set_has_its_own_rows() -> None:
    order = np.random.default_rng(1).permutation(120)[:90]
    x = federated({"data": patients(client=SITES).select(order), "partition": "natural"})
    y = {"x": X[order], "y": np.array(CLASSES)[CODES[order]], "client": SITES[order]}
    assert x.data_hash == federated(y).data_hash


def test_a_split_for_testing_is_the_test_samples() -> None:
    whole = patients(client=SITES)
    tests = np.arange(120) % 4 == 0
    parts = datasets.DatasetDict(
        train=whole.select(np.flatnonzero(~tests)), test=whole.select(np.flatnonzero(tests))
    )
    found = federated({"data": parts})
    for name, train, test in zip(found.names, found.train, found.test, strict=True):
        mine = name == SITES
        assert sorted(train.x[:, 0].tolist()) == sorted(X[mine & ~tests, 0].astype(np.float32).tolist())
        assert sorted(test.x[:, 0].tolist()) == sorted(X[mine & tests, 0].astype(np.float32).tolist())
    assert same(found, federated(parts))


def test_images_and_arrays_are_the_only_feature() -> None:
    from PIL import Image

    pixels = DRAW.integers(0, 256, (60, 6, 6, 3), dtype=np.uint8)
    y = np.arange(60) % 2
    expected = federated({"x": pixels, "y": y}).data_hash
    images = {"picture": [Image.fromarray(each) for each in pixels], "label": y.tolist()}
    assert federated(datasets.Dataset.from_dict(images)).data_hash == expected
    features = datasets.Features(
        picture=datasets.Array3D((6, 6, 3), "uint8"),
        label=datasets.Value("int64"),
        name=datasets.Value("string"),
    )
    arrays = datasets.Dataset.from_dict(
        {"picture": list(pixels), "label": y.tolist(), "name": ["x"] * 60}, features=features
    )
    assert federated({"data": arrays, "ignore": "name"}).data_hash == expected
    with refused("data-shape", "picture"):
        federated(arrays)
    signals = datasets.Dataset.from_dict({"signal": X.tolist(), "label": CODES.tolist()})
    assert federated(signals).data_hash == federated({"x": X, "y": CODES}).data_hash


def test_a_run_is_resumed_and_other_data_is_another_run(tmp_path: Path) -> None:
    data = patients(client=SITES)
    whole = fedcap.Experiment(dataset=data, **QUICK | {"rounds": 2}).run(out=tmp_path / "whole")
    fedcap.Experiment(dataset=data, **QUICK).run(out=tmp_path / "run")
    again = fedcap.Experiment(dataset=patients(client=SITES), **QUICK | {"rounds": 2}).run(
        out=tmp_path / "run", extend=True
    )
    assert again.tacc == whole.tacc
    first, second = (fedcap.read(tmp_path / name) for name in ("whole", "run"))
    assert first.provenance.data_hash == second.provenance.data_hash == federated(data).data_hash
    assert first.provenance.partition_hash == second.provenance.partition_hash
    assert torch.equal(first.predict("oslo", X[:5]), second.predict("oslo", X[:5]))
    with pytest.raises(fedcap.InputError):
        fedcap.Experiment(dataset=data.select(range(119)), **QUICK).run(out=tmp_path / "run")


def test_a_partitioner_makes_the_clients(tmp_path: Path) -> None:
    found = partitioners()
    data, divide = patients(), found.DirichletPartitioner(4, partition_by="label", alpha=0.5, seed=3)
    oracle = found.DirichletPartitioner(4, partition_by="label", alpha=0.5, seed=3)
    oracle.dataset = data
    clients = federated({"data": data, "partition": divide})
    assert clients.names == ("0", "1", "2", "3")
    for place, (train, test) in enumerate(clients.clients):
        part = oracle.load_partition(place)
        assert sorted([*train.x[:, 0].tolist(), *test.x[:, 0].tolist()]) == sorted(
            np.array(part["age"], np.float32).tolist()
        )
    again = federated({"data": data, "partition": divide})  # the partitioner itself is unchanged
    assert same(clients, again)
    other = found.DirichletPartitioner(4, partition_by="label", alpha=0.5, seed=4)
    assert federated({"data": data, "partition": other}).partition_hash != clients.partition_hash
    dataset = {"data": data, "partition": divide}
    fedcap.Experiment(dataset=dataset, **QUICK).run(out=tmp_path / "run")
    assert (
        fedcap.Experiment(dataset=dataset, **QUICK | {"rounds": 2})
        .run(out=tmp_path / "run", extend=True)
        .rounds
        == 2
    )
    assert fedcap.read(tmp_path / "run").provenance.partition_hash == clients.partition_hash
    with pytest.raises(fedcap.InputError):
        fedcap.Experiment(dataset={"data": data, "partition": other}, **QUICK).run(out=tmp_path / "run")


def test_a_partitioner_by_a_column_names_the_clients_and_may_leave_rows_out() -> None:
    found = partitioners()
    natural = federated({"data": patients(site=SITES), "partition": found.NaturalIdPartitioner("site")})
    assert same(natural, federated(patients(client=SITES)))
    by_client = {"data": patients(client=SITES), "partition": found.NaturalIdPartitioner("client")}
    assert same(natural, federated(by_client))
    some = federated({"data": patients(), "partition": found.SizePartitioner([30, 40])})
    assert [len(train) + len(test) for train, test in some.clients] == [30, 40]


def test_data_that_is_not_fixed_is_refused(tmp_path: Path) -> None:
    data = patients()
    with refused("streaming-data"):
        fedcap.Experiment(dataset=data.to_iterable_dataset())
    with refused("streaming-data"):
        fedcap.Experiment(dataset={"data": datasets.IterableDatasetDict(train=data.to_iterable_dataset())})
    with refused("streaming-data"):
        fedcap.Experiment(dataset=data.with_transform(lambda rows: rows))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (lambda: {"data": datasets.DatasetDict(a=patients())}, "data"),
        (lambda: {"data": datasets.DatasetDict(train=patients(), test=patients(more=X[:, 0]))}, "data"),
        (lambda: {"data": datasets.DatasetDict(train=patients(), test=patients()), "test": "age"}, "test"),
        (lambda: {"data": patients(words=[["a"], ["b", "c"]] * 60)}, "words"),
        (lambda: {"data": patients(ragged=[[1.0], [2.0, 3.0]] * 60)}, "ragged"),
        (lambda: {"data": patients(client=SITES), "partition": partitioners().IidPartitioner(3)}, "client"),
        (lambda: {"data": patients(), "partition": partitioners().VerticalEvenPartitioner(2)}, "partition"),
        (
            lambda: {"data": patients(), "partition": partitioners().NaturalIdPartitioner("absent")},
            "partition",
        ),
        (lambda: {"x": X, "y": CODES, "partition": partitioners().IidPartitioner(3)}, "partition"),
    ],
    ids=["splits", "columns", "test", "lists of text", "ragged", "client", "vertical", "absent", "arrays"],
)
def test_what_does_not_fit_is_refused_in_one_line(options: Any, field: str) -> None:
    with pytest.raises(fedcap.InputError) as error:
        fedcap.Experiment(dataset=options())
    assert error.value.field == field
    assert "\n" not in str(error.value)
