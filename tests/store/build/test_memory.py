"""Memory of a cluster from samples of its processes, compared with values computed by hand."""

import numpy as np
import pytest

from benchkit.store.build.processes import cluster_memory, mean_uncertainty, sampled_share
from benchkit.store.build.shape import shaped
from validation.synthetic_recordings import MB, NAN

DURATION = 10.0


def groups_of(samples, *, process_ids=(0, 1), joined=(-5.0, -5.0), left=(NAN, NAN)):
    """Return the groups of a run; samples are worker, time, RSS in MB, and a peak in MB."""
    rows = sorted(samples, key=lambda row: row[1])
    area = {worker: 0.0 for worker in range(len(process_ids))}
    last: dict[int, tuple[float, float]] = {}
    columns = {"time": [], "worker": [], "rss": [], "area": [], "peak": []}
    for worker, time, rss, *peak in rows:
        if worker in last:
            before, value = last[worker]
            area[worker] += (value + rss) / 2 * (time - before) * MB
        last[worker] = time, rss
        values = time, worker, rss * MB, area[worker], (peak[0] if peak else NAN) * MB
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)
    workers = shaped(
        "workers",
        {"process_id": list(process_ids)},
        {"joined": list(joined), "left": list(left), "address": ["a"] * len(process_ids)},
    )
    return {"workers": workers, "memory_samples": shaped("memory_samples", columns, {})}


def constant(worker, rss, *, start=-1.0, stop=11.0, step=0.05):
    return [(worker, float(time), rss) for time in np.arange(start, stop, step)]


def test_cluster_memory_adds_workers():
    found = cluster_memory(groups_of(constant(0, 100) + constant(1, 50)), DURATION)

    assert found["memory_mean"] == pytest.approx(150 * MB)
    assert found["memory_peak"] == found["memory_peak_bound"] == pytest.approx(150 * MB)
    assert found["memory_peak_worker"] == pytest.approx(100 * MB)


def test_cluster_memory_counts_a_shared_process_once():
    found = cluster_memory(
        groups_of(constant(0, 100) + constant(1, 100), process_ids=(7, 7)), DURATION
    )

    assert found["memory_mean"] == pytest.approx(100 * MB)
    assert found["memory_peak"] == pytest.approx(100 * MB)


def test_cluster_memory_ignores_time_outside_the_clock():
    samples = [*constant(0, 100), (0, -0.5, 900), (0, 10.5, 900)]
    found = cluster_memory(
        groups_of(samples, process_ids=(0,), joined=(-5,), left=(NAN,)), DURATION
    )

    assert found["memory_peak"] == pytest.approx(100 * MB)


def test_cluster_memory_ends_when_a_worker_leaves():
    samples = constant(0, 100, stop=4.0) + constant(1, 50)
    found = cluster_memory(groups_of(samples, left=(4.0, NAN)), DURATION)

    assert found["memory_mean"] == pytest.approx((100 * 4 + 50 * 10) / 10 * MB, rel=0.01)
    assert found["memory_peak"] == pytest.approx(150 * MB)


def test_cluster_memory_of_no_worker_is_zero_and_of_no_sample_absent():
    gone = groups_of([], left=(-1.0, -1.0))
    unsampled = groups_of(constant(0, 100, stop=5.0), process_ids=(0,), joined=(-5,), left=(NAN,))

    assert cluster_memory(gone, DURATION)["memory_mean"] == 0
    assert cluster_memory(unsampled, DURATION) == {}


def test_cluster_memory_peak_includes_high_water_marks():
    spike = [(0, -0.2, 100, 100), (0, 4.0, 100, 100), (0, 4.5, 100, 400)]
    samples = sorted(constant(0, 100) + spike, key=lambda row: row[1]) + constant(1, 50)
    found = cluster_memory(groups_of(samples), DURATION)

    # Between 4.0 and 4.5 s the other worker had 50 MB all the time.
    assert found["memory_peak"] == pytest.approx(450 * MB)
    assert found["memory_peak_bound"] == pytest.approx(450 * MB)
    assert found["memory_peak_worker"] == pytest.approx(400 * MB)


def test_cluster_memory_bound_covers_spikes_at_unknown_times():
    def with_spike(worker):
        marks = [(worker, 4.0, 100, 100), (worker, 4.5, 100, 400)]
        return constant(worker, 100) + marks

    found = cluster_memory(groups_of(with_spike(0) + with_spike(1)), DURATION)

    assert found["memory_peak"] == pytest.approx(500 * MB), "the spikes need not coincide"
    assert found["memory_peak_bound"] >= found["memory_peak"]


def test_cluster_memory_ignores_peaks_before_the_clock():
    samples = [*constant(0, 100), (0, -0.6, 100, 100), (0, -0.1, 100, 900), (0, 0.4, 100, 100)]
    found = cluster_memory(
        groups_of(samples, process_ids=(0,), joined=(-5,), left=(NAN,)), DURATION
    )

    assert found["memory_peak_worker"] == pytest.approx(100 * MB)


def test_cluster_memory_without_time_in_the_cluster_is_zero():
    groups = groups_of([], process_ids=(0,), joined=(20.0,), left=(NAN,))

    assert cluster_memory(groups, DURATION) == {
        "memory_mean": 0.0,
        "memory_peak": 0.0,
        "memory_peak_bound": 0.0,
    }
    assert sampled_share(groups, DURATION) == 1.0


def test_sampled_share_counts_each_process_once():
    samples = constant(0, 100, stop=5.0) + constant(1, 100, stop=5.0)

    assert sampled_share(groups_of(samples, process_ids=(7, 7)), DURATION) == pytest.approx(
        0.5, abs=0.01
    )


def test_mean_uncertainty_is_half_of_each_step_times_its_interval():
    """100 MB within 0.5 s, once up and once down: 50 MB s in 10 s."""
    samples = [(0, t, rss) for t, rss in ((-1, 100), (2, 100), (2.5, 200), (4, 200), (4.5, 100))]
    groups = groups_of([*samples, (0, 11, 100)], process_ids=(0,), joined=(-5,), left=(NAN,))

    assert mean_uncertainty(groups, DURATION) == pytest.approx(2 * 100 * MB * 0.5 / 2 / DURATION)
    assert mean_uncertainty(groups_of(constant(0, 1) + constant(1, 2)), DURATION) == 0
