"""The work of the speed benchmark in Flower's simulation (flwr 1.41 with Ray), if both are installed.

Every client is a node. It builds its model, trains and tests as the plain loop does, with one core, and
stores its personal model in the node's state. The server averages. Only rounds are timed, not the start.
"""

from __future__ import annotations

import importlib.util
import os
import time

import torch

from benchmarks.plain import plain_clients, plain_network
from benchmarks.work import WORK, Work
from fedcap.products import fast_products


def installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("flwr", "ray"))


def seconds(work: Work, method: str, rounds: int, our_products: bool = False) -> float | None:
    """Return the seconds of Flower's best round after the first one; None if Flower is not installed.

    With `our_products`, its clients multiply matrices with the library that fedcap chooses.
    """
    if not installed():
        return None
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    import logging

    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    place = next(at for at, known in enumerate(WORK) if known.name == work.name)
    client_app = ClientApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        here = WORK[place]
        client = plain_clients(here)[int(context.node_config["partition-id"])]
        model = plain_network(here)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        if "personal" in context.state:
            client.personal.load_state_dict(context.state["personal"].to_torch_state_dict())
        with fast_products(None if our_products else "mkl"):
            client.test_accuracy(model)
            client.fit(model, None if method == "fedavg" else 0.1)
            client.test_accuracy(model if method == "fedavg" else client.personal)
        if method != "fedavg":
            context.state["personal"] = ArrayRecord(client.personal.state_dict())
        return Message(content=RecordDict({"arrays": ArrayRecord(model.state_dict())}), reply_to=message)

    server_app = ServerApp()
    took: list[float] = []

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < work.clients:
            time.sleep(0.2)
        state = plain_network(work).state_dict()
        for _ in range(rounds + 1):
            began = time.perf_counter()
            arrays = ArrayRecord(state)
            messages = [
                Message(
                    content=RecordDict({"arrays": arrays, "config": ConfigRecord({})}),
                    dst_node_id=node,
                    message_type=MessageType.TRAIN,
                )
                for node in grid.get_node_ids()
            ]
            replies = list(grid.send_and_receive(messages))
            states = [reply.content["arrays"].to_torch_state_dict() for reply in replies]
            state = {key: sum(part[key] for part in states) / len(states) for key in state}
            took.append(time.perf_counter() - began)

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=work.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return min(took[1:])
