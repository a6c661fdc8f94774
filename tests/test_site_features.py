"""A site's columns: matched to the plan's by name, counted without names, and compared by their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused

from fedcap.data.own import from_arrays
from fedcap.federation.build import propose
from fedcap.federation.site_data import feature_statistics, load_site_data, unusual_features

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
NAMES = ("age", "dose", "weight")
X = (DRAW.normal(size=(60, 3)) * [1, 0.1, 10] + [0, 5, 100]).astype(np.float32)
Y = np.array(["ill", "well"])[np.arange(60) % 2]
mean, deviation = feature_statistics(from_arrays("", X, Y))
VALUES = {"means": mean.tolist(), "deviations": deviation.tolist()}
PLAN = propose("trial", "fedavg", "mlp", ("ill", "well"), (3,), {"epochs": 1}, features=NAMES, **VALUES)


def data(tmp_path: Path, *order: int, **more: Any) -> dict[str, Any]:
    """Return a site's data set with the columns in this order."""
    names = {"features": np.array(NAMES)[list(order)]} | more
    given = {"x": X[:, order], "y": Y} | {key: value for key, value in names.items() if value is not None}
    np.savez(tmp_path / "site.npz", **given)
    return {"name": str(tmp_path / "site.npz")}


def test_a_sites_columns_are_put_in_the_plans_order(tmp_path: Path) -> None:
    wanted = load_site_data(data(tmp_path, 0, 1, 2), None, 0, PLAN).local
    found = load_site_data(data(tmp_path, 2, 1, 0), None, 0, PLAN).local
    assert torch.equal(found.train.x, wanted.train.x)
    assert torch.equal(found.test.x, wanted.test.x)
    assert unusual_features(data(tmp_path, 2, 1, 0), PLAN) == []


def test_a_site_without_a_column_of_the_plan_is_refused_by_its_name(tmp_path: Path) -> None:
    with refused("missing-feature", "dose") as error:
        load_site_data(data(tmp_path, 0, 2), None, 0, PLAN)
    assert "the data has no column 'dose'" in str(error.value)
    with refused("missing-feature", "dose"):
        load_site_data(data(tmp_path, 0, 1, 2, features=np.array(["age", "doze", "weight"])), None, 0, PLAN)


def test_reversed_columns_without_names_are_found_by_their_values(tmp_path: Path) -> None:
    assert unusual_features(data(tmp_path, 0, 1, 2, features=None), PLAN) == []
    first, last = unusual_features(data(tmp_path, 2, 1, 0, features=None), PLAN)
    assert first.startswith("age: mean ")
    assert last.startswith("weight: mean ")


def test_a_site_with_another_number_of_unnamed_columns_is_refused(tmp_path: Path) -> None:
    with refused("data"):
        load_site_data(data(tmp_path, 0, 1, features=None), None, 0, PLAN)


def test_a_plan_without_features_has_the_digest_that_it_had_before_they_existed() -> None:
    plan = propose("trial", "fedavg", "mlp", ("ill", "well"), (3,), {"epochs": 1})
    assert not {"features", "means", "deviations"} & plan.model_dump(mode="json", exclude_none=True).keys()


def write_csv(path: Path, *order: int, names: bool = True) -> str:
    rows = [
        ",".join([*(str(row[at]) for at in order), label]) for row, label in zip(X.tolist(), Y, strict=True)
    ]
    path.write_text("\n".join([",".join([*(NAMES[at] for at in order), "label"]), *rows]) + "\n")
    return str(path)


def test_a_plan_for_a_table_states_its_features_and_a_site_is_checked_against_them(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from fedcap.cli.federate.operator import plan_like
    from fedcap.federation.checks import check_site
    from fedcap.federation.config import INVITATION, Federation, Invitation, Operator
    from fedcap.federation.setup import set_up_operator, set_up_site

    table = {"name": write_csv(tmp_path / "operator.csv", 0, 1, 2), "standardise": True}
    plan = plan_like("trial", {"dataset": table, "method": "fedavg", "training": {"lr": 0.1}})
    assert plan.features == NAMES
    assert plan.means == pytest.approx(mean.tolist(), rel=1e-5)
    assert plan.deviations == pytest.approx(deviation.tolist(), rel=1e-5)
    set_up_operator(tmp_path / "op", Federation(host="localhost"), plan)
    invitation = Invitation.read(Operator(tmp_path / "op").directory / INVITATION)

    def checked(name: str, dataset: dict[str, Any]) -> Any:
        site = set_up_site(tmp_path / name, invitation, {"name": name, "dataset": dataset}).site
        found = {check.what: check for check in check_site(site) if check.what in ("data", "features")}
        return found["data"], found["features"]

    fits, same = checked("oslo", {"name": write_csv(tmp_path / "oslo.csv", 2, 0, 1)})
    assert (fits.ok, same.ok, same.warning) == (True, True, False)
    assert same.message == "the values of 3 features are like those in the plan"
    fits, other = checked("bern", data(tmp_path, 2, 1, 0, features=None))
    assert (fits.ok, other.ok, other.warning) == (True, True, True)
    assert "2 features unlike the operator's samples (age: mean" in other.message
    one = np.where(np.arange(60) % 4 == 0, Y, "ill")
    np.savez(tmp_path / "rome.npz", x=X, y=one, test=(one == "ill") & (np.arange(60) < 20), features=NAMES)
    tested, _ = checked("rome", {"name": str(tmp_path / "rome.npz")})
    assert (tested.ok, tested.warning) == (True, True)
    assert "all test samples are of the class 'ill'" in tested.message
    lacking, _ = checked("bonn", {"name": write_csv(tmp_path / "bonn.csv", 0, 2)})
    assert not lacking.ok
    assert "the data has no column 'dose'" in lacking.message
