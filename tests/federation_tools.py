"""What the federation's tests share: a whole federation in this process, with real sites on real disks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import fedcap
from fedcap import attacks
from fedcap.federation.audit import Audit, Event
from fedcap.federation.build import propose
from fedcap.federation.config import POLICY, SITE, SiteConfig, SiteDirectory
from fedcap.federation.ledger import Ledger
from fedcap.federation.messages import Answer, Failure, Malformed, Order, Reply
from fedcap.federation.plan import Plan, SitePolicy
from fedcap.federation.rounds import Conductor
from fedcap.federation.site import Site
from fedcap.runs import Named
from fedcap.training import single_thread

DATA: dict[str, Any] = {"name": "digits", "clients": 5, "samples": 30}
TRAINING: dict[str, Any] = {"lr": 0.1, "epochs": 1}
NAMES = tuple("01234")
IPM: dict[str, Any] = {"name": "ipm", "epsilon": 20.0}

Twist = Callable[[Order, Answer], Reply | None]
"""What a malicious site, or a bad line, makes of an honest answer; none if nothing comes."""


def plan_for(method: Any = "fedcap", **more: Any) -> Plan:
    """Return a plan on the embedded digits."""
    given: dict[str, Any] = {"rounds": 3, "least": 2, "deadline": 5.0, **more}
    classes = [str(digit) for digit in range(10)]
    return propose("digits", method, "cnn-digits", classes, (1, 8, 8), TRAINING, **given)


def make_site(
    folder: Path, client: str, plan: Plan, dataset: Mapping[str, Any] = DATA, **policy: Any
) -> Site:
    """Return a site, called as the client whose samples it has, that has agreed to a plan."""
    directory = SiteDirectory(folder / f"site-{client}")
    directory.directory.mkdir(parents=True, exist_ok=True)
    config = SiteConfig(
        name=f"site {client}", server="localhost:9443", dataset=Named(**dataset), client=client
    )
    (directory.directory / SITE).write_text(config.text())
    (directory.directory / POLICY).write_text(SitePolicy(**policy).text())
    directory.agree(plan)
    return Site(directory, client)


@dataclass
class InProcess:
    """A transport that calls the sites one after the other, each over messages packed and unpacked."""

    sites: dict[str, Site] = field(default_factory=dict)
    twists: dict[str, Twist] = field(default_factory=dict)
    ipm: frozenset[str] = frozenset()
    """The clients that attack by inner product manipulation: they see all updates before they send theirs."""
    sent: list[dict[str, Order]] = field(default_factory=list)

    def nodes(self) -> Mapping[str, str]:
        return {client: f"node of {client}" for client in self.sites}

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Mapping[str, Reply]:
        self.sent.append(dict(orders))
        replies: dict[str, Reply] = {}
        for client, order in orders.items():
            answer = self.sites[client].answer(Order.from_bytes(order.to_bytes()))
            try:
                reply = self.twists.get(client, lambda _, honest: honest)(order, answer)
                reply = Answer.from_bytes(reply.to_bytes()) if isinstance(reply, Answer) else reply
            except Malformed as error:
                reply = Failure(str(error))
            if reply is not None:
                replies[client] = reply
        if self.ipm & replies.keys():
            replies |= self._attacked({k: v for k, v in replies.items() if isinstance(v, Answer)})
        return replies

    def _attacked(self, answers: Mapping[str, Answer]) -> dict[str, Reply]:
        updates = torch.stack([torch.from_numpy(answer.update) for answer in answers.values()])
        malicious = torch.tensor([client in self.ipm for client in answers])
        with single_thread():
            crafted = attacks.make(**IPM)(updates, malicious)
        return {
            client: replace(answer, update=row.numpy())
            for (client, answer), row in zip(answers.items(), crafted, strict=True)
        }


@dataclass
class Federation:
    """The operator's side in a folder, and sites around it."""

    folder: Path
    plan: Plan
    transport: InProcess = field(default_factory=InProcess)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.audit = Audit(self.folder / "audit.jsonl")
        self.ledger = Ledger(self.folder / "ledger.json", self.audit)

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def join(self, *clients: str, **policy: Any) -> None:
        """Let sites enrol and come online."""
        for client in clients:
            self.transport.sites[client] = make_site(self.folder, client, self.plan, **policy)
            self.ledger.ask(client, f"site-{client}", f"key of {client}")
            if not self.ledger.entries()[client].allowed:
                self.ledger.approve(client)

    def conductor(self, **more: Any) -> Conductor:
        return Conductor(self.plan, self.run, self.ledger, self.transport, **more)

    def state(self, client: str) -> Any:
        """Return what a site has after its last round, from its disk."""
        site = self.transport.sites[client]
        found = site.prepare(self.plan).states.last()
        assert found is not None
        return found

    def events(self, event: str) -> list[Event]:
        return [found for found in self.audit.events() if found.event == event]


def federation(
    folder: Path, method: Any = "fedcap", clients: tuple[str, ...] = NAMES, **more: Any
) -> Federation:
    """Return a federation whose sites have joined."""
    made = Federation(folder, plan_for(method, **more))
    made.join(*clients)
    return made


def simulation_of(plan: Plan, **more: Any) -> fedcap.Experiment:
    """Return the simulation of a plan, over clients of the same names and data."""
    return fedcap.Experiment(
        dataset=DATA,
        method=plan.method.model_dump(),
        model=plan.model,
        training=plan.training,
        seed=plan.seed,
        rounds=plan.rounds,
        participation=plan.participation,
        assumed=plan.assumed,
        workers=1,
        **more,
    )
