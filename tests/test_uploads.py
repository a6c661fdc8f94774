"""Validation of uploads: no upload breaks a round, and the batch can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from helpers import end_round
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedcap.detection import Batch
from fedcap.methods import make
from fedcap.server.uploads import LARGEST_CLAIM, MEDIANS_BELIEVED, Upload, Validated, validate
from fedcap.training import Layout

SIZE = 4
GOOD = torch.tensor([1.0, -2.0, 3.0, 0.5])
ROWS = {f"c{k}": k for k in range(100)}


def checked(received: Sequence[object], rows: Mapping[str, int] = ROWS, feedback: int = 0) -> Validated:
    """Validate uploads of round 4."""
    return validate(received, 4, rows, SIZE, feedback)


def upload(client: int, update: object = GOOD, samples: object = 10, round_: object = 4) -> Upload:
    return Upload(f"c{client}", round_, update, samples)


def with_one(update: object = GOOD, samples: object = 10) -> Validated:
    """Validate one doubtful client, c7, among three good ones."""
    return checked([*(upload(k, GOOD * k) for k in (1, 2, 3)), upload(7, update, samples)])


def test_good_uploads_become_a_matrix_sorted_by_client():
    sent = GOOD.clone()
    valid = checked([upload(5, GOOD * 5, 50), upload(0, sent, 20), upload(3, GOOD * 3, 30.5)])
    sent.zero_()  # the batch shares no memory with the uploads
    batch = valid.batch
    assert batch.ids.tolist() == [0, 3, 5]
    assert torch.equal(batch.updates, torch.stack([GOOD, GOOD * 3, GOOD * 5]))
    assert batch.samples.tolist() == [20.0, 30.5, 50.0]
    assert (valid.rejected, valid.capped) == ({}, {})
    empty = checked([]).batch
    assert (empty.updates.shape, empty.samples.shape) == ((0, SIZE), (0,))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        *((torch.tensor([1.0, bad, 0, 0]), [1.0, bad, 0, 0]) for bad in (math.nan, math.inf, -math.inf)),
        *((GOOD.to(dtype), GOOD.tolist()) for dtype in (torch.float16, torch.bfloat16, torch.float64)),
        (torch.full((SIZE,), 1e300, dtype=torch.float64), [math.inf] * SIZE),
        (GOOD.clone().requires_grad_(), GOOD.tolist()),
    ],
)
def test_rows_of_any_floating_point_numbers_are_converted(row: torch.Tensor, expected: list[float]):
    valid = with_one(row)
    assert valid.rejected == {}
    assert valid.batch.updates.dtype == torch.float32
    assert not valid.batch.updates.requires_grad
    np.testing.assert_array_equal(valid.batch.updates[3], expected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *(
            ({"update": torch.ones(SIZE).to(dtype)}, str(dtype).removeprefix("torch."))
            for dtype in (torch.int64, torch.int8, torch.bool, torch.complex64)
        ),
        *(
            ({"update": torch.ones(shape)}, f"shape {list(shape)}, not [{SIZE}]")
            for shape in ((SIZE - 1,), (SIZE + 1,), (0,), (), (1, SIZE), (SIZE, 1), (2, 2))
        ),
        *(
            ({"update": update}, f"not a tensor but {type(update).__name__}")
            for update in (None, [1.0] * SIZE, np.ones(SIZE, dtype=np.float32), "weights", b"\x80")
        ),
        *(
            ({"update": update}, "not a dense tensor of numbers")
            for update in (GOOD.to_sparse(), torch.empty(SIZE, device="meta"))
        ),
        *(
            ({"samples": samples}, "not positive and finite")
            for samples in (0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, -(10**5000))
        ),
        *(
            ({"samples": samples}, f"{type(samples).__name__}, not a number")
            for samples in (True, "100", None, [10], 1 + 2j)
        ),
    ],
    ids=lambda _: "",
)
def test_a_malformed_upload_is_rejected_and_the_others_count(change: dict[str, object], reason: str):
    valid = with_one(**change)
    assert valid.batch.ids.tolist() == [1, 2, 3]
    assert torch.equal(valid.batch.updates, torch.stack([GOOD, GOOD * 2, GOOD * 3]))
    assert list(valid.rejected) == ["c7"]
    assert reason in valid.rejected["c7"]


@pytest.mark.parametrize("samples", [100, 101, 10**9, 1e300, 10**400, 10**5000], ids=lambda _: "")
def test_a_claim_far_above_the_median_is_capped_and_reported(samples: float):
    valid = with_one(samples=samples)
    assert valid.rejected == {}
    assert valid.batch.samples.tolist() == [10, 10, 10, 10 * MEDIANS_BELIEVED]
    assert list(valid.capped) == ([] if samples == 10 * MEDIANS_BELIEVED else ["c7"])
    assert all("counted as 100" in reason for reason in valid.capped.values())


def test_a_single_claim_of_a_huge_number_stays_finite():
    valid = checked([upload(0, GOOD, 10**400)])
    assert valid.batch.samples.tolist() == [LARGEST_CLAIM]


# --- Which upload of a client counts


def test_of_several_uploads_of_a_client_the_first_to_this_round_counts():
    valid = checked([upload(2, GOOD, 5), upload(1, -GOOD, round_=3), upload(1, GOOD, 6), upload(2, -GOOD, 9)])
    assert valid.batch.ids.tolist() == [1, 2]
    assert valid.batch.round == 4
    assert torch.equal(valid.batch.updates, torch.stack([GOOD, GOOD]))
    assert valid.batch.samples.tolist() == [6.0, 5.0]
    assert valid.rejected == {}
    assert valid.ignored == (
        ("c1", "answers round 3, this is round 4"),
        ("c2", "sent more than once: only the first upload is used"),
    )
    valid = checked([upload(1, "rubbish"), upload(1)])
    assert len(valid.batch) == 0
    assert valid.rejected == {"c1": "not a tensor but str"}


def test_clients_that_were_not_asked_do_not_count() -> None:
    valid = checked([upload(1), upload(4)], {"c1": 1, "c2": 2})
    assert valid.batch.ids.tolist() == [1]
    assert valid.rejected == {"c4": "was not asked to take part"}


@pytest.mark.parametrize("answered", [3, 5, 0, -4, "4", None, 4.0, True, 10**400, 10**5000], ids=lambda _: "")
def test_an_answer_to_another_round_is_rejected(answered: object) -> None:
    valid = checked([upload(1), upload(2, round_=answered)])
    assert valid.batch.ids.tolist() == [1]
    assert valid.rejected["c2"].startswith("answers ")
    assert valid.rejected["c2"].endswith(", this is round 4")
    assert len(valid.rejected["c2"]) < 80


# --- Hostile uploads


class Raises(torch.Tensor):
    """A tensor that raises when it is read."""

    @classmethod
    def __torch_function__(cls, *_: object, **__: object) -> object:
        raise ZeroDivisionError


class Odd:
    """Something whose every comparison raises."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "hostile",
    [
        Upload(["c2"], 4, GOOD, 10),
        Upload(2, 4, GOOD, 10),
        Upload(None, 4, GOOD, 10),
        Upload(Odd(), 4, GOOD, 10),
        Upload("c2", Odd(), GOOD, 10),
        Upload("c2", 4, Odd(), 10),
        Upload("c2", 4, GOOD.as_subclass(Raises), 10),
        Upload("c2", 4, torch.nested.nested_tensor([GOOD], layout=torch.jagged), 10),
        Upload("c2", 4, GOOD, Odd()),
        Upload("c2", 4, GOOD, 10, Odd()),
        Upload("c2", 4, GOOD, 10, torch.ones(2, device="meta")),
        Upload("c2", 4, GOOD, 10, torch.ones(2).to_sparse()),
        Upload("c2", 4, GOOD, 10, torch.ones(2).to(torch.float8_e4m3fn)),
        "an update",
        None,
    ],
    ids=lambda upload: str(type(upload).__name__),
)
def test_no_upload_raises_an_error(hostile: Upload) -> None:
    good = Upload("c1", 4, GOOD, 10, torch.ones(2))
    valid = checked([hostile, good], feedback=2)
    assert valid.batch.ids.tolist() == [1]
    assert list(valid.rejected) in (["c2"], ["(no name)"])


def test_feedback_is_single_precision_and_has_no_gradient() -> None:
    feedback = torch.ones(2, dtype=torch.float64, requires_grad=True)
    valid = checked(
        [Upload("c1", 4, GOOD, 10, feedback), Upload("c2", 4, GOOD, 10, torch.zeros(2))], feedback=2
    )
    assert valid.batch.feedback.dtype == torch.float32
    assert not valid.batch.feedback.requires_grad
    assert valid.batch.feedback.tolist() == [[1, 1], [0, 0]]


# --- The matrix of updates

CLAIMS = st.one_of(st.integers(-2, 10**6), st.sampled_from([math.nan, math.inf, "many", None, 10**400]))
UPDATES = st.sampled_from(["row", "wire", "nan", "short", "text", "integer", "missing"])
CLIENT = st.tuples(UPDATES, CLAIMS, st.sampled_from([4, 4, 4, 3, "4"]), st.integers(1, 2))


def sent_for(kind: str, row: torch.Tensor) -> object:
    """Return what a client sends whose update is a row of the matrix."""
    forms = {"row": row, "wire": -row.clone(), "short": row[:-1], "text": "rubbish", "integer": row.long()}
    return row.mul_(math.nan) if kind == "nan" else forms[kind]


@settings(deadline=None, max_examples=50)
@given(clients=st.lists(CLIENT, max_size=8), stranger=st.booleans(), feedback=st.sampled_from([0, 2]))
def test_a_matrix_that_holds_the_updates_already_gives_the_same_batch(
    clients: list[tuple[str, object, object, int]], stranger: bool, feedback: int
):
    buffer = torch.randn(len(clients), SIZE, generator=torch.Generator().manual_seed(len(clients)))
    uploads = [Upload("stranger", 4, GOOD, 10)] if stranger else []
    for number, (kind, samples, answered, times) in enumerate(clients):
        if kind != "missing":
            update = sent_for(kind, buffer[number])
            uploads += times * [Upload(f"c{number}", answered, update, samples, torch.ones(2))]
    copies = [
        replace(upload, update=upload.update.clone()) if isinstance(upload.update, torch.Tensor) else upload
        for upload in uploads
    ]
    rows = {f"c{number}": number for number in range(len(clients))}
    expected = validate(copies, 4, rows, SIZE, feedback, 1)
    found = validate(uploads, 4, rows, SIZE, feedback, 1, buffer=buffer)
    assert found[1:] == expected[1:]
    for part in fields(Batch):
        one, other = getattr(found.batch, part.name), getattr(expected.batch, part.name)
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        else:
            assert one == other


def test_the_batch_is_the_matrix_itself_if_nothing_is_rejected():
    buffer = torch.randn(3, SIZE)
    before = buffer.clone()
    batch = validate([upload(k, buffer[k]) for k in range(3)], 4, ROWS, SIZE, buffer=buffer).batch
    assert batch.updates.data_ptr() == buffer.data_ptr()
    assert torch.equal(batch.updates, before)


# --- FedAvg on a validated batch


@pytest.mark.parametrize(
    ("rows", "samples", "expected", "uncounted"),
    [
        ([GOOD, 5 * GOOD], [30, 10], 2 * GOOD, set()),
        ([GOOD, math.nan * GOOD, 3 * GOOD], [10, 1e6, 10], 2 * GOOD, {1}),
        ([GOOD, math.inf * GOOD, 3 * GOOD], [10, 1e6, 10], 2 * GOOD, {1}),
        ([math.nan * GOOD] * 2, [1, 1], None, {0, 1}),
        ([], [], None, set()),
    ],
)
def test_fedavg_moves_by_the_mean_of_finite_rows_weighted_with_sample_counts(
    rows: list[torch.Tensor], samples: list[float], expected: torch.Tensor | None, uncounted: set[int]
):
    method = make("fedavg")
    state = method.init(torch.zeros(SIZE), Layout.of(nn.Linear(3, 1)))
    updates = torch.stack(rows) if rows else torch.empty(0, SIZE)
    batch = Batch(torch.arange(len(rows)), updates, torch.tensor(samples, dtype=torch.float64))
    found = end_round(method, state, batch)
    assert found.uncounted == uncounted
    assert found.verdict.removed == {}
    if expected is None:
        assert found.state is state
    else:
        np.testing.assert_allclose(found.state.model.numpy(), expected.numpy(), rtol=1e-6)
