"""Metrics compared with values computed by hand, on synthetic recordings."""

import json

import numpy as np
import pytest

from benchkit.measure.capture.columns import CLIENT, LOOP, SCHEDULER, TASK, THREAD_COLUMNS
from benchkit.store.build.metrics import biggest_group, compute_metrics
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from validation.synthetic_recordings import MB, NAN, OFF, ON, group, record, rows, segment, worker


def metrics_of(folder, *segments, **tail):
    return Run(run_from_recording(record(folder, *segments, **tail))).metrics


def sample(moment, index, **values):
    return {"time": ON + moment, "worker": index, **values}


def memory(*series):
    """Return samples of a worker: moment, RSS in MB, and a peak in MB or NaN."""
    rows, area, before = [], 0.0, None
    for moment, rss, peak in series:
        if before is not None:
            area += (before[1] + rss) / 2 * (moment - before[0]) * MB
        before = moment, rss
        rows.append(
            {"time": ON + moment, "worker": 0, "rss": rss * MB, "area": area, "peak": peak * MB}
        )
    return rows


def test_memory_metrics_use_samples_while_clock_ran(tmp_path):
    one = {"workers": [worker(0)]}
    series = [(-1, 100, NAN), (0, 100, NAN), (5, 100, NAN), (5.0001, 300, NAN), (11, 300, NAN)]
    samples = [sample(moment, 0, spilled=mb * MB) for moment, mb in ((0, 7), (5, 14), (10.5, 99))]

    metrics = metrics_of(tmp_path, segment(samples=samples, memory=memory(*series), **one))

    assert metrics["memory_mean"] == pytest.approx(200 * MB, rel=1e-3)
    assert metrics["memory_peak"] == metrics["memory_peak_bound"] == 300 * MB
    assert metrics["spilled_peak"] == 14 * MB


def test_memory_peak_worker_includes_time_between_samples(tmp_path):
    one = {"workers": [worker(0)], "samples": [sample(1, 0, cpu=1.0)]}
    before, inside = [(-9, 100, 100), (-1, 100, 5000)], [(4, 100, 100), (5, 100, 700)]
    end, after = [(10.4, 100, 800)], [(11, 100, 100), (60, 100, 9000)]

    def peak(*parts, **tables):
        series = memory(*[row for part in parts for row in part])
        return metrics_of(tmp_path, segment(memory=series, **one, **tables))["memory_peak_worker"]

    assert peak(before, inside, [(11, 100, NAN)]) == 700 * MB
    assert peak(before, inside, end, after) == 800 * MB, "the last interval began before the end"
    killed = (ON + 6, "worker-restart-memory", 0, json.dumps({"rss": 950 * MB}))
    assert peak(before, inside, end, after, events=[killed]) == 950 * MB


def test_memory_trimmed_requires_values_of_all_workers(tmp_path):
    samples = [sample(1, index, process=MB) for index in (0, 1)]
    both = {"0": {"memory": 3 * MB}, "1": {"memory": 4 * MB}}
    left = [worker(0), worker(1, left=ON + 5)]

    assert metrics_of(tmp_path, segment(samples=samples, reports=both))["memory_trimmed"] == 7 * MB
    partial = segment(samples=samples, reports={"0": {"memory": 3 * MB}})
    assert "memory_trimmed" not in metrics_of(tmp_path, partial)
    with_left_worker = segment(samples=samples, reports={"0": {"memory": 3 * MB}}, workers=left)
    assert metrics_of(tmp_path, with_left_worker)["memory_trimmed"] == 3 * MB


def test_activity_metrics_are_thread_seconds(tmp_path):
    workers = [worker(0), worker(1, nthreads=2, joined=ON + 4)]
    groups = [
        group("a", seconds={"compute": 5.0, "transfer": 1.0, "disk-read": 0.5}, n_tasks=3),
        group("b", seconds={"compute": 2.5, "disk-write": 4.0, "odd": 9.0}, n_tasks=4),
    ]
    fine = [
        ["execute", "a", "serialize", "seconds", 0.25],
        ["get-data", "", "compress", "seconds", 0.5],
        ["execute", "a", "disk-read", "seconds", 0.75],
        ["execute", "a", "disk-read", "bytes", 1e9],
        ["execute", "b", "disk-write", "seconds", 1.0],
        ["execute", "b", "failed", "seconds", 2.7],
        ["p2p", "background-comms", "process", "bytes", 800.0],
        ["p2p", "background-comms", "process-others", "bytes", 500.0],
        ["p2p", "background-comms", "process-own", "bytes", 300.0],
        ["p2p", "background-disk", "process", "bytes", 900.0],
    ]
    samples = [sample(moment, 0, failed_time=seconds) for moment, seconds in ((0, 1.0), (9, 3.0))]

    metrics = metrics_of(
        tmp_path, segment(workers=workers, groups=groups, fine=fine, samples=samples)
    )
    unknown = metrics_of(
        tmp_path, segment(workers=workers, groups=groups, fine=fine[:-2], samples=samples)
    )

    assert metrics["duration"] == 10
    assert metrics["compute_time"] == 7.5
    assert metrics["transfer_time"] == 1.0
    assert metrics["disk_read_time"] == 0.75, "fine metrics include reads below 5 ms"
    assert metrics["disk_write_time"] == 1.0, "by the same definition as reads"
    assert metrics["failed_time"] == 2.0, "without Dask's handling of the error"
    assert metrics["p2p_bytes"] == 500
    assert "p2p_bytes" not in unknown, "it is not known what stayed on its worker"
    assert metrics["serialize_time"] == 0.75
    assert metrics["worker_seconds"] == 10 + 6
    assert metrics["idle_time"] == 10 + 2 * 6 - 7.5 - 2.0
    assert metrics["n_tasks"] == 7


def test_counter_metrics_sum_increases_and_count_hosts_once(tmp_path):
    def counters(moment, index, base):
        return sample(
            moment,
            index,
            process=MB,
            cpu_time=base,
            io_read=base * 10,
            io_write=base * 100,
            net_read_total=moment * 1000,
            loopback_total=moment * 100,
            machine_number=5,
            tick_max=base / 100,
        )

    samples = [counters(0, 0, 1), counters(0, 1, 2), counters(9, 0, 4), counters(9, 1, 7)]

    metrics = metrics_of(tmp_path, segment(samples=samples))
    shared = [{**row, "process_number": 3} for row in samples]
    from_process = metrics_of(tmp_path, segment(samples=shared))

    assert metrics["cpu_time"] == 3 + 5
    assert metrics["disk_bytes"] == (3 + 5) * 110
    assert metrics["network_bytes"] == 9900, "both workers count the same machine's traffic"
    assert from_process["cpu_time"] == 7 - 1, "the workers report the same process"
    assert metrics["worker_tick_max"] == 0.07, "the first sample covers the time before the clock"


def test_gil_contention_mean_is_share_of_known_seconds(tmp_path):
    rows = [(0, 0.0, 0.5), (5, 4.5, 0.9), (11, 10.2, 3.5)]
    samples = [
        sample(moment, 0, gil_time=waited, monitor_time=ON + end) for moment, end, waited in rows
    ]

    metrics = metrics_of(tmp_path, segment(samples=samples, workers=[worker(0)]))
    short = metrics_of(tmp_path, segment(samples=samples[:2], workers=[worker(0)]))

    assert metrics["gil_contention_mean"] == pytest.approx(0.3)
    assert "gil_contention_mean" not in short, "more than half of the run is unknown"


def test_processor_wait_share_counts_each_thread_once_and_while_the_clock_ran(tmp_path):
    def thread(server, role, number, *counters):
        names = {"server": server, "role": role, "ident": number, "native_id": number}
        return [
            {**names, "time": ON + moment, "ran": ran, "waited": waited}
            for moment, ran, waited in counters
        ]

    threads = [
        # Between the edges of the clock it ran for 2 s and waited for 6 s.
        *thread(0, TASK, 7, (11, 20.0, 13.0), (-1, 5.0, 5.0), (0, 6.0, 6.0), (10, 8.0, 12.0)),
        *thread(1, TASK, 7, (0, 0.0, 1.0), (10, 0.0, 3.0)),  # of another process
        # One event loop, which ran for 1 s and waited for 1 s.
        *thread(SCHEDULER, LOOP, 9, (-0.5, 1.0, 0.5), (10.5, 2.1, 1.6)),
        *thread(CLIENT, LOOP, 9, (0, 1.0, 0.5), (10, 2.0, 1.5)),
    ]
    own = {"state": {"process": [1, 40]}, "client_process": [1, 40]}

    metrics = metrics_of(tmp_path, segment(threads=rows(THREAD_COLUMNS, *threads), **own))

    assert metrics["processor_wait_share"] == pytest.approx((6 + 2 + 1) / (2 + 6 + 2 + 1 + 1))


def test_transfer_metrics_come_from_one_table(tmp_path):
    # Copied by scatter(broadcast=True): in the sender's log alone.
    copied = [1, "tcp://10.0.0.1:1", 2, 20.0, 20.0, 0.1]
    gathered = [1, "Client-1", 3, 70.0, 70.0, 0.1]
    reports = {"0": {"transfers": [copied, gathered]}, "1": {"transfers": []}}

    metrics = metrics_of(
        tmp_path, segment(samples=[sample(1, 0)], reports=reports, state={"scattered_bytes": 10})
    )

    assert (metrics["n_transfers"], metrics["transfer_bytes"]) == (2, 20)
    assert (metrics["gather_bytes"], metrics["scatter_bytes"]) == (70, 10)


def test_scheduler_metrics_use_samples_while_clock_ran(tmp_path):
    scheduler = [
        {"time": ON, "cpu": 90.0, "rss": 9e9, "lag_max": 9.0},  # covers the time before the run
        {"time": ON + 2, "cpu": 10.0, "rss": 1e8, "lag_max": 0.01, "monitor_time": ON + 2},
        {"time": ON + 8, "cpu": 30.0, "rss": 2e8, "lag_max": 0.03, "monitor_time": ON + 8},
        {"time": OFF + 1, "cpu": 90.0, "rss": 9e9, "lag_max": 9.0},
    ]

    metrics = metrics_of(tmp_path, segment(scheduler=scheduler, samples=[sample(1, 0, process=MB)]))

    assert metrics["scheduler_cpu_mean"] == pytest.approx((10 * 0.5 + 30 * 6) / 6.5)
    assert metrics["scheduler_memory_peak"] == 2e8
    assert metrics["scheduler_lag_max"] == 0.03


@pytest.mark.parametrize(
    ("event", "n_lost"),
    [
        (("worker-removed", {"expected": True, "n_processing": 3}), 0),
        (("worker-removed", {"expected": False, "n_processing": 0}), 1),
        (("worker-removed", {"expected": None, "n_processing": 2}), 1),  # old releases
        (("worker-removed", {"expected": None, "n_processing": 0}), 1),  # idle, but not closing
        (("worker-restart-memory", {"rss": 1}), 1),
        (("remove-worker", {}), 0),
    ],
)
def test_n_workers_lost_counts_unexpected_removals(tmp_path, event, n_lost):
    topic, message = event
    events = [
        (ON + 3, topic, 1, json.dumps(message)),
        (ON + 3.1, topic, 1, json.dumps(message)),  # second report of the same worker
        (OFF + 50, topic, 0, json.dumps(message)),  # long after the run
    ]

    metrics = metrics_of(tmp_path, segment(events=events, samples=[sample(1, 0, process=MB)]))

    assert metrics["n_workers_lost"] == n_lost


def test_n_workers_lost_counts_failed_workers(tmp_path):
    events = [
        (ON + 3, "worker-fail-hard", -1, '{"error": "boom"}'),
        (ON + 4, "worker-removed", 1, '{"expected": true, "n_processing": 1}'),
    ]

    metrics = metrics_of(tmp_path, segment(events=events, samples=[sample(1, 0, process=MB)]))

    assert metrics["n_workers_lost"] == 1


def test_n_tasks_recomputed_counts_repeats_after_loss(tmp_path):
    workers = [worker(0, left=ON + 5), worker(1)]
    ran = [("a", 0, 1.0), ("b", 0, 1.0), ("c", 1, 1.0), ("a", 1, 6.0), ("c", 1, 7.0), ("b", 1, 2.0)]
    tasks = [
        {"worker": w, "start": ON + start, "stop": ON + start + 0.1, "ok": 1} for _, w, start in ran
    ]
    recorded = segment(
        workers=workers,
        groups=[group("g", n_tasks=6)],
        tasks=tasks,
        keys=[key for key, *_ in ran],
        samples=[sample(1, 0, process=MB)],
    )

    assert metrics_of(tmp_path, recorded)["n_tasks_recomputed"] == 1, (
        "b ran again before the worker left"
    )


def test_n_tasks_recomputed_is_absent_if_tasks_were_dropped(tmp_path):
    recorded = segment(
        tasks=[{"ok": 1}],
        keys=["a"],
        groups=[group("g", n_tasks=9)],
        state={"n_dropped": 8},
        samples=[sample(1, 0, process=MB)],
    )
    metrics = metrics_of(tmp_path, recorded)

    assert metrics["n_tasks"] == 9
    assert "n_tasks_recomputed" not in metrics


def test_metrics_without_data_are_absent(tmp_path):
    metrics = metrics_of(tmp_path, segment(samples=[sample(1, 0)]))

    for name in (
        "memory_mean",
        "memory_peak",
        "memory_peak_worker",
        "memory_trimmed",
        "spilled_peak",
        "serialize_time",
        "cpu_time",
        "disk_bytes",
        "network_bytes",
        "n_transfers",
        "scheduler_cpu_mean",
        "scheduler_memory_peak",
        "scheduler_lag_max",
        "worker_tick_max",
        "gil_contention_mean",
        "cost",
    ):
        assert name not in metrics, name


def test_metrics_without_capture_have_only_duration(tmp_path):
    assert metrics_of(tmp_path) == {"duration": 10.0}
    assert compute_metrics({}, float("nan")) == {}


def test_metrics_table_is_complete():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.units in {"s", "B", "%", "1", "USD"}
        assert metric.better in {"lower", ""}
        assert metric.long_name
        assert metric.source


def test_biggest_group_has_name_and_share(tmp_path):
    groups = [
        group("a", seconds={"compute": 1.0}, n_tasks=1),
        group("b", seconds={"compute": 2.0, "transfer": 1.0}, n_tasks=1),
    ]
    tree = run_from_recording(record(tmp_path, segment(groups=groups)))

    # Without fetches, which overlap with computing.
    assert tree.attrs["biggest_group"] == "b"
    assert tree.attrs["biggest_group_share"] == pytest.approx(2 / 3)
    assert biggest_group({})[0] == ""
    assert np.isnan(biggest_group({})[1])
