"""Dask's local schedulers as engines: a run without the overhead of a cluster."""

import time

import dask
import numpy as np

from benchkit.measure import workload
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.engines import engine_named
from benchkit.measure.runner import execute
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

SPEC = ClusterSpec(kwargs={"n_workers": 1, "threads_per_worker": 2, "memory_limit": "512 MiB"})


def nap(item):
    time.sleep(0.05)
    return item


@workload(category="t")
def naps():
    """Sleep in ten tasks."""
    return dask.delayed(sum)([dask.delayed(nap)(item) for item in range(10)])


@naps.check
def _(result):
    assert result.compute() == 45


def test_threads_run_as_many_tasks_at_once_as_the_cluster_has_threads(tmp_path):
    path = execute(naps.variants()[0], SPEC, folder=tmp_path, engine="threads")
    run = Run(run_from_recording(path))

    assert run.outcome == "ok", run.error
    tasks = run.task_stream().sort_values("start")
    assert len(tasks) == run.metrics["n_tasks"] == 11
    durations = tasks["duration"].to_numpy()[:10]
    assert durations.min() >= 0.05
    assert tasks["thread"].nunique() == 2
    ends = (tasks["start"] + tasks["duration"]).to_numpy()
    at_once = [int(((tasks["start"] <= t) & (ends > t)).sum()) for t in tasks["start"]]
    assert max(at_once) == 2
    assert dask.config.get("scheduler", None) is None
    assert np.isfinite(run.metrics["client_memory_peak"])


def test_workload_with_a_client_is_refused_without_one(tmp_path):
    @workload(category="t")
    def submit(client):
        return client.submit(nap, 1)

    path = execute(submit.variants()[0], SPEC, folder=tmp_path, engine="threads")
    run = Run(run_from_recording(path))

    assert run.outcome == "skipped"
    assert run.error == "engine threads has no client.submit, which the workload uses"


def test_each_engine_has_its_name():
    for name in ("dask", "threads", "synchronous", "frisky"):
        assert engine_named(name).name == name
