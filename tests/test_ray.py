"""A real Ray cluster of two nodes: the same bits as any other engine, also if a node is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import Nodes
from run_tools import SMALL, assert_same

import fedcap
from benchmarks.ray import costs
from fedcap.experiments import RayEngine
from fedcap.experiments.comparison import Comparison
from fedcap.experiments.engine import Engine
from fedcap.experiments.grid import Cell, Grid
from fedcap.experiments.local import LocalEngine
from fedcap.experiments.store import CellStore, GridStatus, prepare
from fedcap.runs import Outcome, RoundRecord
from fedcap.training import make_pool
from fedcap.training.workers.ray import RayCluster

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-extras runs these tests")
pytestmark = pytest.mark.slow

RUN = {key: value for key, value in SMALL.items() if key != "attack"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Nodes()
        yield cluster
        cluster.close()


@pytest.fixture
def two_nodes(nodes: Nodes) -> Iterator[Nodes]:
    with RayCluster(nodes.address):  # this process is beside the head, and not beside the node to be killed
        nodes.add()
        yield nodes
        nodes.kill()


class Watching:
    """A watcher that counts starts and failures; when both patient cells are under way, it kills a node."""

    def __init__(self, nodes: Nodes | None = None, then: Path | None = None) -> None:
        self.starts: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        self.rounds: set[int] = set()
        self._nodes, self._then = nodes, then

    def started(self, cell: Cell) -> None:
        self.starts[cell.place["method"], cell.place["attack"]] += 1
        patient = [method for method, _ in self.starts if method == "Patient"]
        if self._nodes is not None and self._then is not None and len(patient) == 2:
            self._nodes.kill()
            self._then.touch()

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        self.rounds.add(round)

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        pass

    def failed(self, cell: Cell, why: str) -> None:
        self.failures.append(why)


def tables(engine: Engine, cells: list[Cell], out: Path, watching: Watching) -> list[str]:
    store = CellStore(out)
    engine.run(prepare(cells, store).left, store, watching)
    places = [cell.place for cell in cells]
    made = Comparison.of(GridStatus.of(cells, store).finished, "Patient", places)
    return [table.markdown() for table in made.tables()]


def test_a_grid_of_which_a_node_is_killed_half_way_has_the_tables_of_the_local_engine(
    two_nodes: Nodes, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    methods = {
        "Patient": {"name": "cluster_tools:Patient", "file": str(go)},
        "Broken": {"name": "cluster_tools:Broken"},
    }
    cells = Grid(methods=methods, attacks="none,ipm", **RUN).cells()
    watching, local = Watching(two_nodes, go), Watching()
    found = tables(RayEngine(two_nodes.address), cells, tmp_path / "ray", watching)
    assert found == tables(LocalEngine(2), cells, tmp_path / "local", local)
    broken = ["ArithmeticError: the server broke down"] * 2
    assert watching.failures == local.failures == broken
    # Both nodes were waiting in a patient cell; the one that died with its node was played anew.
    starts = Counter(method for method, _ in watching.starts.elements())
    assert starts == {"Patient": 3, "Broken": 2}
    assert watching.rounds == local.rounds == {1, 2, 3}


def test_a_run_of_which_a_node_is_killed_half_way_has_the_bits_of_one_process(
    two_nodes: Nodes, tmp_path: Path
) -> None:
    class Killer:
        def started(self, simulation: object) -> None:
            assert ray.cluster_resources()["CPU"] == 2

        def round_done(self, simulation: object, record: RoundRecord) -> None:
            if record.round == 1:
                two_nodes.kill()

        def finished(self, result: object) -> None:
            pass

    experiment = fedcap.Experiment(**RUN)
    with make_pool(engine="ray", address=two_nodes.address) as crew:
        experiment.run(tmp_path / "ray", crew, [Killer()])
    with make_pool(1) as crew:
        experiment.run(tmp_path / "local", crew)
    assert_same(tmp_path / "ray", tmp_path / "local")


def test_the_benchmark_measures_what_a_task_costs(nodes: Nodes) -> None:
    with RayCluster(nodes.address) as cluster:
        found = costs(cluster, tasks=3)
    assert found.keys() == {"first task, s", "one task, ms"}
    assert min(found.values()) > 0
