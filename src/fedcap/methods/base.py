"""How an option of a method names a rule, a detector or a policy: by name, by table, or as an object.

What a server sends in a round: models, and which of them go to whom.

What every method is: pure server steps over explicit state, and one step on the client.

A round, whoever drives it (the simulation here, a federation elsewhere):

    asked    = method.asks(state, ids)                       who must first send a request
    dispatch = method.dispatch(state, ids, requests)         which models go to whom
    trained  = method.train(client, received, kept)          on each client
    look     = method.look(state, dispatch, uploads)         what the server sees of the uploads
    verdict  = judge(look, memory)                           who is removed (`detection`)
    state    = method.absorb(state, judged)                  the state after the others' uploads

The state is a dataclass of tensors, so that any method's state can be written to disk and read back. `ids`
are rows of the roster, not identities.

The end of a round as one step over state and memory: look at the uploads, judge, absorb what counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import InstanceOf
from torch import Tensor, nn

from fedcap import fingerprint
from fedcap.aggregators import Aggregator
from fedcap.detection import Detector, Judge, Look, Policy, Verdict, as_policy, make_judge, policies
from fedcap.matrix import Rows
from fedcap.registry import Registry
from fedcap.state import Tensors
from fedcap.training import Layout, LocalClient, Network, Trained

Choice = (
    str
    | dict[str, Any]
    | InstanceOf[Aggregator]
    | InstanceOf[Detector]
    | InstanceOf[Policy]
    | InstanceOf[type[Any]]
)
"""A thing's name, a table of its name and options, an object, or a class."""


class Dispatch:
    """What the server sends: participant n receives the rows `rows[n]` of `models`."""

    def __init__(
        self, ids: Tensor, models: Tensor, rows: Tensor, mixing: Tensor | None = None, fresh: bool = False
    ) -> None:
        self.ids = ids
        """N: rows of the roster, ascending."""
        self._models: Tensor | None = models
        self.rows = rows
        """N×k: k is 1, unless the method sends each client several models, or none."""
        self.mixing = mixing
        """N×P: if participants' models were mixed from a pool of P models, the weights of the mixtures."""
        self._fresh = fresh
        """Whether the models were made for this dispatch alone, so that `hand_over` need not copy them."""

    @classmethod
    def to_all(cls, ids: Tensor, model: Tensor) -> Dispatch:
        """Send everybody the same model, D."""
        return cls(ids, model[None], torch.zeros(len(ids), 1, dtype=torch.long))

    def copy(self) -> Dispatch:
        """Return the same dispatch, to be used up in its place."""
        return Dispatch(self.ids, self.models, self.rows, self.mixing)

    @property
    def models(self) -> Tensor:
        """R×D: the models that are sent."""
        if self._models is None:
            raise RuntimeError("the models of this dispatch were handed over: a round is closed once")
        return self._models

    def hand_over(self, ids: Tensor) -> Tensor:
        """Return the model that each of these participants received, N×D, for the caller to write to.

        If `ids` are all participants, and each had a model made for it alone, the models themselves are
        returned, and can no longer be read from this dispatch. Otherwise they are copied.
        """
        at = torch.searchsorted(self.ids, ids)
        first = self.rows[at, 0]
        if self._fresh and len(at) == len(self.models) and bool((first == torch.arange(len(at))).all()):
            given, self._models = self.models, None
            return given
        return self.models[first.to(self.models.device)]


S = TypeVar("S")


@dataclass(frozen=True)
class Uploads:
    """What came back and was admitted: a row per client, in ascending order of ids."""

    ids: Tensor
    """N: rows of the roster."""
    updates: Tensor
    """N×D."""
    samples: Tensor
    """N sample counts, as claimed and bounded."""
    malicious: int = 0
    """How many rows the server assumes to be malicious; rules that need a number use it."""
    extra: Tensor | None = None
    """N×e: what else the method asked each client for; finite numbers."""
    root: Tensor | None = None
    """D: the update of the server's own root set, for methods that have one."""
    round: int = 1

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, mask: Tensor) -> Uploads:
        """Return the rows for which the mask holds."""
        return replace(
            self,
            ids=self.ids[mask],
            updates=self.updates[mask],
            samples=self.samples[mask],
            extra=None if self.extra is None else self.extra[mask],
        )


@dataclass(frozen=True)
class Judged:
    """A round that was looked at and judged: what was sent, what came back, and whose uploads count."""

    dispatch: Dispatch
    uploads: Uploads
    look: Look
    stay: Tensor
    """N flags: whose upload counts. The others are removed, suspected, or not finite."""
    removed: Tensor
    """Ids of those who were removed for good in this round."""

    @cached_property
    def staying(self) -> Uploads:
        """The uploads that count. Fewer malicious ones are assumed among them, if some were found.

        Found are those who sent no numbers, or are removed; the suspected may be honest.
        """
        if bool(self.stay.all()):
            return self.uploads
        found = int((~self.look.finite | torch.isin(self.look.ids, self.removed)).sum())
        left = max(0, self.uploads.malicious - found)
        return replace(self.uploads.only(self.stay), malicious=left)


@dataclass(frozen=True)
class Pools:
    """The models that a server holds of its clients, if it holds any."""

    ids: Tensor
    """P: whose they are."""
    models: Tensor
    """P×D."""


@dataclass(frozen=True)
class Method(ABC, Generic[S]):
    """A federated method; options are the fields of the dataclass that implements it."""

    state_type: ClassVar[type[Any]]
    """The dataclass of tensors that is the server's state."""
    shares: ClassVar[bool] = True
    """Whether anything goes to the server at all."""
    root_samples: ClassVar[int] = 0
    """How many clean samples, which no client has, the server needs for itself."""

    detectors: Choice | tuple[Choice, ...] = ()
    """Who looks for malicious clients: names of detectors, or tables of names and options."""
    policy: Choice = "strikes"
    """How the detectors' accusations lead to removal."""

    def __post_init__(self) -> None:
        """Build the detectors and the policy at once, so that mistakes in them are found early."""
        _ = self.judge

    @cached_property
    def judge(self) -> Judge | None:
        """The detectors and the policy over them; none if nobody is ever removed."""
        return make_judge(self._detectors(), self._policy())

    @property
    def revised(self) -> list[str]:
        """The parts that compute otherwise than they once did with the same options: runs are other runs."""
        return [] if self.judge is None else self.judge.revised

    def _policy(self) -> Choice:
        return self.policy

    def _detectors(self) -> Sequence[Choice]:
        return self.detectors if isinstance(self.detectors, tuple | list) else (self.detectors,)

    @property
    def detects(self) -> bool:
        """Whether the server removes clients it finds malicious."""
        return self.judge is not None and self.shares

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, spelled in one way however they were given."""
        found = () if self.judge is None else self.judge.detectors.items()
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "detectors": [fingerprint.written(name, detector) for name, detector in found],
            "policy": policies.canonical(as_policy(self._policy())),
        }

    @abstractmethod
    def start(self, weights: Tensor, layout: Layout) -> S:
        """Return the server's state before the first round; all clients start from `weights`."""

    def asks(self, state: S, ids: Tensor) -> Tensor:
        """Return which participants the server must ask for a request first, N flags."""
        return torch.zeros(len(ids), dtype=torch.bool)

    def request_start(self, state: S) -> Tensor | None:
        """Return the model, D, from which those asked train their request, and the server its root update."""
        return None

    @abstractmethod
    def dispatch(self, state: S, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Return the models for these participants; `requests` has an update of each one asked."""

    def extra(self, dispatch: Dispatch) -> int:
        """Return how many numbers each client is asked for besides its update."""
        return 0

    def look(self, state: S, dispatch: Dispatch, uploads: Uploads) -> Look:
        """Return what the server sees of the uploads: the updates as they were sent, unless overridden."""
        return Look(
            uploads.round, uploads.ids, uploads.updates, Rows(uploads.updates), samples=uploads.samples
        )

    @abstractmethod
    def absorb(self, state: S, judged: Judged) -> tuple[S, Sequence[str]]:
        """Return the state after the round, and notes on where it departed from the settings."""

    def global_model(self, state: S) -> Tensor | None:
        """Return the server's one model for all, D, if it has one."""
        return None

    def pools(self, state: S) -> Pools | None:
        """Return the clients' models that the server holds, if it holds any."""
        return None

    def forget(self, state: S, ids: Tensor) -> S:
        """Return the state without anything of these clients, who are removed by hand."""
        return state

    def request(self, client: LocalClient, start: Tensor) -> Tensor:
        """On the client: return the update by which it asks for its first model."""
        learner = client.learner(start)
        client.fit(learner)
        return learner.weights - start

    def first_kept(self, network: Network) -> Tensors:
        """On the client: return what it keeps before it ever trains; the network has the common weights."""
        return {"personal": network.weights}

    def shared(self, client: LocalClient, received: Tensor, kept: Tensors) -> Tensor | None:
        """On the client: return the model it has on receipt, before training; none if none came."""
        return received[0] if len(received) else None

    def personal_logits(self, network: Network, kept: Tensors, x: Tensor) -> Tensor:
        """On the client: return the logits of its personal model for inputs x."""
        return network.logits(kept["personal"], x)

    def personal_model(self, build: Callable[[Tensor], nn.Module], kept: Tensors) -> nn.Module:
        """Return the personal model as a module; `build` makes one of a weight vector, D."""
        return build(kept["personal"])

    def train(self, client: LocalClient, received: Tensor, kept: Tensors) -> Trained:
        """On the client: train from the model received; keep the trained model as the personal one."""
        learner = client.learner(received[0])
        client.fit(learner)
        return Trained(learner.weights - received[0], {"personal": learner.weights})


registry: Registry[Method[object]] = Registry("method", Method, "fedcap.methods")


@dataclass(frozen=True)
class Conclusion:
    """The outcome of a round on the server."""

    state: Any
    """The method's state after the round."""
    memory: Tensors
    """What the detectors and their policy remember."""
    look: Look
    verdict: Verdict
    refused: Mapping[int, str]
    """Whose upload did not count though they are not removed, and why; by rows of the roster."""
    notes: Sequence[str]
    """Where the method departed from the settings."""


def conclude(
    method: Method[Any], state: Any, memory: Tensors, dispatch: Dispatch, uploads: Uploads
) -> Conclusion:
    """Return what follows from a round's uploads.

    State and memory stay as they are, but the dispatch may hand its models over: it is used once. Whoever
    is removed or suspected does not count, nor does a row that cannot be computed with.
    """
    look = method.look(state, dispatch, uploads)
    verdict = Verdict()
    if method.judge is not None:
        verdict, memory = method.judge(look, memory)
    refused = dict.fromkeys(look.ids[~look.finite].tolist(), "not finite")
    refused |= {client: reason.sentence for client, reason in verdict.suspected.items()}
    refused = {client: why for client, why in refused.items() if client not in verdict.removed}
    removed = torch.tensor(list(verdict.removed), dtype=torch.long)
    out = torch.cat([removed, torch.tensor(list(refused), dtype=torch.long)])
    judged = Judged(dispatch, uploads, look, ~torch.isin(look.ids, out), removed)
    state, notes = method.absorb(state, judged)
    return Conclusion(state, memory, look, verdict, refused, [*verdict.notes, *notes])
