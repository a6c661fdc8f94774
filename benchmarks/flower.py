"""FedAvg in Flower's simulation (flwr 1.41 with Ray), and the work of the speed benchmark in it.

Every client is a node, and one core runs the tasks of one node at a time. In the speed benchmark a client
builds its model, trains and tests as the plain loop does, and stores its personal model in the node's state.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.plain import plain_clients, plain_network
from benchmarks.work import WORK, Work
from fedcap.products import fast_products

if TYPE_CHECKING:
    from flwr.app import Context

Weights = dict[str, Tensor]
Fit = Callable[[int, Weights, "Context"], Weights]
"""Given a client, the model that it receives and the context of its node, returns the model to send."""


def installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("flwr", "ray"))


def fedavg(fit: Fit, state: Weights, clients: int, part: int, rounds: int, note: Callable[[], None]) -> None:
    """Play rounds in which `part` of the clients take part; call `note` at the start and after each round."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    os.environ |= {"RAY_worker_niceness": "0"}  # as the other programs; Ray's default is 15
    import logging

    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    client_app = ClientApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        received = message.content["arrays"].to_torch_state_dict()
        made = fit(int(context.node_config["partition-id"]), received, context)
        return Message(content=RecordDict({"arrays": ArrayRecord(made)}), reply_to=message)

    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        global_model = state
        while len(nodes := list(grid.get_node_ids())) < clients:
            time.sleep(0.2)
        note()
        for _ in range(rounds):
            arrays = ArrayRecord(global_model)
            messages = [
                Message(
                    content=RecordDict({"arrays": arrays, "config": ConfigRecord({})}),
                    dst_node_id=node,
                    message_type=MessageType.TRAIN,
                )
                for node in random.sample(nodes, part)
            ]
            replies = list(grid.send_and_receive(messages))
            states = [reply.content["arrays"].to_torch_state_dict() for reply in replies]
            global_model = {key: sum(s[key] for s in states) / len(states) for key in global_model}
            note()

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


def seconds(work: Work, method: str, rounds: int, our_products: bool = False) -> float | None:
    """Return the seconds of Flower's best round after the first one; None if Flower is not installed.

    With `our_products`, its clients multiply matrices with the library that fedcap chooses.
    """
    if not installed():
        return None
    from flwr.app import ArrayRecord

    place = next(at for at, known in enumerate(WORK) if known.name == work.name)

    def fit(number: int, received: Weights, context: Any) -> Weights:
        here = WORK[place]
        client = plain_clients(here)[number]
        model = plain_network(here)
        model.load_state_dict(received)
        if "personal" in context.state:
            client.personal.load_state_dict(context.state["personal"].to_torch_state_dict())
        with fast_products(None if our_products else "mkl"):
            client.test_accuracy(model)
            client.fit(model, None if method == "fedavg" else 0.1)
            client.test_accuracy(model if method == "fedavg" else client.personal)
        if method != "fedavg":
            context.state["personal"] = ArrayRecord(client.personal.state_dict())
        return model.state_dict()

    at: list[float] = []
    initial = plain_network(work).state_dict()
    fedavg(fit, initial, work.clients, work.clients, rounds + 1, lambda: at.append(time.perf_counter()))
    took = [after - before for before, after in itertools.pairwise(at)]
    return min(took[1:])
