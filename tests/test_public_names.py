"""The names that `fedcap` exports, and the one-line summary of each named thing."""

import pytest

import fedcap
from fedcap import aggregators, attacks, data, detection, experiments, methods, models, trackers
from fedcap.data import partitions
from fedcap.registry import Registry

PACKAGES = (aggregators, attacks, data, detection, methods, models, partitions, trackers)


@pytest.mark.parametrize(
    "registry",
    [*(package.registry for package in PACKAGES), detection.policies],
    ids=lambda registry: registry.kind,
)
def test_each_named_thing_has_a_summary_that_fits_the_terminal(registry: Registry[object]) -> None:
    assert registry.names()
    for name in registry.names():
        assert 20 < len(registry.summary(name)) <= 105, name


def test_each_public_name_can_be_imported() -> None:
    assert dir(fedcap) == sorted(fedcap.__all__)
    for package in (fedcap, experiments):
        for name in package.__all__:
            assert getattr(package, name) is not None
    assert "norm" in fedcap.detectors.names()
