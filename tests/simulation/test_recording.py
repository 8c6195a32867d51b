import json

import numpy as np
import pytest

from benchkit.measure.run_ids import new_id
from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.entrypoint import simulate_request
from benchkit.simulation.graph import Submission, VirtualGraph
from benchkit.simulation.model import ClusterShape
from benchkit.simulation.synthetic import make_graph
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run


def simulated_run(folder, graph, draw=0, **shape):
    request = {
        "graph": graph.to_dict(),
        "shape": shape,
        "model": {},
        "draw": draw,
        "folder": str(folder),
        "id": new_id(),
        "facts": {"workload": graph.name, "category": "graph", "environment": "current"},
    }
    return Run(run_from_recording(simulate_request(json.loads(json.dumps(request)))))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    graph = make_graph("reduction_over_time", {"times": 12, "space": 4})
    return simulated_run(tmp_path_factory.mktemp("runs"), graph, workers=3, threads=2)


def test_recording_becomes_a_run_marked_as_simulated(run):
    assert run.outcome == "ok"
    assert run.simulated
    assert run.record["simulated"] == 1
    assert run.record["cluster"] == "benchkit.VirtualCluster"
    assert (run.record["n_workers"], run.record["n_threads"]) == (3, 6)
    assert run.summary_line.startswith("simulated, ")
    assert repr(run).endswith("simulated>")


def test_run_has_the_metrics_of_its_simulation(run):
    graph = make_graph("reduction_over_time", {"times": 12, "space": 4})
    cluster = simulate_graph(graph, ClusterShape(3, 2))

    assert run.simulation["digest"] == cluster.digest
    assert run.duration == pytest.approx(cluster.duration, abs=1e-6)
    assert run.n_tasks == len(graph.keys)
    assert run.compute_time == pytest.approx(sum(graph.seconds), rel=1e-6)
    transfers = list(cluster.transfers.values())
    assert run.n_transfers == sum(row[0] for row in transfers)
    assert run.transfer_bytes == sum(row[1] for row in transfers)
    busy = cluster.loop.busy / cluster.duration
    assert run.simulation["scheduler_busy"] == pytest.approx(busy)


def test_run_names_what_a_virtual_cluster_does_not_model(run):
    (limit,) = run.quality().to_dict("records")

    assert limit["text"] == "this run is simulated: a virtual cluster does not model it"
    assert {"cpu_time", "gil_contention_mean", "scheduler_memory_peak"} <= set(
        limit["metrics"].split(", ")
    )


def test_run_has_the_graph_that_was_simulated(run):
    graph = make_graph("reduction_over_time", {"times": 12, "space": 4})

    recorded = run.task_graph()

    assert len(recorded) == len(graph.keys)
    assert len(recorded.indices) == sum(map(len, graph.dependencies))
    keys = [run.task_keys()[row] for row in recorded.row]
    number = {str(key): index for index, key in enumerate(graph.keys)}
    for node, key in enumerate(keys):
        first, last = recorded.indptr[node : node + 2]
        dependencies = {keys[other] for other in recorded.indices[first:last]}
        assert dependencies == {str(graph.keys[other]) for other in graph.dependencies[number[key]]}
    assert np.isinf(recorded.released[[keys.index(str(graph.keys[-1]))]])


def test_data_from_before_the_clock_are_not_part_of_the_run(tmp_path):
    graph = VirtualGraph(
        ["kept", "used"], [[], [0]], [5.0, 1.0], [10, 10],
        submissions=[Submission([0], [0]), Submission([1], [1])], n_before=1, tail_s=0.5,
        name="graph.two",
    )  # fmt: skip

    run = simulated_run(tmp_path, graph, workers=1, threads=1)

    assert run.n_tasks == 1
    assert run.duration == pytest.approx(1.5, abs=0.02)


def test_p2p_shuffle_gives_a_skipped_run_with_the_reason(tmp_path):
    graph = VirtualGraph([("shuffle-barrier-0a", 0)], [[]], [1.0], [1], name="graph.p2p")

    run = simulated_run(tmp_path, graph, workers=1, threads=1)

    assert run.outcome == "skipped"
    assert run.error == (
        "task shuffle-barrier-0a: P2P shuffles move data outside of the graph and cannot be "
        "simulated; use the method tasks"
    )
