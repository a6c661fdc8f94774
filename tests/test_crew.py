"""Many clients' jobs: the same bits whichever crew does them, and whether one client works alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor
from training_tools import (
    JOBS,
    Brief,
    Collector,
    Pair,
    assert_same,
    bench_of,
    data_of,
    keeps_of,
    models_of,
    outcome,
    tiny_bench,
    tiny_data,
)

from fedcap.errors import InputError
from fedcap.state import Tensors
from fedcap.training import Crew, Job, WorkerError, available_cores, make_crew, single_thread
from fedcap.training.workers import ProcessCrew, SoloCrew
from fedcap.training.workers.base import Packing


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessCrew]:
    with ProcessCrew(2) as crew:
        yield crew


@pytest.fixture(params=["solo", "processes"])
def crew(request: pytest.FixtureRequest, workers: ProcessCrew) -> Crew:
    return SoloCrew() if request.param == "solo" else workers


@pytest.fixture(scope="module")
def solo():
    """What the jobs come to when done in this process."""
    return outcome(SoloCrew(), bench_of(Pair()))


def test_one_client_alone_makes_the_bits_that_a_crew_makes_of_it(crew: Crew):
    """What a site of a federation does: a bench and its own samples, and nobody else's."""
    updates, keeps, hits = outcome(crew, bench_of(Pair()))
    bench, models = bench_of(Pair()), models_of(bench_of(Pair()))
    for place, job in enumerate(JOBS):
        data, kept = data_of()[job.client], keeps_of(bench, [job])[0]
        with single_thread():
            work = bench.perform(job, data, models[list(job.rows)], kept)
        update = torch.zeros(bench.size) if work.update is None else work.update
        assert torch.equal(updates[place], update)
        assert torch.equal(keeps[place]["personal"], (work.kept or kept)["personal"])
        done = work.performed
        assert hits[place] == (done.shared_correct, done.personal_correct, done.finite)


def test_results_do_not_depend_on_the_order_of_the_jobs(crew: Crew, solo):
    updates, keeps, hits = outcome(crew, bench_of(Pair()), JOBS[::-1])
    assert_same((updates.flip(0), keeps[::-1], hits[::-1]), solo)


def test_workers_compute_the_same_bits_as_this_process(workers: ProcessCrew, solo):
    assert_same(outcome(workers, bench_of(Pair())), solo)
    assert_same(outcome(workers, None), solo)


def test_workers_serve_smaller_and_larger_batches_and_other_benches(workers: ProcessCrew, solo):
    few = outcome(workers, bench_of(Pair()), JOBS[:2])
    assert_same(few, (solo[0][:2], solo[1][:2], solo[2][:2]))
    assert_same(outcome(workers, None), solo)
    assert_same(outcome(workers, None, JOBS[:2]), few)

    def tiny(crew: Crew) -> Tensor:
        bench = tiny_bench(Pair())
        crew.open(bench, tiny_data())
        jobs = [Job("train", client, 2, (1,)) for client in tiny_data()]
        return crew.run(jobs, models_of(bench), keeps_of(bench, jobs)).updates.clone()

    assert torch.equal(tiny(workers), tiny(SoloCrew()))
    assert_same(outcome(workers, bench_of(Pair())), solo)


def test_a_batch_of_no_jobs_has_no_rows(crew: Crew):
    bench = tiny_bench(Pair())
    crew.open(bench, tiny_data())
    found = crew.run([], models_of(bench), [])
    assert found.updates.shape == (0, bench.size)
    assert (found.keeps, found.performed) == ([], [])


def collected(crew: Crew, jobs: Sequence[Job], keeps: Sequence[Tensors]) -> list[Tensors]:
    bench = tiny_bench(Collector())
    crew.open(bench, tiny_data())
    return crew.run(jobs, models_of(bench), keeps).keeps


def test_everything_a_client_keeps_comes_back_by_name_and_in_shape(crew: Crew):
    jobs = [Job("train", client, 1, (1,)) for client in tiny_data()]
    start = keeps_of(tiny_bench(Collector()), jobs)
    keeps = [
        {"matrix": torch.full((2, 3), float(n)), "personal": kept["personal"], "other": kept["personal"]}
        for n, kept in enumerate(start)
    ]
    keeps[1] = dict(reversed(keeps[1].items()))  # by name, not by order
    found = collected(crew, jobs, keeps)
    for n, kept in enumerate(found):
        assert {name: tuple(t.shape) for name, t in kept.items()} == {
            "matrix": (2, 3),
            "personal": (18,),
            "other": (18,),
        }
        assert torch.equal(kept["matrix"], torch.full((2, 3), n + 1.0))
        assert not torch.equal(kept["personal"], kept["other"])


def test_jobs_that_do_not_train_hand_back_what_came_in(crew: Crew):
    bench = tiny_bench(Pair())
    crew.open(bench, tiny_data())
    jobs = [Job("request", "a", 1, (0,)), Job("train", "b", 1, (0,)), Job("evaluate", "c", 1, (0,), True)]
    keeps = keeps_of(bench, jobs)
    found = crew.run(jobs, models_of(bench), keeps)
    assert [after is before for after, before in zip(found.keeps, keeps, strict=True)] == [True, False, True]
    assert [bool(row.any()) for row in found.updates] == [True, True, False]


def test_clients_may_keep_nothing_at_all(crew: Crew):
    bench = tiny_bench(Pair())
    crew.open(bench, tiny_data())
    job = Job("request", "a", 1, (0,))
    expected = crew.run([job], models_of(bench), keeps_of(bench, [job])).updates.clone()
    found = crew.run([job], models_of(bench), [{}])
    assert torch.equal(found.updates, expected)
    assert found.keeps == [{}]


def test_what_one_batch_keeps_can_be_handed_to_the_next(crew: Crew):
    def after(first_kept_is_copied: bool) -> Tensor:
        bench = tiny_bench(Pair())
        crew.open(bench, tiny_data())
        jobs = [Job("train", client, 1, (0,)) for client in tiny_data()]
        keeps = crew.run(jobs, models_of(bench), keeps_of(bench, jobs)).keeps
        if first_kept_is_copied:
            keeps = [{"personal": kept["personal"].clone()} for kept in keeps]
        found = crew.run(jobs, models_of(bench), keeps).keeps
        return torch.stack([kept["personal"] for kept in found]).clone()

    assert torch.equal(after(True), after(False))


def test_clients_that_keep_different_things_are_refused(crew: Crew):
    bench = tiny_bench(Pair())
    crew.open(bench, tiny_data())
    jobs = [Job("train", "a", 1, (0,)), Job("train", "b", 1, (0,))]
    keeps = [*keeps_of(bench, jobs[:1]), {"head": torch.zeros(2)}]
    with pytest.raises(ValueError, match=r"'personal': \(18,\).*'head': \(2,\)"):
        crew.run(jobs, models_of(bench), keeps)


def test_a_job_that_cannot_be_done_names_the_client(crew: Crew):
    bench = tiny_bench(Brief())
    for job, reason in (
        (Job("train", "b", 1, (0,)), "client b: ValueError: the update should have"),
        (Job("train", "nobody", 1, (0,)), "client nobody: KeyError"),
    ):
        crew.open(bench, tiny_data())
        with pytest.raises(WorkerError, match=reason):
            crew.run([job], models_of(bench), keeps_of(bench, [job]))


@pytest.mark.parametrize("crew_type", [SoloCrew, partial(ProcessCrew, 2)])
def test_a_crew_that_was_not_opened_does_not_pretend_to_have_worked(crew_type):
    bench = bench_of(Pair())
    with pytest.raises(WorkerError, match="open it first"):
        crew_type().run(JOBS, models_of(bench), keeps_of(bench, JOBS))


def test_a_crew_has_workers_if_there_is_more_than_one_and_the_device_is_the_processor():
    assert isinstance(make_crew(2), ProcessCrew if available_cores() > 1 else SoloCrew)
    assert isinstance(make_crew(1), SoloCrew)
    assert isinstance(make_crew(2, "cuda"), SoloCrew)
    assert isinstance(make_crew(), ProcessCrew if available_cores() > 1 else SoloCrew)
    with pytest.raises(InputError, match=r"workers .* \(got 0\)"):
        make_crew(0)


def test_a_packed_row_has_the_tensors_one_after_the_other():
    kept = {"personal": torch.arange(4.0), "head": torch.arange(4.0, 10).view(3, 2)}
    packing = Packing.of([kept])
    row = torch.full((12,), -1.0)
    packing.pack(kept, row)
    assert packing.size == 10
    assert row.tolist() == [*range(10), -1, -1]
    back = packing.unpack(row)
    assert torch.equal(back["personal"], kept["personal"])
    assert torch.equal(back["head"], kept["head"])
    back["head"][0, 0] = 99
    assert row[4] == 99
