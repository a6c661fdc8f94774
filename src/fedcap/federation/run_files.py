"""The run directory of a federation: the files of a simulated run, so that every table and report works on
it.

A round's line is on disk before the checkpoint that includes it, and the checkpoint makes the round count. If
the server is killed, at most the current round is lost. Accuracies in the record of a round are the sites'
own claims, and nothing depends on them. The trackers that follow a simulation follow a federation in the same
way.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fedcap import __version__
from fedcap.errors import InputError
from fedcap.federation.messages import Answer
from fedcap.federation.plan import Plan
from fedcap.files import write_aside
from fedcap.products import chosen_products
from fedcap.runs import (
    RESULT,
    ROUNDS,
    Accuracy,
    ClientAccuracy,
    History,
    Mixing,
    Provenance,
    RoundRecord,
    RunDirectory,
    Settings,
    checked_provenance,
    summarise,
)
from fedcap.runs.checkpoint import About, pack, unpack
from fedcap.server.server import Server
from fedcap.server.uploads import MEDIANS_BELIEVED
from fedcap.state import names_to_tensor, owned, under
from fedcap.trackers import Tracked, Tracker, Tracking

PACKAGES = ("fedcap", "torch", "numpy", "scikit-learn")


class RunFiles:
    """Writes the rounds of one plan, and restores a server from them; the directory must be locked."""

    def __init__(self, directory: RunDirectory, plan: Plan) -> None:
        self.directory = directory
        self._plan = plan
        self._facts: Provenance | None = None

    def open(self, server: Server) -> History:
        """Restore the server from the last checkpoint, and return the rounds up to there."""
        directory, plan = self.directory, self._plan
        held = directory.settings()
        known = checked_provenance(directory, held) if held else None
        if known is not None and known.course != plan.course:
            raise InputError(
                f"{directory.path} has another federation, with another method, network, training or seed:"
                " start a new one in another directory",
                code="other-course",
            )
        if held is not None and held.rounds > plan.rounds:
            raise InputError(
                f"{directory.path} is a federation of {held.rounds} rounds: it can be extended, not cut to"
                f" {plan.rounds}",
                code="fewer-rounds",
                field="rounds",
            )
        done = self._restore(server, known)
        history = directory.rounds(done)
        if not len(history) == done == server.round:
            raise _damaged(directory.path / ROUNDS, f"has {len(history)} rounds, the checkpoint {done}")
        settings = _settings(plan)
        facts = _facts(plan, Settings.model_validate(settings).digest())
        if known is not None and held is not None and held.rounds < plan.rounds:
            facts = known.extend(facts, held.rounds)
        elif known is not None:
            facts = replace(known, digest=facts.digest)
        self._facts = replace(facts, clients=list(server.clients))
        directory.write_provenance(self._facts)
        directory.write_settings(settings)
        if done < plan.rounds:
            directory.remove_result()
        directory.keep_rounds(done)
        return history

    def _restore(self, server: Server, known: Provenance | None) -> int:
        """Load the last checkpoint, if there is one, and return how many rounds it covers."""
        path, plan = self.directory.checkpoint, self._plan
        if not path.exists():
            return 0
        try:
            about, tensors = unpack(path)
        except InputError as error:
            raise _damaged(path, str(error)) from None
        if (about.layout, about.course) != (plan.layout, plan.course):
            raise _damaged(path, "is of another network or another federation")
        try:
            server.load_state_dict(owned("server", tensors))
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            written = "another version of fedcap" if known is None else f"fedcap {known.versions['fedcap']}"
            raise InputError(
                f"{path} was written by {written}, and fedcap {__version__} cannot read it: finish the"
                f" federation with {written}",
                code="older-state",
                field=str(path),
            ) from error
        return about.round

    def close_round(self, record: RoundRecord, server: Server, mixing: Mixing | None = None) -> None:
        """Write a round; when this returns, the round counts and cannot be lost."""
        clients = list(server.clients)
        if self._facts is not None and self._facts.clients != clients:
            self._facts = replace(self._facts, clients=clients)
            self.directory.write_provenance(self._facts)
        self.directory.append(record, mixing)
        tensors = {**under("server", server.state_dict()), "clients.clients": names_to_tensor([])}
        about = About(record.round, self._plan.layout, self._plan.course)
        write_aside(self.directory.checkpoint, pack(about, tensors))

    def finish(self, history: Sequence[RoundRecord], server: Server) -> bool:
        """Write the result, if a site reported its accuracy in the last round; return whether it is new."""
        if (self.directory.path / RESULT).exists():
            return False
        if history and history[-1].accuracy is not None:
            detects = server.method.detects
            self.directory.write_result(summarise(history, list(server.clients), (), detects))
        return True


def _damaged(path: Path, why: str) -> InputError:
    message = f"{path} {why}: restore the operator's directory from a backup"
    return InputError(message, code="damaged-state", field=str(path))


def _settings(plan: Plan) -> dict[str, Any]:
    """Return a plan as the settings of a run; the plan's name stands for the sites' data."""
    content = plan.model_dump(mode="json", exclude_none=True)
    same = ("model", "participation", "assumed", "rounds", "seed", "training", "method")
    return {
        **{key: content[key] for key in same},
        "malicious": 0.0,
        "eval_every": 1,
        "checkpoint_every": 1,
        "device": "cpu",
        "federation": plan.name,
        "dataset": {"name": plan.name},
        "attack": {"name": "none"},
    }


def _facts(plan: Plan, settings_digest: str) -> Provenance:
    return Provenance(
        versions={
            **{package: version(package) for package in PACKAGES},
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        threads=torch.get_num_threads(),
        products=chosen_products(),
        seed=plan.seed,
        digest=plan.digest,
        data_hash="",
        partition_hash="",
        weights=plan.weights,
        clients=[],
        malicious=[],
        shape=list(plan.shape),
        class_names=list(plan.classes),
        pixels=plan.pixels,
        settings_digest=settings_digest,
        course=plan.course,
    )


# --- What the record of a round says about models and accuracy


def mean_shares(mixing: Mixing | None) -> dict[str, float] | None:
    """Return each client's mean share in the models that are sent in a round, if those are mixtures."""
    if mixing is None:
        return None
    shares = mixing.weights.mean(axis=0).tolist()
    return {client: round(share, 4) for client, share in zip(mixing.contributors, shares, strict=True)}


def reported_accuracy(answers: Mapping[str, Answer], shares: bool) -> Accuracy | None:
    """Return the accuracy over the sites that reported theirs, weighted by test samples; none if no site did.

    A site whose counts are impossible is left out. No site's weight is more than ten medians. `shares` is
    whether the method exchanges models at all.
    """
    counted = {client: answer for client, answer in answers.items() if _is_possible(answer, shares)}
    if not counted:
        return None
    limit = MEDIANS_BELIEVED * median(answer.tested for answer in counted.values())
    shared = personal = total = 0.0
    for answer in counted.values():
        believed = min(1.0, limit / answer.tested)
        shared += believed * (answer.shared_correct or 0)
        personal += believed * (answer.personal_correct or 0)
        total += believed * answer.tested
    clients = {
        client: ClientAccuracy(
            100 * (answer.shared_correct or 0) / answer.tested if shares else None,
            100 * (answer.personal_correct or 0) / answer.tested,
        )
        for client, answer in counted.items()
    }
    return Accuracy(100 * shared / total if shares else None, 100 * personal / total, clients)


def _is_possible(answer: Answer, shares: bool) -> bool:
    counts = [answer.personal_correct, *([answer.shared_correct] if shares else [])]
    return answer.tested > 0 and all(count is not None and 0 <= count <= answer.tested for count in counts)


# --- Trackers


@contextmanager
def tracked(
    plan: Plan, run: Path, history: Sequence[RoundRecord], trackers: Sequence[Tracker]
) -> Iterator[Callable[[RoundRecord], None]]:
    """Yield a function that reports a round after those of `history` to the trackers.

    When the block ends, the trackers get the result of the run, or none if there is none yet.
    """
    directory, tracking = RunDirectory(run), Tracking(trackers)
    settings = directory.settings()
    plain = {} if settings is None else settings.model_dump(exclude_none=True)
    tracking.start(Tracked(plan.name, directory.path, plain, list(history)))
    try:
        yield tracking.log
        tracking.end(directory.result())
    finally:
        tracking.end(None)
