"""Start and stop of the clock: heartbeats requested from workers, data accepted afterwards."""

import asyncio
import time

import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from helpers.capture import capture_errors, nap, run_tasks


def test_clock_requests_heartbeats(observed, monkeypatch):
    # Only for this cluster: others in this process have two workers.
    intervals = {3: 3600.0}
    monkeypatch.setattr("distributed.scheduler.heartbeat_interval", lambda n: intervals.get(n, 0.5))
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=None,
            heartbeat_interval="1h",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        began = time.perf_counter()
        with observed(client) as observation:
            wait(client.map(nap, [0.2] * 2, pure=False))
        seconds = time.perf_counter() - began
    run = observation.run

    assert capture_errors(run) == []
    moments = run.tree["workers/time"].values
    assert moments[0] == pytest.approx(0, abs=0.1)
    assert moments[-1] == pytest.approx(run.metrics["duration"], abs=0.3)
    slept = run.fine_metrics().query("activity == 'thread-noncpu' and unit == 'seconds'")
    assert slept["value"].sum() == pytest.approx(0.4, rel=0.2)
    assert seconds < 4  # no timeout expired


async def slow_metric(worker):
    await asyncio.sleep(0)
    return 1


def test_clock_skips_workers_with_async_metrics(client, cluster, observed):
    # Two heartbeats at once would close the worker, as with GPU metrics.
    workers = list(cluster.workers.values())
    for worker in workers:
        worker.metrics["slow"] = slow_metric
    try:
        with observed(client) as observation:
            run_tasks(client, 5)
    finally:
        for worker in workers:
            del worker.metrics["slow"]

    assert capture_errors(observation.run) == []
    assert [worker.status.name for worker in workers] == ["running"] * 2


def test_clock_off_excludes_scheduler_timeout(client, observed):
    with observed(client) as observation:
        observer, call = observation.observer, observation.observer._call
        observer._call = lambda op, **kwargs: time.sleep(1.0)  # no reply
        called = time.time()
        observer.clock_off()
        observer._call = call

        assert observer.t_off == pytest.approx(called, abs=0.5)


def test_events_after_clock_off_are_recorded(client, cluster, observed):
    with observed(client) as observation:
        run_tasks(client, 3)
        observation.observer.clock_off()
        log = cluster.scheduler.log_event
        for size in (10, 20):
            cluster.loop.add_callback(log, "worker-restart-memory", {"rss": size, "worker": None})
        wait(client.map(nap, [0.2] * 5, pure=False))
    run = observation.run

    messages = run.events().query("topic == 'worker-restart-memory'")["message"]
    assert list(messages) == ['{"rss": 10}', '{"rss": 20}']
    # Only tasks before clock_off count.
    assert run.metrics["n_tasks"] == run.task_groups()["n_tasks"].sum() == 3
    assert run.metrics["compute_time"] < 0.2


def test_fractional_sizeof_keeps_row(client, observed, monkeypatch):
    monkeypatch.setattr("distributed.worker.sizeof", lambda x: 1000.5)
    with observed(client) as observation:
        run_tasks(client, 7)
    run = observation.run

    assert capture_errors(run) == []
    assert run.metrics["n_tasks"] == 7
    assert np.allclose(run.tree["tasks/nbytes"].values, 1000, atol=1)
