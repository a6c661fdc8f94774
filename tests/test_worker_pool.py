"""Many clients' tasks: every pool gives the same bits, and so does one client alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training_tools import (
    TASKS,
    Brief,
    Collector,
    Pair,
    Swapper,
    assert_same,
    data_of,
    models_of,
    outcome,
    own_children,
    run,
    runner_of,
    states_of,
    tiny_data,
    tiny_runner,
    tiny_tasks,
)

from fedcap.errors import InputError
from fedcap.state import Tensors
from fedcap.training import (
    LocalData,
    Task,
    WorkerError,
    WorkerPool,
    available_cores,
    make_pool,
    single_thread,
)
from fedcap.training.workers import InProcessPool, ProcessPool
from fedcap.training.workers.shared_memory import MappedData, Memory, SharedData


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPool]:
    with ProcessPool(2) as pool:
        yield pool


@pytest.fixture(params=["this process", "processes"])
def pool(request: pytest.FixtureRequest, workers: ProcessPool) -> WorkerPool:
    return InProcessPool() if request.param == "this process" else workers


@pytest.fixture(scope="module")
def expected():
    """The results of the jobs in this process."""
    return outcome(InProcessPool(), runner_of(Pair()))


def test_one_client_alone_has_the_bits_that_a_pool_makes(pool: WorkerPool):
    """This is what a site of a federation does: it has only its own samples."""
    updates, states, hits = outcome(pool, runner_of(Pair()))
    bench, models = runner_of(Pair()), models_of(runner_of(Pair()))
    for place, job in enumerate(TASKS):
        data, state = data_of()[job.row], states_of(bench, [job])[0]
        with single_thread():
            work = bench.run(job, data, models[list(job.rows)], state)
        update = torch.zeros(bench.size) if work.update is None else work.update
        assert torch.equal(updates[place], update)
        assert torch.equal(states[place]["personal"], (work.kept or state)["personal"])
        done = work.performed
        assert hits[place] == (done.received_correct, done.personal_correct, done.finite)


def test_results_do_not_depend_on_the_order_of_the_tasks(pool: WorkerPool, expected):
    updates, states, hits = outcome(pool, runner_of(Pair()), TASKS[::-1])
    assert_same((updates.flip(0), states[::-1], hits[::-1]), expected)


def test_workers_compute_the_same_bits_as_this_process(workers: ProcessPool, expected):
    assert_same(outcome(workers, runner_of(Pair())), expected)
    assert_same(outcome(workers, None), expected)


def test_workers_serve_smaller_and_larger_batches_and_other_runners(workers: ProcessPool, expected):
    few = outcome(workers, runner_of(Pair()), TASKS[:2])
    assert_same(few, (expected[0][:2], expected[1][:2], expected[2][:2]))
    assert_same(outcome(workers, None), expected)
    assert_same(outcome(workers, None, TASKS[:2]), few)

    def tiny(pool: WorkerPool) -> Tensor:
        bench, jobs = tiny_runner(Pair()), tiny_tasks(2, (1,))
        pool.open(bench, tiny_data())
        return pool.run(jobs, models_of(bench), states_of(bench, jobs)).updates

    assert torch.equal(tiny(workers), tiny(InProcessPool()))
    assert_same(outcome(workers, runner_of(Pair())), expected)


def test_clients_may_receive_different_numbers_of_models(workers: ProcessPool):
    bench = tiny_runner(Pair())
    jobs = [
        Task("train", "a", 1, (1,), row=0),
        Task("train", "b", 1, (0, 1, 1), row=1),
        Task("train", "c", 1, (1, 0), row=2),
        Task("evaluate", "a", 1, (), evaluate=True, row=0),
    ]

    def found(pool: WorkerPool) -> Tensor:
        pool.open(bench, tiny_data())
        return pool.run(jobs, models_of(bench), states_of(bench, jobs)).updates

    assert torch.equal(found(workers), found(InProcessPool()))


def test_updates_are_in_the_rows_that_are_asked_for_and_other_rows_are_zeros(pool: WorkerPool):
    bench, jobs = tiny_runner(Pair()), tiny_tasks()
    pool.open(bench, tiny_data())
    states = states_of(bench, jobs)
    plain = pool.run(jobs, models_of(bench), states).updates
    placed = pool.run(jobs, models_of(bench), states, rows=[4, 0, 2], count=6).updates
    assert torch.equal(placed[[4, 0, 2]], plain)
    assert not placed[[1, 3, 5]].any()


def test_a_batch_of_no_tasks_makes_no_updates(pool: WorkerPool):
    bench = tiny_runner(Pair())
    pool.open(bench, tiny_data())
    found = pool.run([], models_of(bench), [])
    assert found.updates.shape == (0, bench.size)
    assert found.results == []
    assert torch.equal(pool.run([], models_of(bench), [], count=2).updates, torch.zeros(2, bench.size))


def test_the_matrix_of_updates_belongs_to_the_caller(pool: WorkerPool):
    bench, jobs = tiny_runner(Pair()), tiny_tasks()
    pool.open(bench, tiny_data())
    states = states_of(bench, jobs)
    updates = pool.run(jobs, models_of(bench), states).updates
    before = updates.clone()
    updates[1] = 7.0
    again = pool.run(jobs, models_of(bench), states).updates
    assert torch.equal(again, before)
    assert bool((updates[1] == 7.0).all())
    assert torch.equal(updates[0], before[0])


def test_evaluation_has_no_matrix_of_updates(pool: WorkerPool):
    bench = tiny_runner(Pair())
    pool.open(bench, tiny_data())
    jobs = [Task("evaluate", client, 1, (0,), True, row=row) for row, client in enumerate("abc")]
    found = pool.run(jobs, models_of(bench), states_of(bench, jobs), count=1000)
    assert found.updates.shape == (0, bench.size)
    assert len(found.results) == 3


def memory_files(process: int) -> int:
    """How many memory files a process has open or mapped."""
    count = Path(f"/proc/{process}/maps").read_text().count("memfd:")
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            count += "memfd:" in os.readlink(entry)
    return count


def test_shared_memory_does_not_grow_with_the_number_of_batches(workers: ProcessPool):
    bench, jobs = tiny_runner(Pair()), tiny_tasks()
    workers.open(bench, tiny_data())
    counts = set()
    for count in (3, 50, 7, 3):
        workers.run(jobs, models_of(bench), states_of(bench, jobs), count=count)
        gc.collect()
        counts.add(tuple(map(memory_files, sorted({os.getpid(), *own_children()}))))
    assert len(counts) == 1


def test_the_whole_state_comes_back_by_name_and_in_shape(pool: WorkerPool):
    jobs = tiny_tasks(1, (1,))
    states: list[Tensors] = [
        {"matrix": torch.full((2, 3), float(n)), "personal": kept["personal"], "other": kept["personal"]}
        for n, kept in enumerate(states_of(tiny_runner(Collector()), jobs))
    ]
    states[1] = dict(reversed(states[1].items()))  # by name, not by order
    bench = tiny_runner(Collector())
    pool.open(bench, tiny_data())
    for n, state in enumerate(run(pool, jobs, models_of(bench), states)[1]):
        assert {name: tuple(t.shape) for name, t in state.items()} == {
            "matrix": (2, 3),
            "personal": (18,),
            "other": (18,),
        }
        assert torch.equal(state["matrix"], torch.full((2, 3), n + 1.0))
        assert not torch.equal(state["personal"], state["other"])


def test_only_training_stores_a_state(pool: WorkerPool):
    bench = tiny_runner(Pair())
    pool.open(bench, tiny_data())
    jobs = [
        Task("request", "a", 1, (0,), row=0),
        Task("train", "b", 1, (0,), row=1),
        Task("evaluate", "c", 1, (0,), True, row=2),
    ]
    stored = []
    found = pool.run(
        jobs, models_of(bench), states_of(bench, jobs), store=lambda place, state: stored.append(place)
    )
    assert stored == [1]
    assert [bool(row.any()) for row in found.updates] == [True, True, False]


def test_clients_may_have_no_state_at_all(pool: WorkerPool):
    bench = tiny_runner(Pair())
    pool.open(bench, tiny_data())
    job = Task("request", "a", 1, (0,))
    expected = pool.run([job], models_of(bench), states_of(bench, [job])).updates
    assert torch.equal(pool.run([job], models_of(bench), [{}]).updates, expected)


def test_a_state_can_be_stored_over_the_one_before(pool: WorkerPool):
    bench, jobs = tiny_runner(Swapper()), tiny_tasks()
    pool.open(bench, tiny_data())
    states = [{"personal": torch.full((18,), float(n)), "former": torch.zeros(18)} for n in range(3)]

    def store(place: int, state: Tensors) -> None:
        for name, tensor in state.items():
            states[place][name].copy_(tensor)

    pool.run(jobs, models_of(bench), states, store=store)
    for n, state in enumerate(states):
        assert torch.equal(state["former"], torch.full((18,), float(n)))
        assert torch.equal(state["personal"], models_of(bench)[0])


def test_a_task_that_cannot_be_done_names_the_client(pool: WorkerPool):
    bench = tiny_runner(Brief())
    for job, reason in (
        (Task("train", "b", 1, (0,), row=1), "client b: ValueError: the update should have"),
        (Task("train", "nobody", 1, (0,), row=3), "client nobody: "),
    ):
        pool.open(bench, tiny_data())
        with pytest.raises(WorkerError, match=reason):
            pool.run([job], models_of(bench), states_of(bench, [job]))


@pytest.mark.parametrize("pool_type", [InProcessPool, partial(ProcessPool, 2)])
def test_a_pool_that_was_not_opened_raises_an_error(pool_type):
    bench = runner_of(Pair())
    with pytest.raises(WorkerError, match="open it first"):
        pool_type().run(TASKS, models_of(bench), states_of(bench, TASKS))


def test_a_pool_has_processes_for_more_than_one_worker_on_the_processor():
    assert isinstance(make_pool(2), ProcessPool if available_cores() > 1 else InProcessPool)
    assert isinstance(make_pool(1), InProcessPool)
    assert isinstance(make_pool(2, "cuda"), InProcessPool)
    assert isinstance(make_pool(), ProcessPool if available_cores() > 1 else InProcessPool)
    with pytest.raises(InputError, match=r"workers .* \(got 0\)"):
        make_pool(0)


@pytest.mark.parametrize("data", [data_of(), tiny_data()], ids=["images", "vectors"])
def test_a_worker_sees_the_samples_of_each_client(data: list[LocalData]):
    with Memory() as memory:
        mapped = MappedData(SharedData.copy(data, memory))
        for client, local in enumerate(data):
            for found, expected in ((mapped[client].train, local.train), (mapped[client].test, local.test)):
                assert torch.equal(found.x, expected.x)
                assert torch.equal(found.y, expected.y)
                layout = torch.channels_last if expected.x.ndim == 4 else torch.contiguous_format
                assert found.x.is_contiguous(memory_format=layout)
        with pytest.raises(IndexError):
            mapped[len(data)]


def test_samples_that_are_not_alike_are_refused():
    with Memory() as memory, pytest.raises(ValueError, match="should be alike"):
        SharedData.copy([data_of()[0], tiny_data()[0]], memory)
