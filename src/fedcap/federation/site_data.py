"""The samples of a site, and the operator's root set, in the form of the plan's network.

A site has a whole data set, or the part of one client of a data set. Labels are matched to the plan's classes
by name, and a site need not have samples of every class. If the
plan lists categories, a site's table is prepared with them and with the medians of its own training samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedcap import data
from fedcap.data import Dataset, FederatedData, Scaling, Source
from fedcap.data.encoding import width
from fedcap.data.partitioning import draw_root
from fedcap.data.partitions import Partition
from fedcap.data.tables import listed, places_of
from fedcap.errors import InputError, nearest, warn_once
from fedcap.federation.plan import Plan
from fedcap.runs import overlay
from fedcap.state import Samples
from fedcap.training import LocalData

ALL = "all"
FAR, WIDE = 3.0, 5.0
"""A feature is unusual if its mean differs from the plan's by more than this number of deviations, or if one
deviation is this many times as large as the other."""


@dataclass(frozen=True)
class Whole(Partition):
    """All samples go to one client."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Return the indices of all samples."""
        return [torch.arange(len(labels))]


@dataclass(frozen=True)
class SiteData:
    """The training and test samples of a site, and how its inputs were prepared, if they were."""

    local: LocalData
    scaling: Scaling | None
    medians: Tensor | None = None
    """The medians of the columns of its training samples, if its table has missing values or categories."""


def load_site_data(dataset: Mapping[str, Any], client: str | None, seed: int, plan: Plan) -> SiteData:
    """Load a data set, or the part of one of its clients; what does not fit the plan is an `InputError`."""
    source = _source(dataset, plan)
    loaded = _fitting(source.load(), plan)
    if client is None:
        share = source.train_share
        federated = source.prepared(
            replace(data.federate(loaded, Whole(), 1, None, share, seed), names=(ALL,))
        )
    else:
        federated = data.federate_source(source, loaded, seed)
    name = ALL if client is None else client
    if name not in federated.names:
        raise InputError(
            f"the data set has no client {name!r}: {nearest(name, federated.names)}",
            code="unknown-client",
            field="client",
        )
    at = federated.names.index(name)
    local = LocalData(federated.train[at].to("cpu"), federated.test[at].to("cpu"))
    return SiteData(local, federated.scaling.get(name), federated.medians.get(name))


def load_root(dataset: Mapping[str, Any], count: int, plan: Plan) -> Samples:
    """Load the operator's root set: as many samples as the method wants, or all if there are fewer."""
    source = _source(dataset, plan)
    loaded = _fitting(source.load(), plan)
    labels = loaded.samples.y
    chosen = torch.arange(len(labels))
    if len(labels) > count:
        chosen = draw_root(labels, chosen[:0], lambda: [], count, plan.seed)
    part = loaded.take(chosen)
    data = FederatedData((ALL,), [(part, part)], len(plan.classes), "", "", levels=loaded.levels)
    return source.prepared(data).train[0].to("cpu")


def feature_statistics(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """Return the mean and the deviation of each feature, or of each channel of images and signals."""
    x = dataset.take(torch.arange(len(dataset.samples))).x.double()
    axes = (0, *range(2, x.ndim))
    deviation, mean = torch.std_mean(x, dim=axes, correction=0)
    return mean, deviation


def unusual_features(dataset: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return a sentence for each feature of a site whose values differ strongly from those in the plan."""
    if plan.means is None or plan.deviations is None:
        return []
    mean, deviation = feature_statistics(_fitting(_source(dataset, plan).load(), plan))
    there, spread = torch.tensor(plan.means).double(), torch.tensor(plan.deviations).double()
    if mean.shape != there.shape or spread.shape != there.shape:
        raise InputError(
            "means and deviations in the plan must have one number for each feature", code="data"
        )
    widest = torch.maximum(deviation, spread)
    far = (mean - there).abs() > FAR * widest
    other = (deviation > WIDE * spread) | (spread > WIDE * deviation)
    names = plan.features or [f"{at}" for at in range(len(there))]
    return [
        f"{names[at]}: mean {mean[at]:.4g} and deviation {deviation[at]:.4g} here,"
        f" {there[at]:.4g} and {spread[at]:.4g} in the plan"
        for at in (far | other).nonzero().flatten().tolist()
    ]


def _source(dataset: Mapping[str, Any], plan: Plan) -> Source:
    """Return the source of a site's data, which prepares tables as the plan says."""
    table = data.table(dict(dataset))
    source: Any = data.registry.get(table["name"])
    table = overlay(source.suggest(table).get("dataset", {}), table)
    if plan.integers:
        table["integers"] = True
    if plan.levels is not None:
        if "levels" not in data.registry.options(table["name"]):
            raise InputError(
                "the plan lists categories of columns: give the site's data as a CSV file", code="data"
            )
        table |= {"prepare": "auto", "levels": plan.levels}
    return data.registry.build(table)


def _fitting(dataset: Dataset, plan: Plan) -> Dataset:
    """Return the data set with the plan's classes and its order of features; refuse one that does not fit."""
    if dataset.levels and plan.levels is None:
        raise InputError(
            "dataset.prepare needs categories that are common to all sites, and the plan lists none: ask the"
            " operator for a plan with levels, or give a table of numbers",
            code="data",
            field="prepare",
        )
    if dataset.integers != bool(plan.integers):
        raise InputError(
            "the site keeps integers (dataset.integers), and the plan does not: the data do not fit",
            code="data",
        )
    if plan.features and dataset.features:
        places = places_of("the data", plan.features, dataset.features)
        x = dataset.samples.x[:, places]
        dataset = replace(
            dataset,
            samples=Samples(x, dataset.samples.y),
            features=plan.features,
            levels=tuple(dataset.levels[place] for place in places) if dataset.levels else (),
        )
    elif plan.features:
        warn_once(f"the data name no columns: they must be, in order, {listed(plan.features)}")
    shape = (width(dataset.levels),) if dataset.levels else tuple(dataset.samples.x.shape[1:])
    if shape != plan.shape or dataset.pixels != plan.pixels:
        here, there = (
            f"{'×'.join(map(str, size))} {'bytes' if pixels else 'numbers'}"
            for size, pixels in ((shape, dataset.pixels), (plan.shape, plan.pixels))
        )
        raise InputError(
            f"one input is {here} here, and {there} in the plan: the data do not fit", code="data"
        )
    for name in dataset.class_names:
        if name not in plan.classes:
            raise InputError(
                f"the data have a class {name!r} that the plan does not have: {nearest(name, plan.classes)}",
                code="data",
            )
    classes = torch.tensor([plan.classes.index(name) for name in dataset.class_names])
    samples = Samples(dataset.samples.x, classes[dataset.samples.y])
    return replace(dataset, samples=samples, class_names=plan.classes)
