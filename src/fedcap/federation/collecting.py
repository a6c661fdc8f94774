"""One exchange with the sites: an order to each, and what of their replies answers it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.federation.messages import Answer, Kind, Order, fresh_nonce
from fedcap.federation.plan import Plan
from fedcap.federation.transport import Failure, Reply, Transport
from fedcap.methods.base import Sent
from fedcap.server.uploads import Upload


@dataclass(frozen=True)
class Collected:
    """What came back."""

    answers: Mapping[str, Answer]
    """Those that answer their order; what is in them is not checked."""
    failed: Mapping[str, str]
    """Who gave no such answer, and why not."""
    bytes: int
    """Of all models and updates that were sent."""
    seconds: float

    def uploads(self) -> list[Upload]:
        """Return the answers as the server takes them."""
        return [
            Upload(client, answer.round, _vector(answer), answer.samples, torch.tensor(answer.extra))
            for client, answer in self.answers.items()
        ]


def collect(
    transport: Transport, plan: Plan, kind: Kind, number: int, models: Mapping[str, Tensor], seconds: float
) -> Collected:
    """Send each client its models, k×D, with an order of this kind, and wait that long for the answers."""
    began = time.perf_counter()
    orders = {
        client: Order(kind, number, fresh_nonce(), plan.digest, given.numpy())
        for client, given in models.items()
    }
    replies = transport.exchange(orders, seconds) if orders else {}
    answers, failed = {}, {}
    for client, order in orders.items():
        reply = replies.get(client)
        why = f"did not answer within {seconds:g} s" if reply is None else _fault(order, reply, plan)
        if why is not None:
            failed[client] = why
        elif isinstance(reply, Answer):
            answers[client] = reply
    sent = sum(order.models.nbytes for order in orders.values())
    came = sum(answer.update.nbytes for answer in answers.values() if answer.update is not None)
    return Collected(answers, failed, sent + came, time.perf_counter() - began)


def models_by_client(sent: Sent, clients: Sequence[str]) -> dict[str, Tensor]:
    """Return the models, k×D, that each client is sent; clients that are sent the same share a tensor."""
    rows = dict(zip(clients, map(tuple, sent.index.tolist()), strict=True))
    made = {places: sent.models[list(places)].cpu() for places in set(rows.values())}
    return {client: made[places] for client, places in rows.items()}


def _fault(order: Order, reply: Reply, plan: Plan) -> str | None:
    """Return why a reply does not answer its order; none if it does."""
    if isinstance(reply, Failure):
        return reply.why
    if reply.nonce != order.nonce:
        return "answers another order than the one it was sent"
    if reply.refused is not None:
        return f"refuses: {reply.refused}"
    if reply.round != order.round:
        return f"answers round {reply.round}, this is round {order.round}"
    if reply.update is not None and reply.update.nbytes > plan.most_bytes:
        return (
            f"sent {reply.update.nbytes:,} bytes, more than the {plan.most_bytes:,} that an answer may have"
        )
    return None


def _vector(answer: Answer) -> object:
    """Return the update as a tensor, which shares its memory."""
    return None if answer.update is None else torch.from_numpy(answer.update)
