"""A method's server between two rounds, wherever its clients are.

It holds the state, remembers who was removed, and lets nothing in that `intake` refuses. The simulation
drives it with workers of this machine, a federation with machines elsewhere; a round is

    invited  = server.select(clients, participation, number)
    asked    = server.asks(invited)                         newcomers, who first send a request
    requests, faults = server.take_requests(asked, …)
    dispatch = server.dispatch(served, requests)
    closing  = server.close(dispatch, uploads)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedcap.methods.base import Dispatch, Method, Verdict, drop_non_finite
from fedcap.methods.intake import Upload, admit
from fedcap.randomness import derive
from fedcap.training import Layout


@dataclass(frozen=True)
class Closing:
    """What the server found at the end of a round."""

    verdict: Verdict
    refused: Mapping[int, str]
    """Clients whose update did not count this round, and why."""
    bounded: Mapping[int, str]
    """Clients whose claims were cut down, and how."""


class Server:
    """The server's side of a method: its state, and who is out for good."""

    def __init__(
        self, method: Method[Any], weights: Tensor, layout: Layout, seed: int = 0, malicious: float = 0.0
    ) -> None:
        self.method = method
        self.state: Any = method.start(weights, layout)
        self.removed: set[int] = set()
        self._size = layout.size
        self._seed = seed
        self._malicious = malicious
        """The share of participants assumed to be malicious."""
        self._device = weights.device

    def select(self, clients: Sequence[int], participation: float, number: int) -> list[int]:
        """Draw the participants of a round among those who are not removed."""
        there = [k for k in clients if k not in self.removed]
        count = max(1, round(participation * len(clients)))
        if count >= len(there):
            return there
        order = torch.randperm(len(there), generator=derive(self._seed, "select", number))
        return sorted(there[at] for at in order[:count].tolist())

    def asks(self, clients: Sequence[int]) -> list[int]:
        """Return who of these must send a request before there can be a model for them."""
        ids = torch.tensor(clients, dtype=torch.long)
        return ids[self.method.asks(self.state, ids)].tolist()

    def take_requests(
        self, asked: Sequence[int], uploads: Sequence[Upload]
    ) -> tuple[dict[int, Tensor], dict[int, str]]:
        """Return the requests that can be used, and what is wrong with the others."""
        admission = admit(uploads, asked, self._size, device=self._device)
        good, not_finite = drop_non_finite(admission.uploads)
        faults = {**admission.refused, **not_finite}
        return (
            dict(zip(good.ids.tolist(), good.updates, strict=True)),
            {client: f"request {fault}" for client, fault in faults.items()},
        )

    def dispatch(self, clients: Sequence[int], requests: Mapping[int, Tensor]) -> Dispatch:
        """Return the models for these clients; whoever was asked must be among the requests."""
        return self.method.dispatch(self.state, torch.tensor(clients, dtype=torch.long), requests)

    def close(
        self, dispatch: Dispatch, uploads: Sequence[Upload], extra: int = 0, root: Tensor | None = None
    ) -> Closing:
        """End the round with what came back; `extra` numbers are asked of each client besides its update."""
        invited = dispatch.ids.tolist()
        assumed = int(self._malicious * len(invited) + 1e-9)
        admission = admit(uploads, invited, self._size, assumed, self._device, extra)
        self.state, verdict = self.method.aggregate(
            self.state, dispatch, replace(admission.uploads, root=root)
        )
        self.removed |= verdict.removed.keys()
        return Closing(verdict, {**admission.refused, **verdict.refused}, admission.bounded)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that the server knows, to be written to disk."""
        state = {f"state.{field.name}": getattr(self.state, field.name) for field in fields(self.state)}
        return {**state, "removed": torch.tensor(sorted(self.removed), dtype=torch.long)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `tensors` returned."""
        kept = {
            field.name: tensors[f"state.{field.name}"].to(getattr(self.state, field.name).device)
            for field in fields(self.state)
        }
        self.state = self.method.state_type(**kept)
        self.removed = set(tensors["removed"].tolist())
