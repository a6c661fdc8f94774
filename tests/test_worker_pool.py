"""Many clients' tasks: every pool gives the same bits as one client alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refused
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

from fedcap.state import Tensors, map_array, mapped_file
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
from fedcap.training.workers.shared_memory import Memory, Packed, pack, unpack


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPool]:
    with ProcessPool(2) as pool:
        yield pool


@pytest.fixture(params=["this process", "processes"])
def pool(request: pytest.FixtureRequest, workers: ProcessPool) -> WorkerPool:
    return InProcessPool() if request.param == "this process" else workers


@pytest.fixture(scope="module")
def expected():
    """The results of the tasks in this process."""
    return outcome(InProcessPool(), runner_of(Pair()))


def test_one_client_alone_has_the_bits_that_a_pool_makes(pool: WorkerPool):
    """This is what a site of a federation does: it has only its own samples."""
    updates, states, hits = outcome(pool, runner_of(Pair()))
    runner, models = runner_of(Pair()), models_of(runner_of(Pair()))
    for place, task in enumerate(TASKS):
        data, state = data_of()[task.row], states_of(runner, [task])[0]
        with single_thread():
            result = runner.run(task, data, models[list(task.models)], state)
        update = torch.zeros(runner.size) if result.update is None else result.update
        assert torch.equal(updates[place], update)
        assert torch.equal(states[place]["personal"], (result.state or state)["personal"])
        assert hits[place] == (result.received_correct, result.personal_correct, result.is_finite)


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
        runner, tasks = tiny_runner(Pair()), tiny_tasks(2, (1,))
        pool.open(runner, tiny_data())
        return pool.run(tasks, models_of(runner), states_of(runner, tasks).__getitem__).updates

    assert torch.equal(tiny(workers), tiny(InProcessPool()))
    assert_same(outcome(workers, runner_of(Pair())), expected)


def test_clients_may_receive_different_numbers_of_models(workers: ProcessPool):
    runner = tiny_runner(Pair())
    tasks = [
        Task("train", "a", 1, (1,), row=0),
        Task("train", "b", 1, (0, 1, 1), row=1),
        Task("train", "c", 1, (1, 0), row=2),
        Task("evaluate", "a", 1, (), evaluate=True, row=0),
    ]

    def found(pool: WorkerPool) -> Tensor:
        pool.open(runner, tiny_data())
        return pool.run(tasks, models_of(runner), states_of(runner, tasks).__getitem__).updates

    assert torch.equal(found(workers), found(InProcessPool()))


def test_updates_are_in_the_rows_that_are_asked_for_and_other_rows_are_zeros(pool: WorkerPool):
    runner, tasks = tiny_runner(Pair()), tiny_tasks()
    pool.open(runner, tiny_data())
    states = states_of(runner, tasks)
    plain = pool.run(tasks, models_of(runner), states.__getitem__).updates
    placed = pool.run(tasks, models_of(runner), states.__getitem__, rows=[4, 0, 2], count=6).updates
    assert torch.equal(placed[[4, 0, 2]], plain)
    assert not placed[[1, 3, 5]].any()


def test_a_batch_of_no_tasks_makes_no_updates(pool: WorkerPool):
    runner = tiny_runner(Pair())
    pool.open(runner, tiny_data())
    found = pool.run([], models_of(runner), {}.__getitem__)
    assert found.updates.shape == (0, runner.size)
    assert found.results == []
    assert torch.equal(
        pool.run([], models_of(runner), {}.__getitem__, count=2).updates, torch.zeros(2, runner.size)
    )


def test_the_caller_may_write_into_the_matrix_of_updates(pool: WorkerPool):
    bench, jobs = tiny_runner(Pair()), tiny_tasks()
    pool.open(bench, tiny_data())
    states = states_of(bench, jobs)
    expected = pool.run(jobs, models_of(bench), states.__getitem__, [0, 1, 3], 5).updates.clone()
    pool.run(jobs, models_of(bench), states.__getitem__, [0, 1, 3], 5).updates.fill_(7.0)
    assert torch.equal(pool.run(jobs, models_of(bench), states.__getitem__, [0, 1, 3], 5).updates, expected)


def test_updates_of_training_outlive_requests_and_evaluations(pool: WorkerPool):
    bench, jobs = tiny_runner(Pair()), tiny_tasks()
    pool.open(bench, tiny_data())
    states = states_of(bench, jobs)
    updates = pool.run(jobs, models_of(bench), states.__getitem__).updates
    before = updates.clone()
    for kind in ("request", "evaluate"):
        others = [replace(job, kind=kind, evaluate=True) for job in jobs]
        pool.run(others, models_of(bench), states.__getitem__)
    assert torch.equal(updates, before)


def test_evaluation_has_no_matrix_of_updates(pool: WorkerPool):
    runner = tiny_runner(Pair())
    pool.open(runner, tiny_data())
    tasks = [Task("evaluate", client, 1, (0,), evaluate=True, row=row) for row, client in enumerate("abc")]
    found = pool.run(tasks, models_of(runner), states_of(runner, tasks).__getitem__, count=1000)
    assert found.updates.shape == (0, runner.size)
    assert len(found.results) == 3


def memory_files(process: int) -> int:
    """How many memory files a process has open or mapped."""
    count = Path(f"/proc/{process}/maps").read_text().count("memfd:")
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            count += "memfd:" in os.readlink(entry)
    return count


def test_shared_memory_does_not_grow_with_the_number_of_batches(workers: ProcessPool):
    runner, tasks = tiny_runner(Pair()), tiny_tasks()
    workers.open(runner, tiny_data())
    counts = set()
    for count in (3, 50, 7, 3):
        workers.run(tasks, models_of(runner), states_of(runner, tasks).__getitem__, count=count)
        gc.collect()
        counts.add(tuple(map(memory_files, sorted({os.getpid(), *own_children()}))))
    assert len(counts) == 1


def test_the_whole_state_comes_back_by_name_and_in_shape(pool: WorkerPool):
    tasks = tiny_tasks(1, (1,))
    states: list[Tensors] = [
        {"matrix": torch.full((2, 3), float(n)), "personal": kept["personal"], "other": kept["personal"]}
        for n, kept in enumerate(states_of(tiny_runner(Collector()), tasks))
    ]
    states[1] = dict(reversed(states[1].items()))  # by name, not by order
    runner = tiny_runner(Collector())
    pool.open(runner, tiny_data())
    for n, state in enumerate(run(pool, tasks, models_of(runner), states)[1]):
        assert {name: tuple(t.shape) for name, t in state.items()} == {
            "matrix": (2, 3),
            "personal": (18,),
            "other": (18,),
        }
        assert torch.equal(state["matrix"], torch.full((2, 3), n + 1.0))
        assert not torch.equal(state["personal"], state["other"])


def test_only_training_stores_a_state(pool: WorkerPool):
    runner = tiny_runner(Pair())
    pool.open(runner, tiny_data())
    tasks = [
        Task("request", "a", 1, (0,), row=0),
        Task("train", "b", 1, (0,), row=1),
        Task("evaluate", "c", 1, (0,), evaluate=True, row=2),
    ]
    stored = []
    found = pool.run(
        tasks,
        models_of(runner),
        states_of(runner, tasks).__getitem__,
        store=lambda place, state: stored.append(place),
    )
    assert stored == [1]
    assert [bool(row.any()) for row in found.updates] == [True, True, False]


def test_a_state_is_loaded_when_its_task_begins(pool: WorkerPool):
    runner, tasks = tiny_runner(Pair()), tiny_tasks()
    pool.open(runner, tiny_data())
    states, waiting = states_of(runner, tasks), []

    def load(place: int) -> Tensors:
        waiting.append(place)
        assert len(waiting) <= 2  # one for each worker
        return states[place]

    pool.run(tasks, models_of(runner), load, store=lambda place, state: waiting.remove(place))
    assert waiting == []


def test_clients_may_have_no_state_at_all(pool: WorkerPool):
    runner = tiny_runner(Pair())
    pool.open(runner, tiny_data())
    task = Task("request", "a", 1, (0,))
    expected = pool.run([task], models_of(runner), states_of(runner, [task]).__getitem__).updates
    assert torch.equal(pool.run([task], models_of(runner), lambda _: {}).updates, expected)


def test_a_state_can_be_stored_over_the_one_before(pool: WorkerPool):
    runner, tasks = tiny_runner(Swapper()), tiny_tasks()
    pool.open(runner, tiny_data())
    states = [{"personal": torch.full((18,), float(n)), "former": torch.zeros(18)} for n in range(3)]

    def store(place: int, state: Tensors) -> None:
        for name, tensor in state.items():
            states[place][name].copy_(tensor)

    pool.run(tasks, models_of(runner), states.__getitem__, store=store)
    for n, state in enumerate(states):
        assert torch.equal(state["former"], torch.full((18,), float(n)))
        assert torch.equal(state["personal"], models_of(runner)[0])


def test_a_task_that_cannot_be_done_names_the_client(pool: WorkerPool):
    runner = tiny_runner(Brief())
    for task, reason in (
        (Task("train", "b", 1, (0,), row=1), "client b: ValueError: the update should have"),
        (Task("train", "nobody", 1, (0,), row=3), "client nobody: "),
    ):
        pool.open(runner, tiny_data())
        with pytest.raises(WorkerError, match=reason):
            pool.run([task], models_of(runner), states_of(runner, [task]).__getitem__)


@pytest.mark.parametrize("pool_type", [InProcessPool, partial(ProcessPool, 2)])
def test_a_pool_that_was_not_opened_raises_an_error(pool_type):
    runner = runner_of(Pair())
    with pytest.raises(WorkerError, match="open it first"):
        pool_type().run(TASKS, models_of(runner), states_of(runner, TASKS).__getitem__)


def test_a_pool_has_processes_for_more_than_one_worker_on_the_processor():
    assert isinstance(make_pool(2), ProcessPool if available_cores() > 1 else InProcessPool)
    assert isinstance(make_pool(1), InProcessPool)
    assert isinstance(make_pool(2, "cuda"), InProcessPool)
    assert isinstance(make_pool(), ProcessPool if available_cores() > 1 else InProcessPool)
    with refused("bad-value"):
        make_pool(0)


@pytest.mark.parametrize("data", [data_of(), tiny_data()], ids=["images", "vectors"])
def test_a_worker_sees_the_samples_of_each_client(data: list[LocalData]):
    with Memory() as memory:
        opened = Packed.of(data, memory).open()
        assert len(opened) == len(data)
        for found, expected in zip(opened, data, strict=True):
            for mine, true in ((found.train, expected.train), (found.test, expected.test)):
                assert torch.equal(mine.x, true.x)
                assert torch.equal(mine.y, true.y)
                assert mine.x.stride() == true.x.stride()


def test_images_with_channels_last_stay_so():
    image = torch.rand(4, 3, 5, 6).to(memory_format=torch.channels_last)
    with Memory() as memory:
        found = Packed.of([image, image[:0]], memory).open()
    assert torch.equal(found[0], image)
    assert found[0].stride() == image.stride()
    assert found[1].shape == (0, 3, 5, 6)


def test_a_tensor_is_copied_once_and_a_mapped_one_not_at_all(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.arange(100_000))
    mapped, plain = map_array(tmp_path / "x.npy"), torch.arange(1000)
    with Memory() as memory:
        packed = Packed.of({"a": mapped, "b": plain, "c": plain, "d": mapped[:10]}, memory)
        found = packed.open()
        assert packed.tensors.shape[0] < 8 * 1000 + 8 * 10 + 3 * 64
    assert torch.equal(found["a"], mapped)
    assert torch.equal(found["b"], plain)
    assert torch.equal(found["d"], torch.arange(10))
    assert mapped_file(found["a"]) == tmp_path / "x.npy"


def test_samples_for_other_machines_are_packed_with_their_mapped_tensors(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.arange(1000))
    mapped, image = map_array(tmp_path / "x.npy"), torch.rand(4, 3, 5, 6)
    content, tensors = pack([mapped, image.to(memory_format=torch.channels_last), mapped])
    (tmp_path / "x.npy").unlink()
    first, second, third = unpack(content, torch.from_numpy(tensors.copy()))
    assert torch.equal(first, torch.arange(1000))
    assert third is not mapped
    assert torch.equal(third, first)
    assert torch.equal(second, image)
    assert second.is_contiguous(memory_format=torch.channels_last)
    assert len(content) < 500
    assert len(tensors) < 8 * 1000 + 4 * image.numel() + 3 * 64


class Local:
    """Samples that no worker can make: its class is unknown to pickle."""

    def __init__(self) -> None:
        self.make = lambda client: tiny_data()[client]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, client: int) -> LocalData:
        return self.make(client)

    def __iter__(self) -> Iterator[LocalData]:
        return map(self.make, range(3))


def test_samples_that_workers_cannot_make_are_made_here(workers: ProcessPool):
    runner = tiny_runner(Pair())
    found = []
    for data in (tiny_data(), Local()):
        workers.open(runner, data)
        found.append(
            run(workers, tiny_tasks(), models_of(runner), states_of(runner, tiny_tasks()))[0].updates.clone()
        )
    assert torch.equal(*found)
