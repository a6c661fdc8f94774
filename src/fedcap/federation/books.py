"""A federation's run directory: the files that a simulated run has, so every table and report works on it.

A round's line is on disk before the checkpoint that includes it, and the checkpoint makes the round count.
Whenever the server is killed, at most the round under way is lost.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch

from fedcap.errors import InputError
from fedcap.federation.plan import Plan
from fedcap.files import write_aside
from fedcap.products import chosen_products
from fedcap.runs import (
    CHECKPOINT,
    RESULT,
    ROUNDS,
    Mixing,
    Provenance,
    RoundRecord,
    RunDirectory,
    Settings,
    checked_provenance,
    summarise,
)
from fedcap.runs.checkpoint import About, pack, read_checkpoint
from fedcap.server.server import Server
from fedcap.state import names_to_tensor, owned, under

PACKAGES = ("fedcap", "torch", "numpy", "scikit-learn")


class Books:
    """Keeps the rounds of one plan, and puts a server back where it stood. Needs the directory's lock."""

    def __init__(self, directory: RunDirectory, plan: Plan) -> None:
        self.directory = directory
        self._plan = plan
        self._facts: Provenance | None = None

    def open(self, server: Server) -> list[RoundRecord]:
        """Bring the server to where the last checkpoint left it, and return the rounds up to there."""
        directory, plan = self.directory, self._plan
        held = directory.settings()
        known = checked_provenance(directory, held) if held else None
        if known is not None and known.course != plan.course:
            raise InputError(
                f"{directory.path} holds another federation, with another method, network, training or seed:"
                " start a new one in another directory"
            )
        if held is not None and held.rounds > plan.rounds:
            raise InputError(
                f"{directory.path} is a federation of {held.rounds} rounds: it can be extended, not cut to"
                f" {plan.rounds}"
            )
        done = self._restore(server)
        history = directory.rounds(done)
        if not len(history) == done == server.round:
            raise directory.damaged(ROUNDS, f"has {len(history)} rounds, the checkpoint {done}")
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
        directory.rewrite_rounds(directory.lines()[:done])
        return history

    def _restore(self, server: Server) -> int:
        """Load the last checkpoint, if there is one, and return how many rounds it covers."""
        directory, plan = self.directory, self._plan
        if not directory.checkpoint.exists():
            return 0
        about, tensors = read_checkpoint(directory, plan.course)
        if about.layout != plan.layout:
            raise directory.damaged(CHECKPOINT, "is of a network whose weights lie otherwise")
        try:
            server.load_state_dict(owned("server", tensors))
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise directory.damaged(CHECKPOINT, f"is of another version: {error!r}") from None
        return about.round

    def close_round(self, record: RoundRecord, server: Server, mixing: Mixing | None = None) -> None:
        """Write a round down; it counts, and can no longer be lost, once this returns."""
        clients = list(server.clients)
        if self._facts is not None and self._facts.clients != clients:
            self._facts = replace(self._facts, clients=clients)
            self.directory.write_provenance(self._facts)
        self.directory.append(record, mixing)
        tensors = {**under("server", server.state_dict()), "clients.clients": names_to_tensor([])}
        about = About(record.round, self._plan.layout, self._plan.course)
        write_aside(self.directory.checkpoint, pack(about, tensors))

    def finish(self, history: Sequence[RoundRecord], server: Server) -> bool:
        """Write the result, if any site told how accurate it is in the last round; whether that was news."""
        if (self.directory.path / RESULT).exists():
            return False
        if history and history[-1].accuracy is not None:
            detects = server.method.detects
            self.directory.write_result(summarise(history, list(server.clients), (), detects))
        return True


def _settings(plan: Plan) -> dict[str, Any]:
    """Return a plan as the settings of a run; the sites' data go by the plan's name."""
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
