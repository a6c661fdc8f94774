"""The map of mixing weights: clients × clients, those who draw on each other as neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcap.errors import plural
from fedcap.report.story.series import MixingMap
from fedcap.report.story.thinning import Thinning
from fedcap.runs import Mixing

MOST_ROWS = 150
"""How many rows a map has; of more clients, neighbours share one."""
MOST_ORDERED = 300
"""Up to so many clients, branches are turned so that neighbours are as like as can be: it takes n³ steps."""


def mixing_map(
    mixings: Sequence[Mixing], clients: Sequence[str], entropies: Mapping[int, float | None], thin: Thinning
) -> MixingMap | None:
    """Return the map of these rounds; none if there are none. `entropies` are those of all rounds."""
    place = {client: at for at, client in enumerate(clients)}
    seen = {name for mixing in mixings for name in (*mixing.receivers, *mixing.contributors)} & place.keys()
    if not seen:
        return None
    there = sorted(place[name] for name in seen)
    row = {clients[at]: number for number, at in enumerate(there)}
    square = np.stack([_square(mixing, row) for mixing in mixings])
    order = order_by_likeness(square)
    size = -(-len(order) // MOST_ROWS)
    blocks = [order[start : start + size] for start in range(0, len(order), size)]
    if size > 1:
        many = plural(len(order), "client")
        thin.say(f"Mixing weights: {many} are in {len(blocks)} rows of up to {size} neighbours.")
    thin.say("Mixing weights are exact to a 200th of the largest of all.")
    return MixingMap(
        rounds=[mixing.round for mixing in mixings],
        rows=[[there[at] for at in block] for block in blocks],
        weights=square[:, order][:, :, order] if size == 1 else _merged(square, blocks),
        entropy=[entropies.get(mixing.round) for mixing in mixings],
    )


def order_by_likeness(square: np.ndarray) -> list[int]:
    """Return the rows of T×C×C weights in an order in which clients that draw on each other are neighbours.

    Two clients are as like as their mean weight in each other's models. They are joined to a tree by average
    linkage, and the order is that of its leaves. Pairs that never met are the least alike.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    count = square.shape[1]
    if count < 3:
        return list(range(count))
    known = np.isfinite(square)
    total = np.where(known, square, 0.0).sum(axis=0, dtype=float)
    total, times = total + total.T, known.sum(axis=0) + known.sum(axis=0).T
    likeness = np.divide(total, times, out=np.zeros((count, count)), where=times > 0)
    np.fill_diagonal(likeness, 0.0)
    distances = squareform(likeness.max() - likeness, checks=False)
    tree = linkage(distances, method="average")
    if count <= MOST_ORDERED:
        tree = optimal_leaf_ordering(tree, distances)
    return [int(leaf) for leaf in leaves_list(tree)]


def _square(mixing: Mixing, row: dict[str, int]) -> np.ndarray:
    """Return the weights of a round, C×C, with NaN for those who were not there."""
    made = np.full((len(row), len(row)), np.nan, dtype=np.float32)
    receivers = [at for at, name in enumerate(mixing.receivers) if name in row]
    contributors = [at for at, name in enumerate(mixing.contributors) if name in row]
    rows = [row[mixing.receivers[at]] for at in receivers]
    columns = [row[mixing.contributors[at]] for at in contributors]
    made[np.ix_(rows, columns)] = mixing.weights[np.ix_(receivers, contributors)]
    return made


def _merged(square: np.ndarray, blocks: Sequence[Sequence[int]]) -> np.ndarray:
    """Return T×G×G: the weight that all of a column's clients have in the models of a row's, on average."""
    known = np.isfinite(square)
    into = np.zeros((square.shape[1], len(blocks)), dtype=np.float32)
    for number, block in enumerate(blocks):
        into[block, number] = 1
    receives = known.any(axis=2).astype(np.float32)  # T×C
    sums = into.T @ np.where(known, square, 0) @ into
    receivers = (receives @ into)[:, :, None]
    there = (into.T @ known.astype(np.float32) @ into) > 0
    return np.where(there, sums / np.maximum(receivers, 1), np.nan)
