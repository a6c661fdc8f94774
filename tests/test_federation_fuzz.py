"""Ten thousand hostile messages: answers of malicious clients to the server, and orders to a site.

No message raises, loses a round, gets an honest client refused or removed, or takes unbounded memory.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation_tools import Federation, make_site, plan_for
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedcap.federation.messages import Answer, Failure, Malformed, Order, Reply, decode, encode
from fedcap.federation.plan import Plan
from fedcap.federation.site import respond

pytestmark = pytest.mark.slow
PLAN = plan_for({"name": "fedavg", "rule": "median"}, rounds=10**4)
HARDENED = plan_for({"name": "fedcap", "preset": "hardened"}, rounds=10**4, assumed=0.4)
"""Its server also asks newcomers for updates, and removes clients, which the test readmits."""
WEIGHTS = PLAN.weights
HONEST, MALICIOUS = tuple(f"honest-{k}" for k in range(12)), tuple(f"malicious-{k}" for k in range(8))
ORDERS = 5000
REASONS = (
    "cannot be read",
    "nonce is not",
    "answers another order",
    "answers round",
    "dtype",
    "axes",
    "shape",
    "not finite",
    "feedback is not",
    "refuses",
    "too large",
)
"""Parts of the reasons for which uploads must have been refused at least once."""
MOST_MEMORY = 600 << 20
"""Bytes by which the process may grow."""
FUZZ: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "print_blob": False,
    "phases": (Phase.generate,),  # an example depends on those before it
    "suppress_health_check": list(HealthCheck),
}

DTYPES = (*["<f4"] * 9, "<f8", "<f2", "<i4", "|u1", "|b1", "<u8")
TEXTS = st.sampled_from(("", "0" * 32, "x" * 10_000, "two\nlines\x00\x1b[2J", "../../key")) | st.text()
NUMBERS = st.sampled_from(
    (
        0,
        1,
        -1,
        2**31,
        2**62,
        2**63,
        10**30,
        10**400,
        True,
        0.5,
        -0.0,
        1e308,
        float("nan"),
        float("inf"),
        "7",
        None,
    )
)
VALUES = TEXTS | NUMBERS | st.lists(NUMBERS, max_size=5) | st.just([1.0] * 10_001) | st.just({"a": [{}]})


@dataclass(frozen=True)
class Array:
    """A description of an array: hypothesis would print the array itself."""

    shape: tuple[int, ...]
    dtype: str
    fill: str | float

    def make(self) -> np.ndarray:
        normal = np.random.default_rng(1).normal(size=self.shape)
        match self.fill:
            case "normal":
                filled = normal
            case "one nan":
                filled = np.where(np.arange(normal.size).reshape(self.shape) == 0, np.nan, normal)
            case _:
                filled = np.full(self.shape, self.fill) * np.sign(normal)
        with np.errstate(all="ignore"):
            return np.asarray(filled).astype(self.dtype)


@dataclass(frozen=True)
class Forgery:
    """What is changed in a message: arrays and values by name, and then the bytes."""

    arrays: Mapping[str, Array]
    config: Mapping[str, Any]
    keeps_arrays: bool
    change: str
    place: int
    junk: bytes

    def apply(self, arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> bytes:
        given = dict(arrays) if self.keeps_arrays else {}
        given |= {name: array.make() for name, array in self.arrays.items()}
        content = encode(given, {**config, **self.config})
        match self.change:
            case "cut":
                return content[: self.place]
            case "longer":
                return content + self.junk
            case "changed":
                return content[: self.place] + self.junk + content[self.place + len(self.junk) :]
        return content


def forgeries(arrays: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], **values: Any) -> Any:
    """Return a strategy for forgeries; most have few faults, so that every check is reached."""
    fills = ("normal", "one nan", 0.0, np.nan, np.inf, -np.inf, 3.4e38, 1e-38, -100.0)
    array = st.builds(Array, st.sampled_from(shapes), st.sampled_from(DTYPES), st.sampled_from(fills))
    names = st.sampled_from((*arrays * 9, "more", "\x00é", "config "))

    def field(name: str, known: tuple[Any, ...]) -> Any:
        plausible = st.sampled_from(known)
        return st.tuples(
            st.just(name), st.booleans().flatmap(lambda is_known: plausible if is_known else VALUES)
        )

    fields = [field(name, known) for name, known in {**values, "other": (None,)}.items()]
    return st.builds(
        Forgery,
        st.lists(st.tuples(names, array), max_size=2).map(dict),
        st.lists(st.one_of(fields), max_size=2).map(dict),
        st.sampled_from((True, True, True, False)),
        st.sampled_from((*["none"] * 9, "cut", "longer", "changed")),
        st.integers(0, 1000),
        st.binary(min_size=1, max_size=8),
    )


# --- The server

ANSWERS = forgeries(
    ("update",),
    (
        (WEIGHTS,),
        (WEIGHTS,),
        (WEIGHTS - 1,),
        (WEIGHTS + 1,),
        (0,),
        (1, WEIGHTS),
        (WEIGHTS, 1),
        (),
        (2_000_000,),
    ),
    nonce=("0" * 32,),
    round=(0, 1, 2, PLAN.rounds),
    samples=(0, 1, 30, 10**9),
    feedback=([0.5], []),
    tested=(0, 10, 10**9),
    shared_correct=(0, 11),
    personal_correct=(0, 11),
    refused=("no",),
    seconds=(0.0, 1e9),
)


class Uploads:
    """A transport whose honest clients send small updates, and whose malicious ones send forgeries."""

    def __init__(self) -> None:
        self.forgeries: dict[str, Forgery] = {}
        self.count = 0

    def nodes(self) -> Mapping[str, str]:
        return dict.fromkeys((*HONEST, *MALICIOUS), "node")

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Mapping[str, Reply]:
        replies: dict[str, Reply] = {}
        for place, (client, order) in enumerate(orders.items()):
            update = np.random.default_rng(place).normal(size=WEIGHTS).astype("<f4") / 1000
            honest = Answer(order.nonce, order.round, update, 30, (), 10, 5, 5)
            replies[client] = honest if client in HONEST else self.forged(client, honest)
        return replies

    def forged(self, client: str, honest: Answer) -> Reply:
        content = self.forgeries[client].apply(*decode(honest.to_bytes()))
        self.count += 1
        if len(content) > PLAN.most_bytes and self.count % 2:
            return Failure("it is too large")  # as Flower's transport does; the other half goes on
        try:
            return Answer.from_bytes(content)
        except Malformed as error:
            return Failure(str(error))


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    ("plan", "rounds", "more_reasons"),
    [(PLAN, 1250, ("sample count", "sent 8,000,000 bytes")), (HARDENED, 150, ("request shape",))],
    ids=["fedavg", "fedcap"],
)
def test_no_upload_breaks_a_round_or_an_honest_client(
    tmp_path: Path, plan: Plan, rounds: int, more_reasons: tuple[str, ...]
) -> None:
    transport = Uploads()
    made = Federation(tmp_path, plan, transport)  # type: ignore[arg-type]
    counted, reasons = 0, set[str]()
    for client in transport.nodes():
        made.ledger.ask(client, client, "key")
        made.ledger.approve(client)
    with made.conductor() as conductor:
        before, played = memory(), 0

        @settings(max_examples=rounds, **FUZZ)
        @given(st.lists(ANSWERS, min_size=len(MALICIOUS), max_size=len(MALICIOUS)))
        def play(drawn: list[Forgery]) -> None:
            nonlocal played, counted
            transport.forgeries = dict(zip(MALICIOUS, drawn, strict=True))
            record = conductor.play()
            played += 1
            assert record is not None
            assert record.round == played
            assert not set(HONEST) & {*record.refused, *record.removed, *record.bounded}
            assert all(len(why) < 1000 and "\n" not in why for why in record.refused.values())
            assert bool(conductor.server.inspect().global_model.isfinite().all())
            uncounted = {*record.refused, *record.removed}
            counted += sum(client in MALICIOUS for client in record.participants if client not in uncounted)
            reasons.update(record.refused.values())
            for client in record.removed:
                made.ledger.readmit(client, "it is needed for the next round", played)

        play()
        assert transport.count >= len(MALICIOUS) * rounds
        assert counted > rounds
        missing = [part for part in REASONS + more_reasons if not any(part in why for why in reasons)]
        assert missing == []
        assert memory() - before < MOST_MEMORY
    with made.conductor() as conductor:
        assert len(conductor.history) == played


# --- A site


ORDER = Order("train", 1, "n" * 32, PLAN.digest, np.zeros((1, WEIGHTS), "<f4"))
FORGED_ORDERS = forgeries(
    ("models",),
    (
        (1, WEIGHTS),
        (1, WEIGHTS),
        (2, WEIGHTS),
        (0, WEIGHTS),
        (WEIGHTS,),
        (1, WEIGHTS - 1),
        (0, 0),
        (),
        (1, 2_000_000),
    ),
    kind=("hello", "request", "train", "customise", "finished", "stop"),
    round=(0, 1, 2, PLAN.rounds, PLAN.rounds + 1),
    nonce=("n",),
    plan=(PLAN.digest, PLAN.course),
)


def test_no_order_breaks_a_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "fedcap")
    site = make_site(tmp_path, "0", PLAN)
    monkeypatch.setattr(
        type(site.directory.audit), "write", lambda *_, **__: None
    )  # a write waits for the disk
    prepared = site.prepare(PLAN)
    before, carried_out = memory(), 0

    @settings(max_examples=ORDERS, **FUZZ)
    @given(FORGED_ORDERS)
    def answer(forgery: Forgery) -> None:
        nonlocal carried_out
        found = Answer.from_bytes(respond(site, forgery.apply(*decode(ORDER.to_bytes()))))
        carried_out += found.refused is None
        assert len(found.refused or "") <= 500
        assert found.update is None or bool(np.isfinite(found.update).all())

    answer()
    assert carried_out > 100
    assert memory() - before < MOST_MEMORY
    last = prepared.states.last()
    assert last is not None
    assert all(bool(tensor.isfinite().all()) for tensor in last.kept.values())
    order = Order("train", PLAN.rounds, "n" * 32, PLAN.digest, prepared.built.weights[None].numpy())
    assert Answer.from_bytes(respond(site, order.to_bytes())).refused is None
