"""The rounds of a run as tidy rows: one for each round and client."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from fedcap.records.rounds import RoundRecord

Cell = str | bool | int | float | None
COLUMNS = (
    "round",
    "client",
    "malicious",
    "took_part",
    "asked",
    "shared",
    "personal",
    "refused",
    "removed",
)
"""The columns that every run has; each score of the detectors is one more, before the last two."""


def tidy_rows(
    rounds: Sequence[RoundRecord], clients: Sequence[str], malicious: Collection[str]
) -> list[dict[str, Cell]]:
    """Return a row for each round and client.

    Accuracies are in percent, and none where a client was not tested. `refused` and `removed` say why, in
    the round in which it happened.
    """
    columns = score_columns(rounds)
    return [row for record in rounds for row in _rows(record, clients, malicious, columns)]


def score_columns(rounds: Sequence[RoundRecord]) -> dict[str, str]:
    """Return each score's column: its name, unless another column is called so."""
    names = dict.fromkeys(name for record in rounds for name in record.scores)
    return {name: f"score_{name}" if name in COLUMNS else name for name in names}


def all_columns(rounds: Sequence[RoundRecord]) -> list[str]:
    """Return all columns, in order."""
    return [*COLUMNS[:-2], *score_columns(rounds).values(), *COLUMNS[-2:]]


def _rows(
    record: RoundRecord, clients: Sequence[str], malicious: Collection[str], columns: Mapping[str, str]
) -> Iterator[dict[str, Cell]]:
    took_part, asked = set(record.participants), set(record.asked)
    for client in clients:
        tested = record.accuracy.clients.get(client) if record.accuracy is not None else None
        reason = record.removed.get(client)
        yield {
            "round": record.round,
            "client": client,
            "malicious": client in malicious,
            "took_part": client in took_part,
            "asked": client in asked,
            "shared": None if tested is None else tested.shared,
            "personal": None if tested is None else tested.personal,
            **{column: record.scores.get(name, {}).get(client) for name, column in columns.items()},
            "refused": record.refused.get(client),
            "removed": None if reason is None else str(reason),
        }
