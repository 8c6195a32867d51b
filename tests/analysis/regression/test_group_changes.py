"""Task groups that change on a night: found by their share, also if the duration is the same."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.compare.group_totals import GroupTotals
from benchkit.analysis.regression.group_changes import (
    GROUP_NIGHTS,
    NIGHTS_MOVED,
    find_group_changes,
    runs_of_groups,
)
from benchkit.analysis.regression.history import build_history, night_name
from benchkit.analysis.regression.nights import night_notes
from validation.run_records import run_record
from validation.run_trees import runs_with_stacks


def nights(seconds, *, n_tasks=None, nbytes=None, **facts):
    """Return a history, and the totals of its runs; `seconds` maps groups to values by night."""
    size = len(next(iter(seconds.values())))
    rows = [run_record(night, duration=10.0, **facts) for night in range(size)]
    counts = {name: (n_tasks or {}).get(name, [10] * size) for name in seconds}
    sizes = {name: (nbytes or {}).get(name, [1e5] * size) for name in seconds}
    totals = {
        row["id"]: {
            name: GroupTotals(
                values[night], counts[name][night], sizes[name][night] * counts[name][night]
            )
            for name, values in seconds.items()
            if np.isfinite(values[night])
        }
        for night, row in enumerate(rows)
    }
    return build_history(pd.DataFrame(rows), metrics=["duration"]), totals


def noisy(rng, level, size=40):
    return level * np.exp(0.02 * rng.standard_normal(size))


def groups(rng, size=40):
    """Return seconds of four groups, on a machine whose speed differs by 20 % between nights."""
    speed = np.exp(0.2 * rng.standard_normal(size))
    levels = {"load": 50, "merge": 5, "sum": 30, "store": 15}
    return {name: speed * noisy(rng, level, size) for name, level in levels.items()}


def test_find_group_changes_names_group_on_machine_of_changing_speed(rng):
    seconds = groups(rng, 47)
    seconds["merge"][37:] *= 1.3
    history, totals = nights(seconds)
    (row,) = find_group_changes(history, totals)

    assert (row["group"], row["metric"]) == ("merge", "group_share")
    assert row["ratio"] == pytest.approx(1.28, abs=0.05)
    assert row["baseline"] == pytest.approx(0.05, abs=0.003)
    assert row["night"] in [night_name(time) for time in history.times[36:39]]
    assert "group merge takes 2" in row["sentence"]
    assert "% more of the run" in row["sentence"]
    event = {"kind": "night", "groups": [row]}
    assert night_notes([event]) == [row["sentence"]]


def test_find_group_changes_finds_processor_time_on_busy_machine(rng):
    works = {name: 0.3 * noisy(rng, np.median(values), 47) for name, values in groups(rng).items()}
    works["merge"][37:] *= 1.3
    seconds = {
        name: values * np.exp(0.3 * rng.standard_normal(47)) for name, values in works.items()
    }
    history, totals = nights(seconds)
    assert find_group_changes(history, totals) == []
    for night, groups_of in enumerate(totals.values()):
        for name in groups_of:
            groups_of[name] = groups_of[name]._replace(cpu=works[name][night])
    (row,) = find_group_changes(history, totals)

    assert (row["group"], row["metric"]) == ("merge", "group_cpu_share")
    assert "group merge takes 2" in row["sentence"]
    assert "% more of the CPU time" in row["sentence"]


def test_find_group_changes_has_seconds_and_bytes_per_task(rng):
    seconds = {name: noisy(rng, np.median(v), 47) for name, v in groups(rng).items()}
    nbytes = {"merge": noisy(rng, 1e5, 47)}
    history, totals = nights(seconds, nbytes=nbytes)
    assert find_group_changes(history, totals) == []
    nbytes["merge"][37:] *= 1.2
    (row,) = find_group_changes(*nights(seconds, nbytes=nbytes))
    assert (row["group"], row["metric"]) == ("merge", "group_task_bytes")
    assert row["ratio"] == pytest.approx(1.2, abs=0.04)
    seconds["merge"][37:] *= 1.4
    rows = find_group_changes(*nights(seconds, nbytes=nbytes))

    assert [row["metric"] for row in rows] == ["group_share", "group_task_bytes", "group_task_time"]
    assert rows[2]["ratio"] == pytest.approx(1.4, abs=0.05)
    assert "% more time per task" in rows[2]["sentence"]


def test_find_group_changes_names_function_of_changed_group(rng):
    seconds = {**groups(rng, 47), "b": noisy(rng, 5, 47)}
    seconds["b"][37:] *= 2
    history, totals = nights(seconds)
    stacks, read = runs_with_stacks(rng, 10), []
    night = {run_id: place for place, run_id in enumerate(totals)}

    def load(ids, groups):
        read.append((len(ids), groups))
        names = {i: ("contender" if night[i] >= 37 else "baseline", night[i] % 10) for i in ids}
        return [
            SimpleNamespace(id=i, profile=stacks["{}-{}".format(*names[i])].profile) for i in ids
        ]

    share, frame, time = find_group_changes(history, totals, load)

    assert read == [(20, ("profile",))]
    assert (share["group"], share["metric"]) == ("b", "group_share")
    assert [frame[name] for name in ("function", "file")] == ["take", "lib/core.py"]
    assert frame["contender_value"] == pytest.approx(0.6, abs=0.02)
    assert frame["night"] == share["night"]
    assert (time["group"], time["metric"]) == ("b", "group_task_time")
    assert frame["sentence"].startswith("array.sum: in group b, take (lib/core.py) is in ")


def test_find_group_changes_reports_a_change_once(rng):
    # 97 nights: the first searched night moves while the change is in the searched nights.
    for start, size in ((37, 60), (84, 104)):
        seconds = groups(rng, size)
        seconds["merge"][start:] *= 1.3
        history, totals = nights(seconds)
        found = [
            night
            for night in range(start, size + 1)
            if find_group_changes(history.before(night), totals)
        ]

        assert found in ([start + 9], [start + 10])  # history.before(n) ends on night n - 1


def test_find_group_changes_is_silent_about_a_slow_machine(rng):
    seconds = groups(rng, 46)
    for values in seconds.values():
        values[35:] *= 1.5

    assert find_group_changes(*nights(seconds)) == []


def test_find_group_changes_of_tasks_is_exact(rng):
    counts = {"merge": [10] * 39 + [12]}
    (row,) = find_group_changes(*nights(groups(rng), n_tasks=counts, dask="2026.7.0"))

    assert (row["metric"], row["exact"]) == ("group_tasks", True)
    assert row["sentence"].endswith(
        "group merge has 20.0 % more tasks, the same in all runs: 10 -> 12"
    )
    varying = {"merge": [10, 11] * 19 + [10, 14]}
    assert find_group_changes(*nights(groups(rng), n_tasks=varying)) == []
    new = {"merge": [10] * 34 + [12] * 6}  # of six nights before: reported then
    assert find_group_changes(*nights(groups(rng), n_tasks=new)) == []


def test_find_group_changes_has_graph_of_new_build(rng):
    history, totals = nights(groups(rng), n_tasks={"sum": [10] * 39 + [9]}, dask="2026.7.0")
    amounts = {run_id: {"graph_tasks": 1024.0, "graph_bytes": 5e5 + n % 3}
               for n, run_id in enumerate(totals)}  # fmt: skip
    assert len(find_group_changes(history, totals, None, amounts)) == 1
    last = history.runs["night"] == 39
    history.runs.loc[last, "dask"] = "2026.8.0"
    amounts[history.runs.loc[last, "id"].item()] = {"graph_tasks": 2048.0, "graph_bytes": 5.02e5}
    graph, tasks = find_group_changes(history, totals, None, amounts)

    assert graph["sentence"].startswith("array.sum: the run submits 100.0 % more tasks, ")
    assert graph["sentence"].endswith(" -> 2,048, since dask 2026.7.0 -> 2026.8.0")
    assert tasks["sentence"].endswith("10 -> 9, since dask 2026.7.0 -> 2026.8.0")


def test_find_group_changes_follows_renamed_groups(rng):
    seconds = groups(rng, 47)
    counts = {"merge": [7] * 47, "join": [7] * 47}
    old = seconds.pop("merge")
    seconds["merge"], seconds["join"] = (np.where(np.arange(47) < 20, old, np.nan),
                                         np.where(np.arange(47) < 20, np.nan, old))  # fmt: skip
    seconds["join"][37:] *= 1.3
    (row,) = find_group_changes(*nights(seconds, n_tasks=counts))

    assert row["group"] == "join"


def test_runs_of_groups_ends_at_a_segment_and_after_nights(rng):
    for size, first in ((60, 0), (61, 1), (90, 1), (91, 31), (121, 61)):
        history, _ = nights(groups(rng, size))
        (ids,) = runs_of_groups(history).values()
        assert len(ids) == size - first
        assert len(ids) in range(min(size, GROUP_NIGHTS), GROUP_NIGHTS + NIGHTS_MOVED)
    assert all(len(night_ids) == 1 for night_ids in ids)
    assert find_group_changes(history, {}) == []

    rows = [run_record(n, version="2" if n >= 80 else "1") for n in range(90)]
    (ids,) = runs_of_groups(build_history(pd.DataFrame(rows), metrics=["duration"])).values()
    assert len(ids) == 10


def test_find_group_changes_rarely_reports_noise(rng):
    n_found = n_nights = 0
    for _ in range(12):
        history, totals = nights(groups(rng, 60))
        for night in range(30, 60, 3):
            n_found += bool(find_group_changes(history.before(night), totals))
            n_nights += 1

    assert n_nights == 120
    assert n_found <= 1  # 0.03 % expected
