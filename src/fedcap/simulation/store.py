"""The states of all clients between rounds: named tensors of each client that has trained."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedcap.state import Tensors, names_to_tensor, owned, tensor_to_names, under


class ClientStore:
    """Client states in the memory of this process."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._states: dict[str, dict[str, Tensor]] = {}

    def get(self, client: str) -> Tensors | None:
        """Return the state of a client, valid until the next `put`; None if it has not trained yet."""
        return self._states.get(client)

    def put(self, client: str, state: Tensors) -> None:
        """Store a copy of a client's state in place of the one before."""
        known = self._states.get(client, {})
        if _shapes(known) == _shapes(state):
            for name, tensor in state.items():
                known[name].copy_(tensor)
        else:
            self._states[client] = {name: tensor.detach().clone() for name, tensor in state.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the clients that have trained, and each named tensor of all of them, in that order."""
        clients = list(self._states)
        names = list(self._states[clients[0]]) if clients else []
        stacked = {name: torch.stack([self._states[client][name] for client in clients]) for name in names}
        return {"clients": names_to_tensor(clients), **under("kept", stacked)}

    def load_state_dict(self, tensors: Tensors) -> None:
        """Restore what `state_dict` returned."""
        clients = tensor_to_names(tensors["clients"])
        rows = owned("kept", tensors)
        self._states = {
            client: {name: part[row].clone().to(self._device) for name, part in rows.items()}
            for row, client in enumerate(clients)
        }


def _shapes(state: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}
