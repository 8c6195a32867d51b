import json
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from benchkit.simulation import synthetic
from benchkit.simulation.cluster import SimulationError, run_to_end, simulate_graph
from benchkit.simulation.graph import Submission, UnsupportedGraph, VirtualGraph
from benchkit.simulation.model import ClusterShape, Model
from benchkit.simulation.synthetic import SHAPES, independent, make_graph

#: Handlers, messages and transfers take no time.
FREE = replace(
    Model(bandwidth=1e18),
    **{entry.name: 0.0 for entry in fields(Model) if entry.metadata["unit"] == "s"},
)
#: Prints the digest of a graph, simulated in a new process.
_DIGEST = """
import sys
from benchkit.simulation.cluster import simulate_graph
from benchkit.simulation.model import ClusterShape
from benchkit.simulation.synthetic import make_graph
graph = make_graph(sys.argv[1])
print(simulate_graph(graph, ClusterShape(5, 2), draw=int(sys.argv[2])).digest)
"""


def digest_in_new_process(name, draw=0, hash_seed="random"):
    run = subprocess.run(
        [sys.executable, "-c", _DIGEST, name, str(draw)],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def roots_first(dsk, **options):
    """Return the order in which all chunks of `quadratic_means` are made before any is used."""
    keys = sorted(dsk, key=lambda key: (not key[0].startswith("open-"), str(key)))
    return {key: number for number, key in enumerate(keys)}


def peak_of_results(cluster):
    """Return the largest sampled memory of all results in B."""
    return max(sum(worker.managed for worker in row.workers) for row in cluster.samples.rows)


def spans_of(cluster):
    """Return (key, worker, start, stop) of all tasks, ordered by key."""
    return sorted((str(row.key), row.worker, row.start, row.stop) for row in cluster.finished)


def test_ten_tasks_of_1_s_on_two_threads_take_5_s():
    cluster = simulate_graph(independent(10, seconds=1.0), ClusterShape(2, 1), FREE)

    assert cluster.duration == pytest.approx(5.0, abs=1e-6)
    assert len(cluster.finished) == 10
    assert sorted(row.worker for row in cluster.finished) == [0] * 5 + [1] * 5


def test_overheads_of_the_model_add_to_the_tasks():
    model = replace(FREE, execute=0.01, latency=0.001)

    cluster = simulate_graph(independent(10, seconds=1.0), ClusterShape(2, 1), model)

    # Each worker executes five tasks, one after the other; a queued task starts one round trip
    # after the end of the one before. First the graph, at last the result: one way each.
    one_way_messages = 1 + 1 + 4 * 2 + 1 + 1
    assert cluster.duration == pytest.approx(5 * 1.01 + one_way_messages * 0.001, abs=0.0101)


def test_one_task_takes_its_seconds_and_the_overheads_of_the_model():
    model = replace(FREE, latency=0.001, execute=0.01, thread_switch=0.002, batch_write=0.003)

    cluster = simulate_graph(independent(1, seconds=1.0), ClusterShape(1, 1), model)

    # Client to scheduler; scheduler writes; to the worker; execute; thread starts;
    # task; thread ends; worker writes; to the scheduler; to the client.
    overheads = 0.001 + 0.003 + 0.001 + 0.01 + 0.002 + 0.002 + 0.003 + 0.001 + 0.001
    assert cluster.duration == pytest.approx(1.0 + overheads, abs=1e-6)


def test_transfer_takes_its_bytes_over_the_bandwidth():
    graph = VirtualGraph(["a", "b", "c"], [[], [], [0, 1]], [1.0, 1.0, 1.0], [10**8, 10**8, 1])

    cluster = simulate_graph(graph, ClusterShape(2, 1), replace(FREE, bandwidth=1e8))

    assert cluster.duration == pytest.approx(1.0 + 1.0 + 1.0, abs=1e-6)
    assert [row[:2] for row in cluster.transfers.values()] == [[1, 10**8]]


def test_links_are_shared_by_the_transfers_at_both_ends():
    # Three roots on three workers; the worker of the sum needs two of them: its link is shared.
    graph = VirtualGraph(
        ["a", "b", "c", "d"], [[], [], [], [0, 1, 2]], [1.0, 1.0, 1.0, 1.0], [10**8] * 3 + [1]
    )

    cluster = simulate_graph(graph, ClusterShape(3, 1), replace(FREE, bandwidth=1e8))

    assert cluster.duration == pytest.approx(1.0 + 2.0 + 1.0, abs=1e-6)


def test_results_above_the_limit_are_spilled():
    graph = independent(8, seconds=0.1, nbytes=100)
    model = replace(FREE, disk_bandwidth=1000.0)

    cluster = simulate_graph(graph, ClusterShape(1, 1, memory_limit=1000), model)

    (worker,) = cluster.workers.values()
    assert worker.spilled == 200  # 60 % of the limit stay in memory
    assert worker.disk_seconds == [pytest.approx(0.2), 0.0]


def test_submissions_follow_each_other_with_their_delay():
    graph = VirtualGraph(
        ["a", "b"], [[], [0]], [1.0, 1.0], [1, 1],
        submissions=[
            Submission([0], [0]), Submission([1], [1], delay_s=3.0, released=[0], after=0),
        ],
    )  # fmt: skip

    cluster = simulate_graph(graph, ClusterShape(1, 1), FREE)

    assert [row[2:] for row in spans_of(cluster)] == [
        (pytest.approx(0.0), pytest.approx(1.0)),
        (pytest.approx(4.0), pytest.approx(5.0)),
    ]


def test_each_task_runs_once_and_after_its_dependencies():
    for name in SHAPES:
        graph = make_graph(name)
        cluster = simulate_graph(graph, ClusterShape(4, 2))
        rows = {str(row.key): row for row in cluster.finished}
        assert len(rows) == len(cluster.finished) == len(graph.keys), name
        for key, dependencies in zip(graph.keys, graph.dependencies, strict=True):
            ready = max((rows[str(graph.keys[other])].stop for other in dependencies), default=0.0)
            assert rows[str(key)].start >= ready, (name, key)


def test_threads_run_one_task_at_a_time():
    cluster = simulate_graph(make_graph("map_reduce", {"n": 60}), ClusterShape(3, 2))

    by_thread = {}
    for row in sorted(cluster.finished, key=lambda row: row.start):
        assert row.start >= by_thread.get((row.worker, row.thread), 0.0)
        by_thread[row.worker, row.thread] = row.stop
    assert len(by_thread) == 6


@pytest.mark.parametrize("name", ["rechunk", "uneven", "map_reduce"])
def test_digest_is_the_same_in_all_processes(name):
    digests = {digest_in_new_process(name, hash_seed=seed) for seed in ("1", "2", "random")}

    here = simulate_graph(make_graph(name), ClusterShape(5, 2)).digest
    again = simulate_graph(make_graph(name), ClusterShape(5, 2)).digest
    assert digests == {here} == {again}


def test_another_draw_gives_another_schedule():
    graph = make_graph("uneven")

    digests = {simulate_graph(graph, ClusterShape(5, 1), draw=draw).digest for draw in range(3)}

    assert len(digests) == 3


def test_configuration_of_the_scheduler_has_its_effect():
    graph, shape = make_graph("uneven", {"seconds": 0.1}), ClusterShape(10, 1)
    saturation = {"distributed.scheduler.worker-saturation": float("inf")}

    queued = simulate_graph(graph, shape)
    stolen = simulate_graph(graph, shape, config=saturation)
    pinned = simulate_graph(
        graph, shape, config={**saturation, "distributed.scheduler.work-stealing": False}
    )

    # Measured on a LocalCluster: 16.8 to 17.2 s, 16.3 to 16.8 s with 35 to 54 steals, 22.9 s.
    assert queued.duration == pytest.approx(17.0, rel=0.03)
    assert stolen.counts["steals"] > 30
    assert pinned.counts["steals"] == 0
    assert pinned.duration == pytest.approx(22.9, rel=0.03)


def test_order_of_tasks_decides_how_much_is_held(monkeypatch):
    import dask.order

    graph, shape = make_graph("quadratic_means"), ClusterShape(4, 1)

    ordered = simulate_graph(graph, shape)
    monkeypatch.setattr(dask.order, "order", roots_first)
    unordered = simulate_graph(graph, shape)

    # Queuing starts a chunk only when a worker is free: fewer than all 120 MB are held.
    assert peak_of_results(ordered) < 30e6
    assert peak_of_results(unordered) > 2 * peak_of_results(ordered)
    assert unordered.duration == pytest.approx(ordered.duration, rel=0.05)


def test_clocks_and_servers_of_distributed_are_restored():
    import distributed.scheduler

    before = dict(vars(distributed.scheduler))

    simulate_graph(independent(3), ClusterShape(1, 1))

    assert dict(vars(distributed.scheduler)) == before


def test_error_of_the_scheduler_names_task_and_reason():
    graph, shape = VirtualGraph(["a", "b"], [[], [0]], [1.0, 1.0], [100, 1]), ClusterShape()

    with pytest.raises(SimulationError, match=r"the scheduler sent task-erred: b: MemoryError: "):
        simulate_graph(graph, replace(shape, memory_limit=1))


@pytest.mark.parametrize(("name", "n"), [("tree", 10**12), ("all_to_all", 101)])
def test_graph_that_is_too_large_is_refused(name, n, monkeypatch):
    monkeypatch.setattr(synthetic, "MAX_TASKS", 1000)
    monkeypatch.setattr(synthetic, "MAX_DEPENDENCIES", 10_200)

    with pytest.raises(ValueError, match=f"{name}: more than 1000 tasks or 10200 dependencies"):
        make_graph(name, {"n": n})
    make_graph(name, {"n": 100})


def test_tasks_run_on_their_workers_and_by_priority():
    graph = replace(
        independent(8, seconds=1.0), workers={0: [1], 1: [1], 2: [1], 3: [3]}, priority={7: 5}
    )

    cluster = simulate_graph(graph, ClusterShape(2, 1), FREE)

    rows = {graph.keys.index(row.key): row for row in cluster.finished}
    assert [rows[number].worker for number in range(4)] == [1, 1, 1, 1]  # the fourth of two: 1
    assert rows[7].start == 0.0


def test_p2p_shuffle_is_refused_by_name():
    graph = VirtualGraph([("shuffle-transfer-0a", 0)], [[]], [1.0], [1])

    with pytest.raises(UnsupportedGraph, match="task shuffle-transfer-0a: P2P shuffles move data"):
        simulate_graph(graph)


def test_graph_survives_json():
    graph = make_graph("shuffle", {"n": 9})

    assert VirtualGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph


def test_critical_path_is_the_longest_chain():
    graph = VirtualGraph(["a", "b", "c"], [[], [0], []], [1.0, 2.0, 2.5], [1, 1, 1])

    assert graph.critical_path() == 3.0


def test_simulation_runs_inside_of_a_running_event_loop():
    """A notebook and a browser's driver have one."""

    async def simulate():
        return simulate_graph(independent(10, seconds=1.0), ClusterShape(2, 1))

    inside = run_to_end(simulate())
    outside = simulate_graph(independent(10, seconds=1.0), ClusterShape(2, 1))
    assert inside.digest == outside.digest
