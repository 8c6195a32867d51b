"""Level "light" is not called for tasks and records the same sums as level "full"."""

import json
import os
import time

import pytest
from distributed import Client, LocalCluster, wait


def inc(number):
    return number + 1


def nap(seconds):
    time.sleep(seconds)
    return seconds


def fail(number):
    raise ValueError(f"never {number}")


def groups_of(run):
    frame = run.task_groups()
    return frame[["n_tasks", "n_erred", "compute (s)", "result (B)"]].sort_index()


def test_light_capture_equals_full_capture(client, observed):
    import dask.array as da

    a, b = client.scheduler_info()["workers"]
    with observed(client, "light") as light, observed(client, "full") as full:
        wait(client.map(nap, [0.01] * 20, pure=False))
        array = da.random.random((400, 400), chunks=(100, 100))
        (array @ array.T).sum().compute()
        made = client.submit(bytes, 200_000, workers=[a], pure=False)
        assert client.submit(len, made, workers=[b], pure=False).result() == 200_000
        failed = client.map(fail, range(3), pure=False)
        below = client.submit(inc, failed[0], pure=False)
        wait([*failed, below])
        time.sleep(0.5)
    light, full = light.run, full.run

    seen, truth = groups_of(light), groups_of(full)
    assert seen[["n_tasks", "n_erred"]].to_dict() == truth[["n_tasks", "n_erred"]].to_dict()
    assert seen["compute (s)"].to_dict() == pytest.approx(truth["compute (s)"].to_dict(), abs=1e-4)
    assert seen["n_erred"].sum() == 3, "their dependents did not run"
    assert light.metrics["n_tasks"] == full.metrics["n_tasks"] > 70
    exceptions = sorted(light.tree["errors/exception"].values.tolist())
    assert exceptions == [f"ValueError('never {number}')" for number in range(3)]
    assert all("fail" in trace for trace in light.tree["errors/traceback"].values)
    assert light.transfers()["count"].sum() == full.transfers()["count"].sum() > 0
    assert "n_retried" not in light.task_groups(), "light captures do not count retries"
    assert json.loads(light.tree.attrs["capture_errors"]) == []


def test_short_groups_count_for_prefix(client, observed):
    with observed(client, "light") as observation:
        for number in range(40):
            assert client.submit(inc, number, pure=False).result() == number + 1
    run = observation.run

    assert run.metrics["n_tasks"] == 40
    assert set(run.tree["task_groups/prefix"].values) == {"inc"}
    assert run.task_groups()["n_tasks"].sum() == 40


def test_tasks_after_clock_are_not_counted(cluster, client, observed):
    with observed(client, "light") as observation:
        wait(client.map(inc, range(10), pure=False))
        observation.observer.clock_off()
        wait(client.map(inc, range(10), pure=False))

    assert observation.run.metrics["n_tasks"] == 10


def test_light_capture_unregisters_plugin(cluster, client, observed):
    before = sorted(cluster.scheduler.plugins), sorted(cluster.scheduler.handlers)
    with observed(client, "light"):
        assert sorted(cluster.scheduler.plugins) == before[0]

    assert (sorted(cluster.scheduler.plugins), sorted(cluster.scheduler.handlers)) == before


@pytest.mark.slow
def test_killed_and_restarted_workers_are_recorded(observed):
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="1 GiB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        with observed(client, "light") as observation:
            before = set(client.scheduler_info()["workers"])
            os.kill(next(iter(client.run(os.getpid).values())), 9)
            give_up = time.time() + 200
            while set(client.scheduler_info()["workers"]) <= before and time.time() < give_up:
                time.sleep(0.1)
            client.wait_for_workers(2, timeout=120)
            assert len(client.gather(client.map(inc, range(20), pure=False))) == 20
        lost = observation.run
        with observed(client, "light") as observation:
            client.restart(timeout=200)
            assert len(client.gather(client.map(inc, range(20), pure=False))) == 20
        restarted = observation.run

    assert lost.metrics["n_workers_lost"] >= 1
    topics = set(lost.tree["events/topic"].values.tolist())
    assert {"worker-removed", "remove-worker", "add-worker"} <= topics
    assert restarted.metrics["n_workers_lost"] == 0
    assert restarted.metrics["n_tasks"] == 20
    assert restarted.tree["workers"].sizes["worker"] == 4
