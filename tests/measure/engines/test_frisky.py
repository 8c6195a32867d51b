"""Frisky as an engine: what its spans become, and a real run of it."""

import time

import numpy as np
import pytest
from distributed import Client, LocalCluster

import benchkit
from benchkit.analysis.compare.explain import explain
from benchkit.analysis.insight.blame import critical_path
from benchkit.errors import NotRecorded, UsageError
from benchkit.measure import workload
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.engines import frisky as engine
from benchkit.measure.engines.frisky import Frisky
from benchkit.measure.runner import execute
from benchkit.predict.refusals import UnsupportedRun
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

FIRST, SECOND = "10.0.0.1:1", "10.0.0.2:1"
#: Worker -> index and seconds that the scheduler's clock is ahead of its own.
PLACES = {FIRST: (0, 0.0), SECOND: (1, 0.5)}


def span(name, worker, begin, stop, *keys, **metadata):
    return {
        "name": name,
        "worker": worker,
        "start_ns": round(begin * 1e9),
        "end_ns": round(stop * 1e9),
        "duration_ns": round((stop - begin) * 1e9),
        "keys": list(keys),
        "metadata": [list(pair) for pair in metadata.items()],
    }


def seconds(task):
    """Return the seconds of a task by activity."""
    sums = {}
    for each in task.activities:
        sums[each.action] = sums.get(each.action, 0.0) + each.stop - each.begin
    return sums


def test_spans_of_a_task_become_one_task_with_its_activities():
    spans = [
        span("worker.exec.gil", SECOND, 1.0, 1.1, "a-1"),
        span("worker.exec.deserialize", SECOND, 1.1, 1.3, "a-1"),
        span("worker.exec.call", SECOND, 1.3, 2.0, "a-1"),
        span("worker.store_data", SECOND, 2.0, 2.05, "a-1"),
        span("worker.idle", SECOND, 2.1, 3.0),
        span("scheduler.decide_worker", "scheduler", 1.0, 1.1, "a-1"),
    ]

    ((task,), n_lost) = engine._tasks(spans, PLACES)

    assert (task.key, task.worker, task.ok, n_lost) == ("a-1", 1, True, 0)
    assert (task.begin, task.stop) == pytest.approx((1.8, 2.5))
    assert seconds(task) == pytest.approx({"other": 0.15, "deserialize": 0.2})


def test_task_without_a_stored_result_failed():
    spans = [span("worker.exec.call", FIRST, 1.0, 2.0, key) for key in ("good", "bad")]
    spans.append(span("worker.store_data", FIRST, 2.0, 2.1, "good"))

    tasks, _ = engine._tasks(spans, PLACES)
    assert [task.ok for task in tasks] == [True, False]


@pytest.mark.parametrize(
    ("lost", "begin"),
    [(["exec.call"], 1.3), (["store_data"], 1.3), (["task_complete", "receive_task"], 1.3),
     (["exec.call", "exec.deserialize"], 2.0)],
)  # fmt: skip
def test_task_is_known_if_spans_of_it_are_lost(lost, begin):
    """Frisky 0.7.2 loses some of 10,000."""
    times = {"receive_task": (1.0, 1.01), "exec.deserialize": (1.1, 1.3), "exec.call": (1.3, 2.0),
             "store_data": (2.0, 2.05), "task_complete": (2.06, 2.06)}  # fmt: skip
    spans = [
        span(f"worker.{name}", FIRST, *pair, "a-1")
        for name, pair in times.items()
        if name not in lost
    ]

    ((task,), n_lost) = engine._tasks(spans, PLACES)

    assert (task.begin, task.stop) == pytest.approx((begin, 2.0))
    assert (task.ok, n_lost) == (True, "exec.call" in lost)


def test_tasks_that_overlap_on_a_worker_have_different_threads():
    times = [(1.0, 2.0), (1.5, 3.0), (2.0, 2.5), (2.6, 4.0)]
    spans = [span("worker.exec.call", FIRST, *pair, f"a-{n}") for n, pair in enumerate(times)]

    tasks, _ = engine._tasks(spans, PLACES)
    assert [task.thread for task in tasks] == [0, 1, 0, 0]


def test_transfer_has_both_workers_bytes_and_the_task_that_waited():
    sizes = {"uncompressed_bytes": "1000", "compressed_bytes": "400"}
    spans = [
        span("tcp.send.write", FIRST, 5.0, 5.1, "x-1", "x-2", **sizes),
        span("worker.transfer.recv", SECOND, 5.0, 5.2, "x-1", "x-2", consumer_prefixes="b,b"),
        span("worker.exec.call", SECOND, 4.0, 4.1, "b-1"),
        span("worker.exec.call", SECOND, 5.3, 5.4, "b-2"),
    ]
    tasks, _ = engine._tasks(spans, PLACES)

    engine._add_transfers(tasks, spans, PLACES)
    ((index, report),) = engine._transfers(spans, PLACES, {FIRST: "tcp://one"})

    assert index == 1
    assert report["transfers"][0][1:5] == ["tcp://one", 2, 1000, 400]
    assert report["transfers"][0][5] == pytest.approx(0.2)
    assert [seconds(task).get("transfer", 0.0) for task in tasks] == pytest.approx([0.0, 0.2])
    assert [each.source for each in tasks[1].activities] == [0]


def declared(function):
    return workload(category="t")(function).variants()[0]


def nap(item, seconds):
    time.sleep(seconds)
    return item


def test_workload_is_refused_by_what_frisky_lacks():
    def busy(client):
        from distributed import Lock, Variable

        length = client.submit(len, [Lock, Variable], pure=False, retries=2)
        return client.retire_workers(length)

    assert Frisky().refusal(declared(busy)) == (
        "engine frisky has no Lock, Variable, client.retire_workers, client.submit(pure=), "
        "which the workload uses"
    )

    def plain(client):
        return client.map(nap, [1], seconds=0.1)

    assert Frisky().refusal(declared(plain)) == ""


@pytest.mark.slow
def test_record_sees_the_tasks_of_the_client_that_it_gets(tmp_path):
    frisky = pytest.importorskip("frisky", reason="pip install 'frisky[dask]', from Python 3.11")
    store = benchkit.Store(tmp_path / "store")
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as dask_client,
        frisky.hijack(dask_client) as frisky_client,
    ):
        for client in (dask_client, frisky_client):
            with benchkit.record(client, store=store):
                assert client.gather(client.map(nap, range(20), seconds=0.01)) == list(range(20))
        with benchkit.record(client, store=store):
            client.gather(client.map(abs, range(5000)))

    runs = store.runs().sort_values("started")
    assert list(runs["engine"]) == ["dask", "frisky", "frisky"]
    assert list(runs["n_tasks"]) == [20, 20, 5000]
    assert runs["compute_time"][:2].min() >= 0.2


@pytest.mark.slow
def test_record_sees_the_tasks_of_a_cluster_of_frisky_itself(tmp_path, monkeypatch):
    frisky = pytest.importorskip("frisky", reason="pip install 'frisky[dask]', from Python 3.11")
    # A worker has 10 s to start, which is too short on a busy machine.
    monkeypatch.setattr("frisky.cluster._WORKER_START_TIMEOUT", 120.0)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with (
        frisky.LocalCluster(processes=True, **options) as cluster,
        cluster.get_client() as client,
        benchkit.record(client, store=tmp_path / "store") as recorded,
    ):
        naps = client.map(nap, range(20), seconds=0.01)
        assert client.submit(sum, naps).result() == 190

    run = recorded.run
    assert run.metrics["n_tasks"] == 21
    assert run.metrics["compute_time"] >= 0.2
    assert sorted(set(run.task_stream()["worker"])) == [0, 1]
    assert np.diff(run.task_graph().indptr).max() == 20
    assert run.tree.attrs["cluster"] == "frisky"
    assert "memory_peak" not in run.metrics
    assert "duration" in run.metrics


def test_record_refuses_workers_of_frisky_in_this_process(tmp_path):
    frisky = pytest.importorskip("frisky", reason="pip install 'frisky[dask]', from Python 3.11")
    with (
        frisky.LocalCluster(n_workers=1) as cluster,
        cluster.get_client() as client,
        pytest.raises(UsageError, match=r"give frisky\.LocalCluster\(processes=True\)"),
        benchkit.record(client, store=tmp_path / "store"),
    ):
        pass


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return a function that measures a workload in an engine on two workers of two threads."""
    pytest.importorskip("frisky", reason="pip install 'frisky[dask]', from Python 3.11")

    def measure(function, name="frisky"):
        spec = ClusterSpec(
            kwargs={"n_workers": 2, "threads_per_worker": 2, "memory_limit": "4 GiB"}
        )
        folder = tmp_path_factory.mktemp("recordings")
        facts = {"environment": "other"}
        path = execute(declared(function), spec, folder=folder, engine=name, facts=facts)
        return Run(run_from_recording(path))

    return measure


@pytest.mark.slow
def test_frisky_run_has_planted_seconds_tasks_and_bytes(measured):
    def sleeps(client):
        parts = [f for s in (0.01, 0.05, 0.2) for f in client.map(nap, range(10), seconds=s)]
        arrays = client.map(lambda item: np.ones(2**17), range(8))
        return client.submit(lambda *items: len(items), *arrays, *parts)

    run = measured(sleeps)

    assert run.outcome == "ok", run.error
    tasks = run.task_stream()
    assert len(tasks) == 39
    planted = np.sort(tasks[tasks["task_group"] == "nap"]["duration"].to_numpy()).reshape(3, 10)
    assert planted.min(axis=1) == pytest.approx([0.01, 0.05, 0.2], rel=0.03)
    assert run.metrics["n_tasks"] == 39
    assert run.metrics["compute_time"] >= 2.6
    # The arrays of the other worker, 1 MiB each; the worker of the last task holds the others.
    held = tasks[tasks["task_group"] != "nap"].sort_values("start")
    last = held["worker"].iloc[-1]
    elsewhere = int((held["worker"].iloc[:-1] != last).sum())
    assert run.metrics["transfer_bytes"] == pytest.approx(elsewhere * 2**20, rel=0.03, abs=1e4)
    assert run.tree.attrs["engine"] == "frisky"
    quality = str(run.tree.attrs["quality"])
    assert "sizes of results" in quality
    own = {"spilled_peak", "n_steals", "gather_bytes", "scatter_bytes", "disk_read_time"}
    assert not own & set(run.metrics)
    assert all(name in quality for name in own)
    assert "nbytes" not in run.tree["task_groups"].data_vars


@pytest.mark.slow
def test_frisky_run_that_fails_has_the_error_and_the_next_one_succeeds(measured):
    def divide(client):
        return client.submit(lambda: 1 / 0)

    def add(client):
        import dask

        return dask.delayed(sum)([dask.delayed(nap)(item, 0.0) for item in range(3)])

    run = measured(divide)
    assert run.outcome == "failed"
    assert "division by zero" in run.error
    assert run.task_groups()["n_erred"].sum() == 1

    assert measured(add).outcome == "ok"


def fail_or_nap(number):
    time.sleep(0.05)
    if number % 4 == 0:
        raise ValueError("planted")
    return number


@pytest.mark.slow
def test_failures_are_counted_and_their_seconds_are_not_computing(measured):
    def failures(client):
        for future in client.map(fail_or_nap, range(20)):
            try:
                future.result()
            except ValueError:
                pass

    run = measured(failures)

    assert run.outcome == "ok", run.error
    groups = run.task_groups()
    assert (groups["n_erred"].sum(), groups["n_tasks"].sum()) == (5, 15)
    # The shortest of each: others may have waited for a processor.
    tasks = run.task_stream()
    failed, computed = (tasks["duration"][tasks["ok"] == ok] for ok in (0, 1))
    assert [failed.min(), computed.min()] == pytest.approx([0.05, 0.05], rel=0.03)
    assert run.metrics["failed_time"] == pytest.approx(failed.sum())
    assert run.metrics["compute_time"] == pytest.approx(computed.sum())


@pytest.fixture(scope="module")
def tree_run(measured):
    def tree(client):
        import dask

        level = [dask.delayed(nap)(item, 0.05) for item in range(8)]
        while len(level) > 1:
            level = [dask.delayed(max)(pair) for pair in zip(level[::2], level[1::2], strict=True)]
        start = client.submit(nap, 3, 0.05)
        return [level[0].compute(), client.submit(nap, start, 0.1), client.map(nap, [start], [0.0])]

    run = measured(tree)
    assert run.outcome == "ok", run.error
    return run


@pytest.mark.slow
def test_graph_of_a_run_in_frisky_has_the_dependencies_of_its_tasks(tree_run):
    graph = tree_run.task_graph()

    assert len(graph) == tree_run.metrics["n_tasks"] == 18
    assert np.isfinite(graph.start).all()
    n_dependencies = np.bincount(np.diff(graph.indptr))
    assert n_dependencies.tolist() == [9, 2, 7]  # roots, tasks of `start`, pairs
    assert (graph.start >= graph.ready - 0.1).all()  # the clocks of workers are estimated


@pytest.mark.slow
def test_run_in_frisky_is_diagnosed_and_predicted_as_far_as_it_was_recorded(tree_run):
    limits = tree_run.limits()
    graph = tree_run.task_graph()
    path, seconds = critical_path(graph.indptr, graph.indices, graph.duration)
    assert seconds >= 0.15  # a nap, and one of 0.1 s that takes its result
    assert 0.05 < limits.bounds["critical path"] <= seconds  # without what ended after the clock
    assert len(path) >= 2
    assert limits.causes["seconds"].sum() == pytest.approx(tree_run.metrics["duration"], rel=0.01)
    assert tree_run.diagnose().limits is not None
    assert explain([tree_run], [tree_run]).memory.empty  # by kind: only Dask knows
    with pytest.raises(NotRecorded, match="the engine frisky does not report sizes of results"):
        tree_run.memory_by_group()

    (faster,) = tree_run.whatif(scheduler=0.1).predictions
    assert 0.5 < faster.ratio <= 1.0
    with pytest.raises(UnsupportedRun, match="workers 4 needs the sizes of results"):
        tree_run.whatif(workers=4)
