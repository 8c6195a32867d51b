"""The recorded graph equals the submitted graph."""

import json
import time

import dask
import distributed
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

from benchkit.errors import NotRecorded
from tests.helpers.capture import capture_errors, inc


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def edges_by_key(run):
    """Return the keys of each task's dependencies by its own key."""
    graph = run.task_graph()
    keys = run.task_keys()
    names = [keys[row] if row >= 0 else "" for row in graph.row.tolist()]
    return {
        names[node]: sorted(
            names[dep] for dep in graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        )
        for node in range(len(graph))
    }


def graph_of(name, *extra):
    """Return a graph of six tasks: two roots, a join, a chain of two, and a task alone."""
    return {
        f"{name}-a": (inc, 1),
        f"{name}-b": (inc, 2),
        f"{name}-join": (sum, [f"{name}-a", f"{name}-b"]),
        f"{name}-c": (inc, f"{name}-join"),
        f"{name}-d": (inc, f"{name}-c"),
        f"{name}-alone": (inc, 5),
    }


EDGES = {"a": [], "b": [], "join": ["a", "b"], "c": ["join"], "d": ["c"], "alone": []}


def test_graph_has_every_submitted_dependency(client, observed):
    with observed(client) as observation:
        assert client.get(graph_of("x"), ["x-d", "x-alone"]) == [7, 6]

    run = observation.run
    assert edges_by_key(run) == {
        f"x-{name}": [f"x-{dep}" for dep in deps] for name, deps in EDGES.items()
    }
    graph = run.task_graph()
    assert capture_errors(run) == []
    assert graph.ok.all()
    assert graph.worker.min() >= 0
    assert graph.duration.min() >= 0
    [sent] = graph.submissions.itertuples()
    assert (sent.first_node, sent.n_nodes, len(sent.wanted)) == (0, 6, 2)
    assert 200 < run.tree["submissions"]["nbytes"].item() < 20_000
    times = np.array([sent.received, sent.materialized, sent.ordered, sent.started])
    is_known = np.isfinite(times) | (distributed.__version__ < "2024")  # no phases before
    assert is_known.all()
    assert (np.diff(times[np.isfinite(times)]) >= 0).all()
    # The time is taken after the messages to workers were written: a busy machine delays it.
    assert sent.received <= graph.start.min() + 0.05
    assert sent.started <= graph.start.min() + 2


def test_graph_orders_dependencies_before_dependents(client, observed):
    with observed(client) as observation:
        layers = [client.map(inc, range(20), pure=False)]
        for _ in range(3):
            previous = layers[-1]
            pairs = zip(previous, reversed(previous), strict=True)
            layers.append([client.submit(max, *pair, pure=False) for pair in pairs])
        wait(layers[-1])

    graph = observation.run.task_graph()
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.indptr))
    assert len(graph) == 80
    assert (graph.indices < owner).all()
    assert np.diff(graph.indptr).tolist() == [0] * 20 + [2] * 60
    assert len(graph.submissions) == 61
    assert (graph.start[graph.indices] < graph.start[owner]).all()


def test_graph_has_results_of_earlier_work(client, observed):
    before = client.submit(inc, 1, key="before", pure=False)
    [scattered] = client.scatter([10], hash=False)
    wait(before)
    with observed(client) as observation:
        assert client.submit(lambda a, b: a + b, before, scattered, key="after").result() == 12

    graph = observation.run.task_graph()
    assert len(graph) == 3
    assert graph.submission.tolist() == [-1, -1, 0]
    assert graph.row.tolist() == [-1, -1, 0]
    assert graph.indices.tolist() == [0, 1]
    assert graph.indptr.tolist() == [0, 0, 0, 2]
    assert graph.producer.tolist() == [False] * 3


def test_reused_key_is_a_new_node(client, observed):
    with observed(client) as observation:
        for count in (1, 2):
            roots = [client.submit(inc, 0, key=f"root-{count}-{i}") for i in range(count)]
            assert client.submit(sum, roots, key="again").result() == count
            del roots
            wait_until_forgotten(client, "again")

    run = observation.run
    graph, keys = run.task_graph(), run.task_keys()
    again = [node for node, row in enumerate(graph.row.tolist()) if keys[row] == "again"]
    assert [int(graph.indptr[node + 1] - graph.indptr[node]) for node in again] == [1, 2]
    assert graph.start[again[0]] < graph.start[again[1]]


def wait_until_forgotten(client, key):
    give_up = time.time() + 200
    while client.run_on_scheduler(lambda dask_scheduler: key in dask_scheduler.tasks):
        assert time.time() < give_up, f"{key} is still on the scheduler"
        time.sleep(0.02)


def test_released_is_the_end_of_the_last_dependent_or_of_the_client(client, observed):
    with observed(client) as observation:
        wanted = client.submit(inc, 1, key="wanted")
        inner = client.get({"i": (inc, 1), "o": (inc, "i")}, "o")
        assert inner == 3
        wait(wanted)
        # The client sends the release of a result in the background.
        wait_until_forgotten(client, "o")

    run = observation.run
    graph, keys = run.task_graph(), run.task_keys()
    node = {keys[row]: node for node, row in enumerate(graph.row.tolist())}
    assert graph.released[node["i"]] == graph.stop[node["o"]]
    assert graph.released[node["wanted"]] == np.inf
    assert graph.stop[node["o"]] <= graph.released[node["o"]] < 60
    assert graph.releases["node"].tolist() == [node["o"]]


def test_graph_has_options_of_tasks(client, observed):
    with observed(client) as observation, dask.annotate(priority=3):
        futures = client.map(inc, range(2), pure=False, retries=1)
        wait(futures)

    graph = observation.run.task_graph()
    assert graph.options == {node: {"priority": 3, "retries": 1} for node in (0, 1)}


def test_light_capture_has_no_graph(client, observed):
    with observed(client, "light") as observation:
        wait(client.map(inc, range(2), pure=False))

    run = observation.run
    with pytest.raises(NotRecorded, match="measure it again at capture level full"):
        run.task_graph()


def test_capture_restores_the_handlers_of_the_scheduler(client, observed):
    def hooks(dask_scheduler):
        handlers = dask_scheduler.stream_handlers
        return [
            "new_task" in vars(dask_scheduler),
            handlers["update-graph"] == dask_scheduler.update_graph,
            handlers["client-releases-keys"] == dask_scheduler.client_releases_keys,
        ]

    with observed(client), observed(client):
        assert client.run_on_scheduler(hooks) == [True, False, False]
    assert client.run_on_scheduler(hooks) == [False, True, True]


def test_held_bytes_sum_to_the_managed_memory(client, observed):
    earlier = client.scatter({"earlier-1": b"x" * 3_000_000})
    with observed(client) as observation:
        futures = client.map(bytes, [2_000_000] * 4, pure=False)
        wait(futures)
        time.sleep(1.2)

    run = observation.run
    held, scheduler = run.tree["held"].to_dataset(), run.tree["scheduler"].to_dataset()
    names = json.loads(held.attrs["groups"])
    last = held.isel(entry=held["time"].values == held["time"].values.max())
    by_name = {}
    for group, nbytes in zip(last["group"].values, last["nbytes"].values, strict=True):
        name = names[group].partition("-")[0]
        by_name[name] = by_name.get(name, 0) + int(nbytes)
    assert list(earlier) == ["earlier-1"]
    assert by_name == pytest.approx({"bytes": 4 * 2_000_000, "earlier": 3_000_000}, rel=0.01)
    managed = (scheduler["managed"] + scheduler["spilled"]).values
    at = np.abs(scheduler["time"].values - held["time"].values.max()).argmin()
    assert last["nbytes"].values.sum() == pytest.approx(managed[at], rel=0.01)


def test_graph_has_the_dependencies_of_earlier_tasks(client, observed):
    before = {"y-a": (inc, 1), "y-b": (inc, "y-a")}
    futures = client.get(before, ["y-a", "y-b"], sync=False)
    wait(futures)
    with observed(client) as observation:
        assert client.submit(inc, futures[1], key="y-c").result() == 4

    run = observation.run
    graph, keys = run.task_graph(), run.task_keys()
    assert len(graph) == 3
    assert graph.indptr.tolist() == [0, 0, 1, 2]
    assert graph.indices.tolist() == [0, 1]
    assert graph.submission.tolist() == [-1, -1, 0]
    assert keys[graph.row[2]] == "y-c"
