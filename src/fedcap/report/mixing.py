"""The map of mixing weights: clients × clients, with similar clients next to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcap.errors import plural
from fedcap.report.model import MixingMap
from fedcap.report.pack import SizeLimit
from fedcap.runs import Mixing

MAX_ROWS = 150
"""How many rows a map may have; with more clients, similar ones share a row."""
MAX_OPTIMAL = 300
"""Up to this many clients the order of the leaves is optimal, which takes n³ steps."""


def mixing_map(
    mixings: Sequence[Mixing], clients: Sequence[str], entropies: Mapping[int, float | None], limit: SizeLimit
) -> MixingMap | None:
    """Return the map of these rounds, None without any. `entropies` are those of all rounds."""
    place = {client: at for at, client in enumerate(clients)}
    seen = {name for mixing in mixings for name in (*mixing.receivers, *mixing.contributors)} & place.keys()
    if not seen:
        return None
    present = sorted(place[name] for name in seen)
    row = {clients[at]: number for number, at in enumerate(present)}
    square = np.stack([_square(mixing, row) for mixing in mixings])
    order = order_by_similarity(square)
    size = -(-len(order) // MAX_ROWS)
    blocks = [order[start : start + size] for start in range(0, len(order), size)]
    if size > 1:
        many = plural(len(order), "client")
        limit.note(f"Mixing weights: {many} share {len(blocks)} rows, up to {size} similar clients in each.")
    limit.note("Mixing weights are rounded to a 200th of the largest weight.")
    return MixingMap(
        rounds=[mixing.round for mixing in mixings],
        rows=[[present[at] for at in block] for block in blocks],
        weights=square[:, order][:, :, order] if size == 1 else _merged(square, blocks),
        entropy=[entropies.get(mixing.round) for mixing in mixings],
    )


def order_by_similarity(square: np.ndarray) -> list[int]:
    """Return an order of the C rows of T×C×C weights in which similar clients are next to each other.

    The similarity of two clients is their mean weight in each other's models; it is 0 for clients that never
    took part in the same round. The order is that of the leaves of a tree by average linkage.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    count = square.shape[1]
    if count < 3:
        return list(range(count))
    known = np.isfinite(square)
    total = np.where(known, square, 0.0).sum(axis=0, dtype=float)
    total, times = total + total.T, known.sum(axis=0) + known.sum(axis=0).T
    similarity = np.divide(total, times, out=np.zeros((count, count)), where=times > 0)
    np.fill_diagonal(similarity, 0.0)
    distances = squareform(similarity.max() - similarity, checks=False)
    tree = linkage(distances, method="average")
    if count <= MAX_OPTIMAL:
        tree = optimal_leaf_ordering(tree, distances)
    return [int(leaf) for leaf in leaves_list(tree)]


def _square(mixing: Mixing, row: dict[str, int]) -> np.ndarray:
    """Return the weights of a round, C×C, with NaN for clients that did not take part."""
    made = np.full((len(row), len(row)), np.nan, dtype=np.float32)
    receivers = [at for at, name in enumerate(mixing.receivers) if name in row]
    contributors = [at for at, name in enumerate(mixing.contributors) if name in row]
    rows = [row[mixing.receivers[at]] for at in receivers]
    columns = [row[mixing.contributors[at]] for at in contributors]
    made[np.ix_(rows, columns)] = mixing.weights[np.ix_(receivers, contributors)]
    return made


def _merged(square: np.ndarray, blocks: Sequence[Sequence[int]]) -> np.ndarray:
    """Return T×G×G: the total weight of a column's clients in the models of a row's clients, on average."""
    known = np.isfinite(square)
    into = np.zeros((square.shape[1], len(blocks)), dtype=np.float32)
    for number, block in enumerate(blocks):
        into[block, number] = 1
    receives = known.any(axis=2).astype(np.float32)  # T×C
    sums = into.T @ np.where(known, square, 0) @ into
    receivers = (receives @ into)[:, :, None]
    present = (into.T @ known.astype(np.float32) @ into) > 0
    return np.where(present, sums / np.maximum(receivers, 1), np.nan)
