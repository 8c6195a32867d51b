"""Workers that join, leave or have a blocked event loop."""

import json
import logging
import os
import time
from contextlib import contextmanager
from functools import partial

import distributed
import numpy as np
import pytest
from distributed import Client, LocalCluster, Status, wait
from helpers.capture import await_workers, capture_errors, inc, nap, plugin_of, run_tasks

from benchkit.measure import capture
from benchkit.measure.capture_client import Observer


@pytest.fixture
def processes():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="1 GiB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def local_cluster(n_workers):
    """Start a cluster in this process that a test may scale."""
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster) as client:
        yield cluster, client


def test_restart_is_not_a_loss(processes, observed):
    client = processes
    with observed(client) as observation:
        run_tasks(client, 10)
        client.restart(timeout=200)
        run_tasks(client, 20)
    run = observation.run

    assert run.metrics["n_tasks"] == 30
    assert run.tree["workers"].sizes["worker"] == 4
    assert np.isfinite(run.tree["workers/left"].values).sum() == 2
    assert run.metrics["n_workers_lost"] == 0
    assert "memory_trimmed" in run.metrics, "workers that left do not count"


def test_killed_worker_is_lost_and_recomputed(processes, observed):
    client = processes
    with observed(client) as observation:
        held = client.map(inc, range(40), pure=False)
        wait(held)
        before = set(client.has_what())
        os.kill(next(iter(client.run(os.getpid).values())), 9)
        give_up = time.time() + 200
        while set(client.has_what()) <= before and time.time() < give_up:
            time.sleep(0.1)
        await_workers(client, 2)
        assert sum(client.gather(held)) == sum(range(1, 41))
    run = observation.run

    assert run.metrics["n_workers_lost"] >= 1
    assert run.metrics["n_tasks_recomputed"] >= 1
    assert run.metrics["n_tasks"] >= 41
    topics = run.tree["events/topic"].values.tolist()
    assert {"worker-removed", "remove-worker", "add-worker"} <= set(topics)
    again = np.flatnonzero(run.tree["events/topic"].values == "task-recomputed")
    assert len(again) == run.metrics["n_tasks_recomputed"]
    message = json.loads(str(run.tree["events/message"].values[again[0]]))
    assert message["key"].startswith("inc-")
    assert np.isfinite(run.tree["workers/left"].values[message["lost"]])
    lost = np.isfinite(run.tree["workers/left"].values)
    assert np.isnan(run.tree["workers/trimmed"].values[lost]).all()


def test_failed_seconds_of_a_killed_worker_are_cut(processes, observed):
    client = processes
    first = min(client.scheduler_info()["workers"])

    def fail(seconds):
        time.sleep(seconds)
        raise ValueError

    with observed(client) as observation:
        wait(client.submit(fail, 0.8, workers=[first], pure=False))
        time.sleep(1.5)  # some heartbeats
        wait(client.submit(fail, 0.3, workers=[first], pure=False))
        os.kill(client.run(os.getpid, workers=[first])[first], 9)
        await_workers(client, 2)
    run = observation.run

    assert run.metrics["n_workers_lost"] == 1
    # Of a busy worker the time of the message about the error is known to some ms only.
    assert 0.97 * 0.8 < run.metrics["failed_time"] < 0.8 + 0.3 + 0.2
    quality = run.quality()
    cut = ", ".join(quality[quality["kind"] == "cut"]["metrics"]).split(", ")
    assert {"failed_time", "idle_time", "compute_time"} <= {*cut}


def test_maxima_of_a_heartbeat_whose_call_failed_are_recorded(processes, observed):
    client = processes

    def block_and_lose_a_heartbeat(dask_worker):
        time.sleep(1.2)

        async def fail(**arguments):
            del dask_worker.scheduler.heartbeat_worker
            raise OSError("the network is down")

        dask_worker.scheduler.heartbeat_worker = fail

    with observed(client) as observation:
        run_tasks(client, 4)
        client.run(block_and_lose_a_heartbeat)
        time.sleep(2)
        run_tasks(client, 4)
    run = observation.run

    assert run.metrics["worker_tick_max"] > 1.1


capture_often = partial(capture.CapturePlugin, poll_interval_s=0.4)


def burn_and_warn(seconds, *inputs):
    end = time.time() + seconds
    while time.time() < end:
        sum(range(1000))
    logging.getLogger("distributed.worker").warning("about to be killed")
    return os.urandom(100_000)


@pytest.mark.slow
def test_killed_workers_keep_reported_data(processes, observed, monkeypatch):
    monkeypatch.setattr(capture, "CapturePlugin", capture_often)
    client = processes
    first, second = client.scheduler_info()["workers"]
    with observed(client) as observation:
        made = client.submit(burn_and_warn, 1.5, workers=[first], pure=False)
        wait(client.submit(burn_and_warn, 1.5, made, workers=[second], pure=False))
        made.release()
        time.sleep(3)  # until the tree of call stacks is finished and reported
        for pid in client.run(os.getpid).values():
            os.kill(pid, 9)
        give_up = time.time() + 200
        while {first, second} & set(client.has_what()) and time.time() < give_up:
            time.sleep(0.05)
        await_workers(client, 2)
    run = observation.run

    gone = np.isfinite(run.tree["workers/left"].values)
    assert gone.sum() == 2
    logs = run.tree["logs"].to_dataset()
    warned = logs["worker"].values[logs["text"].str.contains("about to be killed").values]
    assert sorted(warned) == np.flatnonzero(gone).tolist()
    sent = run.transfers()
    wanted = (sent["source"] == warned[0]) & (sent["destination"] == warned[1])
    sent = sent.isel(pair=int(np.flatnonzero(wanted)[0]))
    assert float(sent["count"]) == 1
    assert float(sent["bytes"]) >= 100_000
    stacks = run.profile()
    assert stacks.loc[stacks["function"] == "burn_and_warn", "count"].sum() > 50
    assert run.tree["profile"].attrs["n_workers"] == 4


def test_worker_pause_is_recorded(processes, observed):
    client = processes
    address = next(iter(client.scheduler_info()["workers"]))

    def pause(dask_worker):
        dask_worker.status = Status.paused  # its memory monitor resumes it

    def n_running(dask_scheduler):
        return len(dask_scheduler.running)

    with observed(client) as observation:
        client.run(pause, workers=[address])
        time.sleep(0.5)  # until the pause is recorded
        give_up = time.time() + 200
        while client.run_on_scheduler(n_running) < 2 and time.time() < give_up:
            time.sleep(0.05)
        run_tasks(client, 10)
    run = observation.run

    events = run.tree["events"].to_dataset()
    events = events.isel(event=events["topic"].values == "worker-status-change")
    messages = [json.loads(str(message)) for message in events["message"].values]
    assert [message["status"] for message in messages] == ["paused", "running"]
    (worker,) = np.flatnonzero(run.tree["workers/address"].values == address)
    assert events["worker"].values.tolist() == [worker] * 2
    assert (np.diff(events["time"]) > 0).all()


@pytest.mark.slow
def test_adaptive_cluster_is_recorded(observed):
    with local_cluster(1) as (cluster, client):
        cluster.adapt(minimum=1, maximum=3, interval="100ms", wait_count=2, target_duration="1s")
        with observed(client) as observation:
            wait(client.map(nap, [0.2] * 60, pure=False))
            give_up = time.time() + 200
            while len(cluster.scheduler.workers) > 1 and time.time() < give_up:
                time.sleep(0.05)
    run = observation.run

    assert run.metrics["n_tasks"] >= 60
    assert run.tree["workers"].sizes["worker"] >= 2
    assert run.metrics["n_workers_lost"] == 0
    assert run.tree["workers"].sizes["worker"] - np.isfinite(run.tree["workers/left"]).sum() == 1
    assert {"add-worker", "remove-worker"} <= set(run.tree["events/topic"].values.tolist())
    assert capture_errors(run) == []


def test_retired_workers_are_not_lost(observed):
    with local_cluster(2) as (cluster, client):
        with observed(client) as observation:
            run_tasks(client, 10)
            cluster.scale(1)
            while len(cluster.scheduler.workers) > 1:
                time.sleep(0.02)
            run_tasks(client, 10)
            cluster.scale(3)
            waiting = client.map(nap, [0.02] * 60, pure=False)  # run as soon as workers join
            client.wait_for_workers(3, timeout=120)
            wait(waiting)
            del waiting
    run = observation.run

    # A result that is released too late is moved or recomputed.
    assert 80 <= run.metrics["n_tasks"] <= 90
    assert run.metrics["n_workers_lost"] == 0
    assert run.tree["tasks"]["worker"].values.min() >= 0
    assert len(np.unique(run.tree["tasks"]["worker"].values[-40:])) >= 2
    assert run.tree["workers"].sizes["worker"] == 4
    assert capture_errors(run) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 300] if os.environ.get("BENCHKIT_TEST_ALL") else [50])
def test_many_workers_all_report(observed, count):
    with (
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=False,
            memory_limit=0,  # else workers pause if this process uses much memory
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(count, timeout=200)
        with observed(client) as observation:
            run_tasks(client, 10 * count)
    run = observation.run

    assert run.metrics["n_tasks"] == run.tree["tasks"].sizes["task"] == 10 * count
    assert run.tree["transfers"].attrs["unheard"] == 0
    assert np.isfinite(run.tree["workers/trimmed"].values).sum() == count
    assert np.isfinite(run.tree["workers/rss_peak"].values).any(axis=0).all()
    assert capture_errors(run) == []


def test_maxima_of_all_heartbeats_between_two_samples_count(observed):
    with local_cluster(1) as (cluster, client):
        with observed(client) as observation:
            plugin = plugin_of(cluster, observation)
            (worker,) = cluster.workers.values()

            async def beat_three_times():
                plugin.sample_handle.cancel()  # no sample in between
                plugin._sample()
                name, address = observation.name, worker.address
                probe = distributed._benchkit_worker_plugins[name, address]
                for lag in (7.5, 0.1, 0.2):
                    probe.longest_lag = lag
                    await worker.heartbeat()
                plugin._sample_tick()

            cluster.sync(beat_three_times)
        run = observation.run

    assert run.metrics["worker_tick_max"] == 7.5


# -- blocked event loops ----------------------------------------------------------------------


def test_worker_that_is_blocked_when_the_clock_starts_is_noted(observed, monkeypatch):
    def block_at_start(dask_worker, name):
        beat = dask_worker.handlers[f"{name}_beat"]

        async def late_beat(edge):
            if edge == "on":
                time.sleep(7)
            await beat(edge)

        dask_worker.handlers[f"{name}_beat"] = late_beat

    clock_on = Observer.clock_on

    def clock_on_of_blocked_worker(observer):
        client.run(block_at_start, name=observer.name)
        return clock_on(observer)

    monkeypatch.setattr(Observer, "clock_on", clock_on_of_blocked_worker)
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        with observed(client) as observation:
            run_tasks(client, 3)
    run = observation.run

    # The loop was blocked for 7 s, of which the clock waited 5 s for the heartbeat.
    assert 1 < run.duration
    assert run.metrics.get("worker_tick_max", 0.0) < 5
    (note,) = (row for row in run.quality().itertuples() if "start of the clock" in row.text)
    assert note.kind == "estimated"
    assert {"cpu_time", "failed_time", "worker_tick_max"} <= {*note.metrics.split(", ")}


def test_blocked_scheduler_loses_no_data(processes, observed):
    client = processes
    with observed(client) as observation:
        run_tasks(client, 20)
        client.run_on_scheduler(time.sleep, 2)
        run_tasks(client, 20)
    run = observation.run

    assert run.metrics["scheduler_lag_max"] > 1.5
    assert run.tree["tasks"].sizes["task"] == run.metrics["n_tasks"] == 40
    assert capture_errors(run) == []


def hold_the_gil(started, released):
    """Hold the GIL until a byte is written to the FIFO `released`, at most for two minutes."""
    import ctypes

    descriptor = os.open(released, os.O_RDWR)
    ready = (ctypes.c_int * 2)(descriptor, 1)  # struct pollfd: descriptor, POLLIN
    os.close(os.open(started, os.O_CREAT))
    ctypes.PyDLL(None).poll(ready, 1, 120_000)  # PyDLL, unlike CDLL, keeps the GIL


@pytest.mark.slow
def test_gil_holding_worker_loses_only_its_report(processes, observed, tmp_path):
    client = processes
    busy, free = client.scheduler_info()["workers"]
    started, released = tmp_path / "started", tmp_path / "released"
    os.mkfifo(released)
    with observed(client) as observation:
        run_tasks(client, 20)
        held = client.submit(hold_the_gil, str(started), str(released), workers=[busy], pure=False)
        while not started.exists():
            time.sleep(0.05)
    run = observation.run
    with open(released, "r+b", buffering=0) as fifo:
        fifo.write(b".")
        wait(held, timeout=30)

    addresses = run.tree["workers/address"].values.tolist()
    trimmed = dict(zip(addresses, run.tree["workers/trimmed"].values, strict=True))
    assert np.isnan(trimmed[busy])
    assert trimmed[free] > 2**20
    assert any(f"not received from {busy}" in line for line in capture_errors(run))
    assert run.metrics["n_tasks"] == 20
