"""What Flower runs at a site for every message: check the operator's seal, hand the order in at the site's
door, and bring the answer back. It always answers, and it loads no torch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcap.federation.flower.door import ask
from fedcap.federation.flower.guard import AUTHORITY, CLIENT, SITE
from fedcap.federation.flower.records import from_records, to_records
from fedcap.federation.flower.sealing import unseal
from fedcap.federation.messages import Answer, Arrays, Config, Malformed

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer a message."""
    arrays, config = answer(message.content, message.metadata.ttl)
    return Message(to_records(arrays, config), reply_to=message)


def answer(content: Any, seconds: float) -> tuple[Arrays, Config]:
    """Return the site's answer to an order, or its refusal."""
    config: dict[str, Any] = {}
    try:
        arrays, config = from_records(content)
        authority = Path(os.environ[AUTHORITY]).read_bytes()
        order = unseal(arrays, config, os.environ[CLIENT], authority)
        return ask(Path(os.environ[SITE]), arrays, order, seconds)
    except Exception as error:  # a node whose app raises is no good to anybody: say what it was
        nonce, number = config.get("nonce"), config.get("round")
        known = isinstance(error, Malformed)
        print(f"refused: {error if known else repr(error)}", flush=True)
        said = str(error) if known else "something failed at this site: its log says what"
        refusal = Answer(
            nonce if isinstance(nonce, str) else "", number if type(number) is int else 0, refused=said
        )
        return refusal.pack()
