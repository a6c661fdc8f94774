"""A site of a federation: it carries out the orders of an agreed plan with its own samples, and keeps its own
model.

`answer` never raises. The site refuses what it does not agree to with one line. If something fails at the
site, the server learns only that it failed; the reason is in the site's own audit. Between rounds, a site
keeps its client state and the last model that it received on its own disk, for the last two rounds it took
part in. A round that is played again, because the server gave it up or was killed, starts from the state
before it, so no round is trained twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedcap.data import Scaling
from fedcap.errors import InputError
from fedcap.federation.build import Built
from fedcap.federation.config import POLICY, SiteDirectory
from fedcap.federation.messages import WISHES, Answer, Malformed, Order
from fedcap.federation.plan import Plan, SitePolicy
from fedcap.federation.site_data import SiteData, load_site_data
from fedcap.files import write_aside
from fedcap.runs.checkpoint import About, pack, unpack
from fedcap.state import Tensors, owned, under
from fedcap.training import ModelError, Task, single_thread
from fedcap.training.network import PROCESS_WIDE

LOG = logging.getLogger("fedcap")
FAILED = "something failed at this site: its own audit says what"
GENERATIONS = 2
"""How many states of a site stay on disk."""
SUFFIX = ".safetensors"


class Refusal(Exception):
    """The site does not carry out an order, for a reason that the server may know."""


@dataclass(frozen=True)
class Prepared:
    """What a site has loaded and built for one plan."""

    plan: Plan
    built: Built
    data: SiteData
    states: StateFolder


class Site:
    """One site at work. `client` is its name in the federation, on which its random numbers depend."""

    def __init__(self, directory: SiteDirectory, client: str) -> None:
        self.directory = directory
        self.client = client
        self.is_finished = False
        """Whether the server has reported that all rounds are done."""
        self._prepared: Prepared | None = None

    def prepare(self, plan: Plan) -> Prepared:
        """Load the samples and build the network for a plan, once."""
        if self._prepared is None or self._prepared.plan != plan:
            config = self.directory.config
            data = load_site_data(dict(config.dataset), config.client, config.seed, plan)
            self._prepared = Prepared(plan, Built.of(plan), data, StateFolder(self.directory.state, plan))
        return self._prepared

    def answer(self, order: Order) -> Answer:
        """Carry out an order, or refuse it."""
        began = time.perf_counter()
        try:
            with PROCESS_WIDE, single_thread():
                answer = self._answer(order)
        except Exception as error:
            is_refusal = isinstance(error, Refusal)
            why = str(error) if is_refusal or isinstance(error, InputError | ModelError) else repr(error)
            LOG.warning("%s in round %s refused: %s", order.kind, order.round, why, exc_info=not is_refusal)
            self._note("refused", order, why)
            answer = Answer(
                order.nonce,
                order.round,
                refused=why if is_refusal else FAILED,
            )
        return replace(answer, seconds=time.perf_counter() - began)

    def _note(self, event: str, order: Order, reason: str | None = None) -> None:
        """Write an event; a full disk must not keep the site from answering."""
        try:
            self.directory.audit.write(event, round=order.round, by="server", reason=reason, order=order.kind)
        except OSError as error:
            LOG.warning("the audit cannot be written: %s", error)

    def _answer(self, order: Order) -> Answer:
        plan = self.directory.plans().get(order.plan)
        if plan is None:
            raise Refusal(f"this site has not agreed to the plan {order.plan[:12]}")
        policy = SitePolicy.read(self.directory.directory / POLICY)
        objection = policy.objection(plan, order.models.nbytes)
        if objection is not None:
            raise Refusal(objection)
        if order.round > plan.rounds:
            raise Refusal(f"round {order.round}: the plan has {plan.rounds}")
        prepared = self.prepare(plan)
        samples = len(prepared.data.local.train)
        if order.kind == "hello":
            wishes = WISHES if self.directory.wish.exists() else ()
            return Answer(order.nonce, order.round, samples=samples, feedback=wishes)
        if order.kind == "finished":
            if not self.is_finished:
                self._note("finished", order)
            self.is_finished = True
            return Answer(order.nonce, order.round)
        models = _models(order, plan)
        match order.kind:
            case "request":
                answer = self._request(order, prepared, models)
            case "train":
                answer = self._train(order, prepared, models, policy.accuracy)
            case "customise":
                answer = self._customise(order, prepared, models, policy.accuracy)
        tested = len(prepared.data.local.test) if policy.accuracy else 0
        return replace(answer, samples=samples, tested=0 if order.kind == "request" else tested)

    def _request(self, order: Order, prepared: Prepared, models: Tensor) -> Answer:
        """Train an update from the model, for comparison only; the site's state does not change."""
        if len(models) != 1:
            raise Refusal(f"a request is trained from one model, not {len(models)}")
        task = Task("request", self.client, order.round)
        result = prepared.built.runner.run(task, prepared.data.local, models, prepared.built.first_state)
        assert result.update is not None
        return Answer(order.nonce, order.round, result.update.clone().numpy())

    def _train(self, order: Order, prepared: Prepared, models: Tensor, test: bool) -> Answer:
        """Take part in a round, and keep the new state."""
        self.is_finished = False
        own = prepared.states.before(order.round).kept or prepared.built.first_state
        task = Task("train", self.client, order.round, evaluate=test)
        result = prepared.built.runner.run(task, prepared.data.local, models, own)
        if not result.is_finite:
            raise Refusal("training led to weights that are not finite")
        assert result.update is not None
        assert result.state is not None
        update = result.update.clone().numpy() if prepared.built.method.shares else None
        data = prepared.data
        correct = {"personal": result.personal_correct, "shared": result.received_correct}
        accuracy = _percent(correct, len(data.local.test))
        prepared.states.save(
            SiteState(order.round, result.state, result.received, data.scaling, accuracy, data.medians)
        )
        return Answer(
            order.nonce,
            order.round,
            update,
            feedback=result.feedback,
            shared_correct=result.received_correct,
            personal_correct=result.personal_correct,
        )

    def _customise(self, order: Order, prepared: Prepared, models: Tensor, test: bool) -> Answer:
        """Keep a model that was made for this site, until it takes part in a round."""
        state = prepared.states.last() or SiteState()
        own = state.kept or prepared.built.first_state
        task = Task("evaluate", self.client, order.round, evaluate=test, has_personal=False)
        result = prepared.built.runner.run(task, prepared.data.local, models, own)
        if result.received is None:
            raise Refusal("the order has no model")
        number = max(order.round, state.round)
        correct = {"shared": result.received_correct}
        if not state.kept:  # then it is the personal model, too
            correct["personal"] = result.received_correct
        accuracy = {**state.accuracy, **_percent(correct, len(prepared.data.local.test))}
        by = prepared.data.scaling
        prepared.states.save(
            replace(
                state,
                round=number,
                received=result.received,
                scaling=by,
                accuracy=accuracy,
                medians=prepared.data.medians,
            )
        )
        self._note("customised", order)
        return Answer(order.nonce, order.round, shared_correct=result.received_correct)


def respond(site: Site, message: bytes) -> bytes:
    """Return a site's answer to a message."""
    try:
        return site.answer(Order.from_bytes(message)).to_bytes()
    except Malformed as error:
        return Answer("", 0, refused=f"the order is malformed: {error}").to_bytes()


def _percent(correct: Mapping[str, int | None], tests: int) -> dict[str, float]:
    """Return the accuracy of each model whose correct answers were counted."""
    return {name: 100 * count / tests for name, count in correct.items() if count is not None and tests}


def _models(order: Order, plan: Plan) -> Tensor:
    """Return the models of an order, k×D; refuse those that are not the plan's, or not finite."""
    models = torch.from_numpy(np.require(order.models, np.float32, ["C", "W"]))
    if len(models) and models.shape[1] != plan.weights:
        raise Refusal(f"models of {models.shape[1]:,} weights: the plan's have {plan.weights:,}")
    if not bool(models.isfinite().all()):
        raise Refusal("the models of the order are not finite")
    return models


# --- The state between rounds


@dataclass(frozen=True)
class SiteState:
    """A site's state after a round."""

    round: int = 0
    kept: Tensors = field(default_factory=dict)
    """The client state of the method, which includes `personal`; empty if the site never trained."""
    received: Tensor | None = None
    """D: the last model that the site received."""
    scaling: Scaling | None = None
    """How the inputs are standardised, if they are."""
    accuracy: Mapping[str, float] = field(default_factory=dict)
    """The accuracy of its models (personal, shared) on its test samples, in percent, if measured."""
    medians: Tensor | None = None
    """The medians of a table's columns, which replace missing numbers, if the table is prepared."""


def newest(directory: SiteDirectory) -> tuple[Plan, SiteState]:
    """Return a site's last state and its plan; if there is none, raise an `InputError`."""
    folders = [(plan, StateFolder(directory.state, plan)) for plan in directory.plans().values()]
    states = [(folder.changed(), plan, folder) for plan, folder in folders if folder.rounds()]
    if not states:
        raise InputError(
            f"{directory.directory} has no model yet: the site has taken part in no round", code="no-model"
        )
    _, plan, folder = max(states, key=lambda found: found[0])
    state = folder.last()
    assert state is not None
    return plan, state


class StateFolder:
    """A site's states under one plan, in `folder/<the plan's course>/round-<n>.safetensors`."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.path = folder / plan.course[:16]
        self._layout, self._course = plan.layout, plan.course

    def rounds(self) -> list[int]:
        """Return the rounds that have a state, oldest first."""
        names = (path.name for path in self.path.glob(f"round-*{SUFFIX}"))
        found = (name.removeprefix("round-").removesuffix(SUFFIX) for name in names)
        return sorted(int(number) for number in found if number.isdecimal())

    def changed(self) -> float:
        """Return when the last state was written."""
        return self._file(self.rounds()[-1]).stat().st_mtime

    def before(self, number: int) -> SiteState:
        """Return the state before a round; it is empty if the round is the site's first.

        If the server went back further than the site's states, it is the oldest one.
        """
        rounds = self.rounds()
        earlier = [past for past in rounds if past < number]
        if not earlier and number > 1 and len(rounds) == GENERATIONS:
            earlier = rounds[:1]
        return self._read(earlier[-1]) if earlier else SiteState()

    def last(self) -> SiteState | None:
        """Return the state after the last round, or none if there was no round."""
        rounds = self.rounds()
        return self._read(rounds[-1]) if rounds else None

    def save(self, state: SiteState) -> None:
        """Write a state; it is on disk when this returns. States before the last two are deleted."""
        tensors = under("kept", state.kept)
        if state.received is not None:
            tensors["received"] = state.received
        if state.scaling is not None:
            tensors |= under("scaling", {"mean": state.scaling.mean, "deviation": state.scaling.deviation})
        tensors |= under(
            "accuracy",
            {name: torch.tensor(value, dtype=torch.float64) for name, value in state.accuracy.items()},
        )
        if state.medians is not None:
            tensors["scaling.median"] = state.medians
        self.path.mkdir(parents=True, exist_ok=True)
        write_aside(self._file(state.round), pack(About(state.round, self._layout, self._course), tensors))
        for past in self.rounds():
            if past > state.round:  # the server has gone back to before this round
                self._file(past).unlink()
        for past in self.rounds()[:-GENERATIONS]:
            self._file(past).unlink()

    def _read(self, number: int) -> SiteState:
        path = self._file(number)
        try:
            about, tensors = unpack(path)
        except InputError as error:
            raise InputError(
                f"{path} {error}; move it away to go on from the round before", code="damaged"
            ) from None
        if (about.round, about.layout, about.course) != (number, self._layout, self._course):
            raise InputError(
                f"{path} is not of this round and plan; move it away to go on without", code="other-plan"
            )
        scaling = owned("scaling", tensors)
        return SiteState(
            number,
            owned("kept", tensors),
            tensors.get("received"),
            Scaling(scaling["mean"], scaling["deviation"]) if "mean" in scaling else None,
            {name: float(value) for name, value in owned("accuracy", tensors).items()},
            scaling.get("median"),
        )

    def _file(self, number: int) -> Path:
        return self.path / f"round-{number:06d}{SUFFIX}"
