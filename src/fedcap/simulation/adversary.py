"""The malicious clients of a simulation: who they are, what they train on, and what they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcap.attacks import Attack, Preview, ServerView, View
from fedcap.data import FederatedData
from fedcap.data.base import ClientSamples
from fedcap.matrix import NARROW, column_blocks
from fedcap.rng import derive
from fedcap.runs import AttackStats, finite
from fedcap.server.server import Server
from fedcap.server.uploads import Upload
from fedcap.state import Tensors
from fedcap.training import LocalData


@dataclass(frozen=True, eq=False)
class TaskData(Sequence[LocalData]):
    """The samples of all clients, made when a task needs them; those of malicious clients may be poisoned."""

    clients: Sequence[ClientSamples]
    names: Sequence[str]
    classes: int
    device: str
    seed: int
    attack: Attack | None
    """None if the attack leaves the samples unchanged."""
    malicious: Tensor
    """K flags, or empty without an attack on samples."""

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, row: Any) -> Any:
        train, test = self.clients[row]
        if self.attack is not None and bool(self.malicious[row]):
            generator = derive(self.seed, "poison", self.names[row])
            train = self.attack.poison(train, self.classes, generator)
        return LocalData(train.to(self.device), test.to(self.device))


class Adversary:
    """An attack, the clients that carry it out, and its memory; no clients if there is no attack."""

    def __init__(self, attack: Attack | None, clients: frozenset[str], seed: int) -> None:
        self.attack = attack
        self.clients = clients
        self._seed = seed
        self._memory: dict[str, Tensor] = {}

    def __contains__(self, client: str) -> bool:
        return client in self.clients

    def trainers(self, clients: Sequence[str]) -> list[str]:
        """Return the clients that train; attackers do not if the attack does not use their honest updates."""
        honest = [client for client in clients if client not in self.clients]
        needs_all = self.attack is None or self.attack.uses_honest_updates
        return list(clients) if needs_all or not honest else honest

    def task_data(self, data: FederatedData, device: str) -> TaskData:
        """Return what the clients train on and are tested on."""
        attack, malicious = None, torch.empty(0, dtype=torch.bool)
        if self.attack is not None and _poisons(type(self.attack)):
            attack, malicious = self.attack, torch.tensor([client in self.clients for client in data.names])
        return TaskData(data.clients, data.names, data.classes, device, self._seed, attack, malicious)

    def craft_into(
        self,
        updates: Tensor,
        clients: Sequence[str],
        received: Callable[[int], Tensor],
        server: Server,
        request: bool = False,
        uploads: Callable[[], Sequence[Upload]] | None = None,
        root: Tensor | None = None,
    ) -> AttackStats | None:
        """Replace the malicious rows of the updates, N×D, and return measures of them.

        `received(n)` are the models, k×D, that client n was sent. `uploads()` returns the uploads for the
        current updates; with it the attack can preview the round. `root` is the server's own update.
        """
        malicious = torch.tensor([client in self.clients for client in clients], dtype=torch.bool)
        if self.attack is None or not malicious.any():
            return None
        malicious = malicious.to(updates.device)

        def preview(rows: Tensor) -> Preview:
            assert uploads is not None
            honest = updates[malicious]
            updates[malicious] = rows.to(updates).clone()
            try:
                return _preview(server, clients, uploads(), root, updates)
            finally:
                updates[malicious] = honest

        view = View(
            updates,
            malicious,
            generator=derive(self._seed, "attack request" if request else "attack", server.round),
            round=server.round,
            request=request,
            clients=tuple(clients),
            memory=dict(self._memory),
            read_received=received,
            read_server=lambda: _server_view(server),
            run_preview=None if uploads is None else preview,
        )
        self.attack.apply(view)
        # Copies, because the memory may hold views of the updates, which the next round overwrites.
        self._memory = {name: tensor.detach().cpu().clone() for name, tensor in view.memory.items()}
        return measure_attack(updates, malicious)

    def upload(
        self, client: str, number: int, row: Tensor, samples: int, feedback: Sequence[float] = ()
    ) -> Upload:
        """Return what a client sends for its row; an attack may change the form and the sample count."""
        sent: object = row
        if self.attack is not None and client in self.clients:
            sent, samples = self.attack.wire(row), self.attack.claim or samples
        return Upload(client, number, sent, samples, torch.tensor(feedback))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the attack's memory, to be saved."""
        return dict(self._memory)

    def load_state_dict(self, tensors: Tensors) -> None:
        """Restore what `state_dict` returned."""
        self._memory = dict(tensors)


def _poisons(attack: type[Attack]) -> bool:
    """Return whether an attack may change the samples of malicious clients."""
    return attack.poison is not Attack.poison or attack.poison_labels is not Attack.poison_labels


def measure_attack(sent: Tensor, malicious: Tensor) -> AttackStats | None:
    """Return the malicious rows' norm, and cosine with the mean of the others; None without others.

    Columns and rows are taken a few at a time, so that the rows are not copied.
    """
    if bool(malicious.all()):
        return None
    columns = column_blocks(sent.shape[1], NARROW)
    mean = torch.cat([sent[:, block][~malicious].mean(dim=0) for block in columns])
    rows = [sent[row : row + 1] for row in malicious.nonzero().flatten().tolist()]
    cosine = torch.cat([torch.nn.functional.cosine_similarity(row, mean[None]) for row in rows]).mean()
    norm = torch.cat([torch.linalg.vector_norm(row, dim=1) for row in rows]).mean()
    benign = torch.linalg.vector_norm(mean)
    return AttackStats(*finite([float(norm), float(benign), float(cosine)]))


def _server_view(server: Server) -> ServerView:
    """Copy what the server holds, so that no attack can write into it."""
    held = server.inspect()
    return ServerView(
        reference=None if held.global_model is None else held.global_model.clone(),
        clients=() if held.ids is None else tuple(server.clients.names(held.ids)),
        models=None if held.models is None else held.models.clone(),
        limits=server.limits,
    )


def _preview(
    server: Server, clients: Sequence[str], uploads: Sequence[Upload], root: Tensor | None, updates: Tensor
) -> Preview:
    """Return the server's preview with one row per participant of the round."""
    outcome, sent = server.preview(uploads, root, updates)
    out = {*outcome.removed, *outcome.suspected}
    models = sent.models[sent.index].mean(dim=1)
    names = set(server.clients.names(sent.ids))
    served = torch.tensor([client in names for client in clients])
    all_models = models.new_zeros(len(clients), models.shape[1])
    all_models[served] = models  # both are in the order of the client index
    accused = torch.tensor([client in out for client in clients])
    return Preview(accused, all_models, served)
