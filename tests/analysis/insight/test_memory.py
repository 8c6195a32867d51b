"""Who held the memory of runs in which that is known."""

import json

import pytest

from benchkit.analysis.insight.memory import (
    bytes_as_text,
    memory_difference,
    memory_growth,
    memory_peaks,
)
from benchkit.errors import NotEnoughRuns, NotRecorded, UsageError
from benchkit.measure.capture.columns import HELD_COLUMNS
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


def test_peaks_have_the_names_of_the_other_tables(tmp_path):
    groups = [f"sum-{digit * 32}" for digit in "01"]
    tasks = [MadeTask(f"{name}-0", n, n + 1) for n, name in enumerate(groups)]
    run = graph_run(tmp_path, tasks, duration=5, held=held((1, 0, 0, 10), (1, 1, 0, 5)))

    text = repr(memory_peaks(run))

    assert "sum #2" in text
    assert "0000" not in text


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


def run_with(folder, *sizes, names=("sum-0123456789abcdef", "load"), unmanaged=0.0):
    """Return a run whose task groups hold these MB, and whose workers end with unmanaged memory."""
    folder.mkdir()
    held = [
        {"time": ON + 1, "group": group, "worker": 0, "nbytes": size * MB}
        for group, size in enumerate(sizes)
    ]
    series = [
        {"time": ON + time, "process": process, "unmanaged_old": unmanaged}
        for time, process in ((0.5, 100.0 * MB), (1.5, 200.0 * MB + unmanaged))
    ]
    tasks = [MadeTask("a-0", 0, 1), MadeTask("b-0", 1, 2)]
    run = graph_run(
        folder, tasks, duration=2, held=rows(HELD_COLUMNS, *held),
        scheduler=series,
    )  # fmt: skip
    run.tree["held"].attrs["groups"] = json.dumps(names)
    return run


def test_memory_difference_matches_groups_without_hash(tmp_path):
    before = run_with(tmp_path / "a", 10, 3)
    after = run_with(tmp_path / "b", 25, 3, names=("sum-fedcba9876543210", "load"))

    table = memory_difference([before], [after])

    assert table.index.tolist() == ["sum", "load"]
    assert table.loc["sum"].tolist() == [10 * MB, 25 * MB, 15 * MB]
    assert table.loc["load"].tolist() == [3 * MB, 3 * MB, 0]


def test_memory_difference_uses_means_of_runs(tmp_path):
    before = [run_with(tmp_path / f"a{size}", size) for size in (10, 20)]
    after = [run_with(tmp_path / "b", 7, 1)]

    table = memory_difference(before, after)

    assert table.loc["sum"].tolist() == [15 * MB, 7 * MB, -8 * MB]
    assert table.loc["load"].tolist() == [0, 1 * MB, 1 * MB]


def test_memory_growth_finds_the_group_and_kind_that_grow(tmp_path):
    runs = [
        run_with(tmp_path / str(n), 10 + 5 * n, 4, unmanaged=float(2 * n * MB)) for n in range(6)
    ]

    table = memory_growth(runs)

    growth = table["growth (B per run)"].to_dict()
    assert growth["results of sum"] == pytest.approx(5 * MB)
    assert growth["unmanaged, old, at the end"] == pytest.approx(2 * MB)
    assert growth["workers' processes at the end"] == pytest.approx(2 * MB)
    assert growth["workers' processes at the start"] == growth["results of load"] == 0
    assert table.index[0] == "results of sum"
    assert table.loc["results of sum", "low"] == pytest.approx(5 * MB)
    assert table.loc["results of sum", ["first (B)", "last (B)"]].tolist() == [10 * MB, 35 * MB]


def test_memory_growth_ignores_one_unusual_run(tmp_path):
    sizes = (10, 10, 90, 10, 10, 10)
    table = memory_growth([run_with(tmp_path / str(n), size) for n, size in enumerate(sizes)])

    assert table.loc["results of sum", "growth (B per run)"] == 0
    assert table.loc["results of sum", "low"] <= 0


def test_memory_growth_refuses_few_or_different_runs(tmp_path):
    runs = [run_with(tmp_path / str(n), 10) for n in range(4)]
    with pytest.raises(NotEnoughRuns, match="growth of memory needs 4 runs, not 3"):
        memory_growth(runs[:3])
    runs[3].tree.attrs["environment"] = "other"
    with pytest.raises(UsageError, match="runs differ"):
        memory_growth(runs)


def test_memory_difference_of_older_files_says_what_is_missing(tmp_path):
    run = graph_run(tmp_path, [MadeTask("a-0", 0, 1)], duration=2)
    with pytest.raises(NotRecorded, match="bytes by task group were not recorded"):
        memory_difference([run], [run])


def test_bytes_as_text_has_units_and_signs(tmp_path):
    table = memory_difference([run_with(tmp_path / "a", 10)], [run_with(tmp_path / "b", 2, 1)])
    text = bytes_as_text(table)

    assert list(text) == ["before", "after", "difference"]
    assert text.loc["sum"].tolist() == ["9.54 MiB", "1.91 MiB", "-7.63 MiB"]
    assert text.loc["load", "difference"] == "+977 KiB"
