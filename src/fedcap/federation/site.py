"""A site of a federation: it does what an agreed plan asks, with its own samples, and keeps its own model.

`answer` never raises. What the site does not agree to is refused in one line. If something fails here, the
server is told that it failed; why is for the site's own audit alone.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.federation.building import Built
from fedcap.federation.config import POLICY, SiteDirectory
from fedcap.federation.messages import WISHES, Answer, Order
from fedcap.federation.plan import Plan, SitePolicy
from fedcap.federation.site_data import SiteData, load_site_data
from fedcap.federation.site_state import SiteState, StateFolder
from fedcap.training import ModelError, Task, single_thread
from fedcap.training.network import PROCESS_WIDE

LOG = logging.getLogger("fedcap")


class Refusal(Exception):
    """The site does not do what was asked; the server is told why."""


@dataclass(frozen=True)
class Desk:
    """What a site needs to work under one plan."""

    plan: Plan
    built: Built
    data: SiteData
    states: StateFolder


class Site:
    """One site at work. `client` is what it is called in the federation: its random numbers depend on it."""

    def __init__(self, directory: SiteDirectory, client: str) -> None:
        self.directory = directory
        self.client = client
        self._desk: Desk | None = None

    def desk(self, plan: Plan) -> Desk:
        """Return what the site needs for a plan: its samples are loaded and the network is built, once."""
        if self._desk is None or self._desk.plan != plan:
            config = self.directory.config
            data = load_site_data(dict(config.dataset), config.client, config.seed, plan)
            self._desk = Desk(plan, Built.of(plan), data, StateFolder(self.directory.state, plan))
        return self._desk

    def answer(self, order: Order) -> Answer:
        """Do what is asked, or say why not."""
        began = time.perf_counter()
        try:
            with PROCESS_WIDE, single_thread():
                answer = self._answer(order)
        except Exception as error:
            told = isinstance(error, Refusal)
            why = str(error) if told or isinstance(error, InputError | ModelError) else repr(error)
            LOG.warning("%s in round %s refused: %s", order.kind, order.round, why, exc_info=not told)
            self._note("refused", order, why)
            answer = Answer(
                order.nonce,
                order.round,
                refused=why if told else "something failed at this site: its own audit says what",
            )
        return replace(answer, seconds=time.perf_counter() - began)

    def _note(self, event: str, order: Order, reason: str | None = None) -> None:
        """Write down what happened; a full disk must not keep the site from answering."""
        try:
            self.directory.audit.write(event, round=order.round, by="server", reason=reason, order=order.kind)
        except OSError as error:
            LOG.warning("the audit cannot be written: %s", error)

    def _answer(self, order: Order) -> Answer:
        plan = self.directory.plans().get(order.plan)
        if plan is None:
            raise Refusal(f"this site has not agreed to the plan {order.plan[:12]}")
        policy = SitePolicy.read(self.directory.directory / POLICY)
        objection = policy.objection(plan) or policy.objection_to(order)
        if objection is not None:
            raise Refusal(objection)
        if order.round > plan.rounds:
            raise Refusal(f"round {order.round}: the plan has {plan.rounds}")
        desk = self.desk(plan)
        samples = len(desk.data.local.train)
        if order.kind == "hello":
            wishes = WISHES if self.directory.wish.exists() else ()
            return Answer(order.nonce, order.round, samples=samples, extra=wishes)
        models = _models(order, plan)
        match order.kind:
            case "request":
                answer = self._request(order, desk, models)
            case "train":
                answer = self._train(order, desk, models, policy.accuracy)
            case "customise":
                answer = self._customise(order, desk, models, policy.accuracy)
        tested = len(desk.data.local.test) if policy.accuracy else 0
        return replace(answer, samples=samples, tested=0 if order.kind == "request" else tested)

    def _request(self, order: Order, desk: Desk, models: Tensor) -> Answer:
        """Train an update from the model, to be compared by; the site's state stays as it is."""
        if len(models) != 1:
            raise Refusal(f"a request is trained from one model, not {len(models)}")
        task = Task("request", self.client, order.round)
        result = desk.built.runner.run(task, desk.data.local, models, desk.built.first_state)
        assert result.update is not None
        return Answer(order.nonce, order.round, result.update.clone().numpy())

    def _train(self, order: Order, desk: Desk, models: Tensor, test: bool) -> Answer:
        """Take part in a round, and keep the new state."""
        own = desk.states.before(order.round).kept or desk.built.first_state
        task = Task("train", self.client, order.round, evaluate=test)
        result = desk.built.runner.run(task, desk.data.local, models, own)
        if not result.is_finite:
            raise Refusal("training came to weights that are not finite")
        assert result.update is not None
        assert result.state is not None
        update = result.update.clone().numpy() if desk.built.method.shares else None
        desk.states.save(SiteState(order.round, result.state, result.received, desk.data.scaling))
        return Answer(
            order.nonce,
            order.round,
            update,
            extra=result.feedback,
            shared_correct=result.received_correct,
            personal_correct=result.personal_correct,
        )

    def _customise(self, order: Order, desk: Desk, models: Tensor, test: bool) -> Answer:
        """Keep a model that was made for this site, until it takes part in a round."""
        state = desk.states.last() or SiteState()
        own = state.kept or desk.built.first_state
        task = Task("evaluate", self.client, order.round, evaluate=test, has_personal=False)
        result = desk.built.runner.run(task, desk.data.local, models, own)
        if result.received is None:
            raise Refusal("no model came")
        number = max(order.round, state.round)
        desk.states.save(replace(state, round=number, received=result.received, scaling=desk.data.scaling))
        self._note("customised", order)
        return Answer(order.nonce, order.round, shared_correct=result.received_correct)


def _models(order: Order, plan: Plan) -> Tensor:
    """Return the models of an order, k×D; refuse those that are not the plan's, or not finite."""
    models = torch.from_numpy(np.require(order.models, np.float32, ["C", "W"]))
    if len(models) and models.shape[1] != plan.weights:
        raise Refusal(f"models of {models.shape[1]:,} weights: the plan's have {plan.weights:,}")
    if not bool(models.isfinite().all()):
        raise Refusal("the models that came are not finite")
    return models
