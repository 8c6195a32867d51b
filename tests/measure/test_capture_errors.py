"""Errors of the capture are stored in the run and do not affect the workload."""

import numpy as np
from helpers.capture import capture_errors, keys_of, nap, plugin_of, run_tasks

from benchkit.measure import capture
from benchkit.measure.capture.scheduler_plugin import MIN_TASKS_PER_FLUSH
from benchkit.measure.recording import Recording


def test_hook_error_is_recorded(cluster, client, observed):
    with observed(client) as observation:
        plugin = plugin_of(cluster, observation)
        good = plugin.groups.number

        def only_good_groups(group):
            if group.name.startswith("nap"):
                raise RuntimeError("broken group")
            return good(group)

        plugin.groups.number = only_good_groups
        plugin.samples.sample_scheduler = lambda: 1 / 0
        assert client.gather(client.map(nap, [0.0] * 10, pure=False)) == [0.0] * 10
        assert run_tasks(client, 20) == list(range(1, 21))
    run = observation.run

    assert run.metrics["n_tasks"] == 20
    assert run.tree["tasks"].sizes["task"] == 20
    assert run.tree["tasks"].attrs["n_dropped"] == 10
    assert any("RuntimeError: broken group" in line for line in capture_errors(run))
    assert any("ZeroDivisionError" in line for line in capture_errors(run))


def test_invalid_rows_are_dropped_and_counted(cluster, client, observed):
    with observed(client) as observation:
        run_tasks(client, 5)
        plugin = plugin_of(cluster, observation)

        async def spoil():
            stream = plugin.stream
            stream.flush()
            stream.rows += (plugin.groups.members[0], "bad", "w", 1, "many bytes", 1.0, 2.0, 1)
            stream.flush()

        client.sync(spoil)
        run_tasks(client, 7)
    run = observation.run

    assert run.tree["tasks"].sizes["task"] == len(keys_of(run)) == 12
    assert run.tree["tasks"].attrs["n_dropped"] == 1
    assert any(line.startswith("flush: ValueError") for line in capture_errors(run))


def test_failed_start_keeps_duration_and_error(client, observed, monkeypatch):
    async def start(self, scheduler):
        raise RuntimeError("no room")

    monkeypatch.setattr(capture.CapturePlugin, "start", start)
    with observed(client) as observation:
        assert run_tasks(client, 3) == [1, 2, 3]

    assert list(observation.run.metrics) == ["duration"]
    assert any("no room" in line for line in capture_errors(observation.run))


def test_failed_worker_plugin_is_recorded(client, observed, monkeypatch):
    monkeypatch.setattr(capture.CaptureWorkerPlugin, "setup", lambda self, worker: 1 / 0)
    with observed(client) as observation:
        run_tasks(client, 3)
    run = observation.run

    assert run.metrics["n_tasks"] == 3
    assert np.isnan(run.tree["workers/rss_peak"].values).all()
    assert "worker_tick_max" not in run.metrics
    assert any(line.startswith("worker plugin") for line in capture_errors(run))


def test_missing_handler_and_full_disk_are_recorded(cluster, client, observed):
    with observed(client) as observation:
        run_tasks(client, 5)
        good = observation.writer.segment
        failures = iter([OSError(28, "No space left on device")])

        def full_once(tables):
            for failure in failures:
                raise failure
            good(tables)

        observation.writer.segment = full_once
        observation.observer.drain()
        observation.observer.drain()
        cluster.scheduler.handlers.pop(f"{observation.name}_off")
        run_tasks(client, 5)
    run = observation.run

    assert any("No space left on device" in line for line in capture_errors(run))
    assert any(line.startswith("off") for line in capture_errors(run))
    assert run.tree["tasks"].sizes["task"] == run.metrics["n_tasks"] == 10, (
        "kept until acknowledged"
    )


def test_missing_metrics_are_nan(cluster, client, observed):
    with observed(client) as observation:
        plugin = plugin_of(cluster, observation)

        async def forget():
            plugin._sample()  # maxima of heartbeats that arrived before
            for state in cluster.scheduler.workers.values():
                state.metrics = {"memory": "much", "cpu": None}
                state.last_seen += 1e-6
            plugin._sample()

        client.sync(forget)
        index = plugin.workers[next(iter(cluster.scheduler.workers))]
    recording = Recording.read(observation.writer.path)
    rows = np.asarray(recording.block("samples", len(capture.columns.SAMPLE_COLUMNS)))
    rows = rows.reshape(-1, len(capture.columns.SAMPLE_COLUMNS))
    blind = rows[
        np.isnan(rows[:, capture.columns.SAMPLE_COLUMNS.index("bandwidth")]) & (rows[:, 1] == index)
    ]

    assert len(blind) == 1
    for name in (
        "process",
        "cpu",
        "rss_peak",
        "executing",
        "net_read",
        "gil",
        "num_fds",
        "tick_max",
    ):
        assert np.isnan(blind[0, capture.columns.SAMPLE_COLUMNS.index(name)]), name


def test_sample_converts_large_batches_only(cluster, client, observed):
    counts = []
    with observed(client) as observation:
        run_tasks(client, 1)
        plugin = plugin_of(cluster, observation)

        async def sample():
            plugin.stream.flush()  # rows that are there already
            row = (plugin.groups.members[0], "key", "worker", 1, 8, 1.0, 2.0, 1)
            for n_tasks in (MIN_TASKS_PER_FLUSH - 1, 1):
                plugin.stream.rows += row * n_tasks
                plugin._sample()
                counts.append(len(plugin.stream.rows) // len(row))

        client.sync(sample)

    assert counts == [MIN_TASKS_PER_FLUSH - 1, 0]
    assert capture_errors(observation.run) == []
