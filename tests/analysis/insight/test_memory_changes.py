"""Differences and growth of memory, of runs in which they are known."""

from __future__ import annotations

import json

import pytest

from benchkit.analysis.insight.memory_changes import bytes_as_text, memory_difference, memory_growth
from benchkit.errors import NotEnoughRuns, NotRecorded, UsageError
from benchkit.measure.capture import HELD_COLUMNS
from validation.graph_runs import MadeTask, graph_run
from validation.synthetic_recordings import MB, ON, rows


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
