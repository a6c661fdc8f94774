"""Whether the files of a run belong together. What does not is an error of one line that says what to do."""

from __future__ import annotations

from fedcap.errors import InputError
from fedcap.records.directory import CHECKPOINT, CONFIG, PROVENANCE, RESULT, ROUNDS, RunDirectory
from fedcap.records.provenance import Provenance
from fedcap.records.result import Result, summarise
from fedcap.records.rounds import RoundRecord
from fedcap.records.settings import Settings


def checked_provenance(directory: RunDirectory, settings: Settings) -> Provenance | None:
    """Return the provenance of the run with these settings, as config.toml has them; none if not started."""
    facts = directory.provenance()
    if facts is None:
        if any((directory.path / name).exists() for name in (ROUNDS, CHECKPOINT, RESULT)):
            raise directory.damaged(PROVENANCE, "is missing")
        return None
    mine = facts.of(settings.digest())
    if mine is None:
        config = directory.path / CONFIG
        raise InputError(
            f"{config} was changed since the run began: it no longer has the digest that {PROVENANCE} knows;"
            f" start a new run with it instead: fedcap run {config}"
        )
    return mine


def checked_rounds(directory: RunDirectory, settings: Settings) -> list[RoundRecord]:
    """Return the records of the rounds played so far."""
    history = directory.rounds()
    if len(history) > settings.rounds:
        raise directory.damaged(ROUNDS, f"has {len(history)} rounds, {CONFIG} only {settings.rounds}")
    return history


def checked_result(directory: RunDirectory, settings: Settings, facts: Provenance) -> Result | None:
    """Return the result, if it follows from the rounds; none if the run has not finished."""
    result = directory.result()
    if result is None or result.rounds in (shorter.rounds for shorter in facts.extended):
        return None
    if result.stopped is None and result.rounds != settings.rounds:
        raise directory.damaged(RESULT, f"counts {result.rounds} rounds, {CONFIG} {settings.rounds}")
    detects = result.fpr is not None
    try:
        expected = summarise(result.history, facts.clients, facts.malicious, detects)
    except ValueError as error:
        raise directory.damaged(ROUNDS, f"has no result: {error}") from None
    if expected != result:
        raise directory.damaged(RESULT, f"is not the result of the rounds in {ROUNDS}")
    return result
