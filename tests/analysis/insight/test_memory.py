"""Who held the memory of runs in which that is known."""

from __future__ import annotations

import pytest

from benchkit.analysis.insight.memory import memory_peaks
from benchkit.errors import NotRecorded
from benchkit.measure.capture import HELD_COLUMNS
from validation.graph_runs import MadeTask, graph_run
from validation.synthetic_recordings import MB, ON, rows


def held(*entries):
    """Return rows of (time, group, worker, MB)."""
    columns = ("time", "group", "worker", "nbytes")
    return rows(
        HELD_COLUMNS,
        *(
            dict(zip(columns, (ON + time, group, worker, size * MB), strict=True))
            for time, group, worker, size in entries
        ),
    )


TASKS = [MadeTask("a-0", 0, 1), MadeTask("b-0", 2, 4, worker=1, thread=1)]


def test_peaks_name_the_groups_that_held_them(tmp_path):
    samples = held((1, 0, 0, 10), (1, 1, 1, 5), (2, 0, 0, 30), (2, 1, 0, 9), (3, 1, 1, 36))
    run = graph_run(tmp_path, TASKS, duration=5, n_workers=2, held=samples)

    peaks = memory_peaks(run)

    assert run.memory_by_group().sum(axis=1).to_dict() == {1.0: 15 * MB, 2.0: 39 * MB, 3.0: 36 * MB}
    assert run.memory_by_group(1)["b"].tolist() == [5 * MB, 0, 36 * MB]
    assert (peaks.time, peaks.cluster.to_dict()) == (2.0, {"a": 30 * MB, "b": 9 * MB})
    assert (peaks.worker, peaks.worker_time) == ("0", 2.0)
    assert peaks.on_worker.to_dict() == {"a": 30 * MB, "b": 9 * MB}


def test_transient_is_the_peak_less_results_and_floor(tmp_path):
    samples = [
        {"time": ON + 0.5, "worker": 0, "rss": 100 * MB},
        {"time": ON + 1.5, "worker": 0, "rss": 150 * MB, "peak": 400 * MB},
        {"time": ON + 3.0, "worker": 0, "rss": 100 * MB, "peak": 900 * MB},
    ]
    run = graph_run(
        tmp_path,
        TASKS,
        duration=5,
        n_workers=2,
        held=held((0.5, 0, 0, 0), (1.5, 0, 0, 50), (3, 0, 0, 0)),
        memory=samples,
    )

    transient = memory_peaks(run).transient.to_dict()

    # 400 MB less 50 MB of results and 100 MB that the process always has; no task ran at 900 MB.
    assert transient == {"a": pytest.approx(250 * MB)}


def test_run_without_samples_says_so(tmp_path):
    run = graph_run(tmp_path, TASKS, duration=5, n_workers=2)
    with pytest.raises(NotRecorded, match="bytes by task group were not recorded"):
        run.memory_by_group()
