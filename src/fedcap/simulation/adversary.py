"""What is measured of a round: seconds by part, accuracy, and the malicious rows.

The malicious clients of a simulation: who they are, what they train on, and what they send.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from fedcap.attacks import Attack, Foresight, ServerView, View
from fedcap.rng import derive
from fedcap.runs import Accuracy, AttackStats, ClassCounts, ClassCountsRecord, ClientAccuracy, Seconds, finite
from fedcap.server.server import Closing, Offer, Server
from fedcap.server.uploads import Upload
from fedcap.state import Samples, Tensors
from fedcap.training import Counts, Performed


class Stopwatch:
    """Adds up seconds by part of the round."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.parts: dict[str, float] = {}

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Add the seconds that the block takes to one part."""
        began = time.perf_counter()
        yield
        self.add(part, time.perf_counter() - began)

    def add(self, part: str, seconds: float) -> None:
        """Add seconds to one part."""
        self.parts[part] = self.parts.get(part, 0.0) + seconds

    def seconds(self) -> Seconds:
        """Return the parts, and the total since the watch was started."""
        return Seconds(**self.parts, total=time.perf_counter() - self.began)


def measure_attack(sent: Tensor, malicious: Tensor) -> AttackStats | None:
    """Return the malicious rows' length, and cosine with the mean of the others; none without others."""
    if bool(malicious.all()):
        return None
    rows, mean = sent[malicious], sent[~malicious].mean(dim=0)
    cosine = torch.nn.functional.cosine_similarity(rows, mean[None]).mean()
    length = torch.linalg.vector_norm(rows, dim=1).mean()
    benign = torch.linalg.vector_norm(mean)
    return AttackStats(*finite([float(length), float(benign), float(cosine)]))


def measure_accuracy(found: Mapping[str, Performed], sizes: Mapping[str, int], shares: bool) -> Accuracy:
    """Turn counts into percent; whoever lacks one of the two models counts with the other."""
    shared, personal = {}, {}
    for client, done in found.items():
        counts = (done.shared_correct, done.personal_correct)
        shared[client], personal[client] = (
            next((count for count in order if count is not None), 0) for order in (counts, counts[::-1])
        )
    total = sum(sizes[client] for client in found)
    return Accuracy(
        100 * sum(shared.values()) / total if shares else None,
        100 * sum(personal.values()) / total,
        {
            client: ClientAccuracy(
                100 * shared[client] / sizes[client] if shares else None,
                100 * personal[client] / sizes[client],
            )
            for client in shared
        },
    )


def tally(found: Mapping[str, Performed], classes: Sequence[str], shares: bool) -> ClassCountsRecord:
    """Add up the clients' counts; whoever lacks one of the two models counts with the other."""
    shared = [done.shared_counts or done.personal_counts for done in found.values()]
    personal = [done.personal_counts or done.shared_counts for done in found.values()]
    return ClassCountsRecord(
        list(classes), _sum(shared, len(classes)) if shares else None, _sum(personal, len(classes))
    )


def _sum(found: Sequence[Counts | None], classes: int) -> ClassCounts:
    counts = [each for each in found if each is not None]
    none = (0,) * classes
    return ClassCounts(
        [sum(column) for column in zip(none, *(each.actual for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.predicted for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.correct for each in counts), strict=True)],
        finite(sum((each.loss for each in counts), 0.0)),
    )


class Adversary:
    """An attack, the clients that carry it out, and what it remembers; nobody, if there is no attack."""

    def __init__(self, attack: Attack | None, clients: frozenset[str], seed: int) -> None:
        self.attack = attack
        self.clients = clients
        self._seed = seed
        self._memory: Tensors = {}

    def __contains__(self, client: str) -> bool:
        return client in self.clients

    @property
    def idle(self) -> bool:
        """Whether malicious clients need not train, since the attack does not use their honest updates."""
        return self.attack is not None and not self.attack.uses_honest_updates

    def training_data(self, client: str, samples: Samples, classes: int) -> Samples:
        """Return what a client trains on; an attack may poison a malicious one's."""
        if self.attack is None or client not in self.clients:
            return samples
        return self.attack.poison(samples, classes, derive(self._seed, "poison", client))

    def strike(
        self,
        clients: Sequence[str],
        updates: Tensor,
        models: Tensor,
        rows: Tensor,
        server: Server,
        request: bool = False,
        uploads: Callable[[Tensor], Sequence[Upload]] | None = None,
        root: Tensor | None = None,
    ) -> tuple[Tensor, AttackStats | None]:
        """Return the rows as sent, N×D, and measures of them; client n was sent `models[rows[n]]`.

        With `uploads`, from rows, N×D, to what the server gets, the attack may try rows on the server, whose
        own update is `root`.
        """
        malicious = torch.tensor([client in self.clients for client in clients], dtype=torch.bool)
        if self.attack is None or not malicious.any():
            return updates, None
        number = server.round
        malicious = malicious.to(updates.device)
        crafted = self.attack.strike(
            View(
                updates,
                malicious,
                derive(self._seed, "attack request" if request else "attack", number),
                number,
                request,
                tuple(clients),
                self._memory,
                lambda participant: models[rows[participant].to(models.device)],  # a copy: nothing to spoil
                lambda: _look_at(server),
                None
                if uploads is None
                else lambda row: _foresight(clients, server.foresee(uploads(row), root)),
            )
        )
        self._memory = {name: tensor.detach().cpu() for name, tensor in crafted.memory.items()}
        return crafted.rows, measure_attack(crafted.rows, malicious)

    def on_the_wire(self, client: str, row: Tensor) -> object:
        """Return what a client sends for its row: the row, unless an attack replaces it."""
        return row if self.attack is None or client not in self.clients else self.attack.wire(row)

    def claim(self, client: str, samples: int) -> int:
        """Return how many samples a client says it has."""
        if self.attack is None or client not in self.clients:
            return samples
        return self.attack.claim or samples

    def tensors(self) -> dict[str, Tensor]:
        """Return what the attack remembers."""
        return dict(self._memory)

    def restore(self, tensors: Tensors) -> None:
        """Go back to what `tensors` returned."""
        self._memory = dict(tensors)


def _look_at(server: Server) -> ServerView:
    """Copy what the server holds, so that no attack can write into it."""
    clients, models = server.pools or ((), None)
    model = server.global_model
    return ServerView(
        None if model is None else model.clone(),
        clients,
        None if models is None else models.clone(),
        server.limits,
    )


def _foresight(clients: Sequence[str], ahead: tuple[Closing, Offer]) -> Foresight:
    """Put what a server foresees into the rows of a round's participants."""
    closing, offer = ahead
    out = {*closing.removed, *closing.suspected}
    models = offer.dispatch.models[offer.dispatch.rows].mean(dim=1)
    served = torch.tensor([client in offer.clients for client in clients])
    spread = models.new_zeros(len(clients), models.shape[1])
    spread[served] = models  # both in the order of the roster
    return Foresight(torch.tensor([client in out for client in clients]), spread, served)
