import numpy as np
import pytest
import xarray as xr

from benchkit.analysis.run.timeline import TaskTimeline, group_differences


def run_of(n_tasks=500, n_groups=4, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    start = rng.uniform(0, 100, n_tasks)
    duration = rng.exponential(2.0, n_tasks)
    tasks = {
        "start": ("task", start),
        "duration": ("task", duration + shift),
        "thread": ("task", rng.integers(0, 8, n_tasks).astype("i4")),
        "group": ("task", rng.integers(0, n_groups, n_tasks).astype("i4")),
        "worker": ("task", rng.integers(0, 3, n_tasks).astype("i4")),
    }
    n_events = 200
    begun = rng.uniform(0, 100, n_events)
    events = {
        "task": ("event", rng.integers(0, n_tasks, n_events).astype("i4")),
        "action": ("event", np.ones(n_events, "i1")),
        "source": ("event", rng.integers(0, 3, n_events).astype("i4")),
        "start": ("event", begun),
        "stop": ("event", begun + rng.exponential(1.0, n_events)),
    }
    names = [f"('load-{i:032x}', 0)"[2:-5] for i in range(n_groups)]
    groups = xr.Dataset(
        {
            "seconds": (("task_group", "action"), np.ones((n_groups, 1))),
            "n_tasks": ("task_group", np.full(n_groups, 7)),
        },
        coords={"task_group": names, "action": ["compute"]},
    )
    events = xr.Dataset(events, attrs={"actions": '["compute", "transfer"]'})
    return xr.DataTree.from_dict(
        {"/tasks": xr.Dataset(tasks), "/task_events": events, "/task_groups": groups}
    )


def seconds_inside(start, stop, window):
    left, right = window
    return np.maximum(np.minimum(stop, right) - np.maximum(start, left), 0).sum()


@pytest.mark.parametrize("window", [(0.0, 200.0), (20.0, 30.0), (49.99, 50.0), (-5.0, 0.1)])
def test_group_seconds_counts_only_time_inside_window(window):
    tree = run_of()
    tasks, events = tree["tasks"].to_dataset(), tree["task_events"].to_dataset()

    table = TaskTimeline(tree).group_seconds(window)

    stop = tasks["start"] + tasks["duration"]
    truth = seconds_inside(tasks["start"].values, stop.values, window)
    moved = seconds_inside(events["start"].values, events["stop"].values, window)
    assert table["compute"].sum() == pytest.approx(truth)
    assert table["transfer"].sum() == pytest.approx(moved)
    overlap = (tasks["start"] < window[1]) & (stop > window[0])
    assert table["tasks"].sum() == int(overlap.sum())


def test_busy_threads_sum_to_group_seconds():
    timeline = TaskTimeline(run_of())
    window = (10.0, 60.0)

    busy = timeline.busy_threads(window, bins=100)

    assert busy["compute"].sum() * 0.5 == pytest.approx(
        timeline.group_seconds(window)["compute"].sum()
    )
    assert (busy >= 0).all(axis=None)


def test_group_seconds_of_run_uses_worker_counts():
    assert TaskTimeline(run_of()).group_seconds()["tasks"].tolist() == [7] * 4


def test_transfers_of_group_by_worker_pair():
    tree = run_of()
    timeline = TaskTimeline(tree)

    found = [timeline.transfers_of(name) for name in timeline.groups]

    assert sum(table["count"].sum() for table in found) == 200
    assert timeline.transfers()["count"].sum() == 200
    assert timeline.transfers_of("unknown").empty


def test_timeline_of_run_without_tasks_is_empty():
    timeline = TaskTimeline(xr.DataTree())

    assert timeline.group_seconds((0, 1)).empty
    assert timeline.n_tasks == 0


def test_group_differences_match_groups_without_hash():
    slow, quick = TaskTimeline(run_of(shift=0.5)), TaskTimeline(run_of())
    window = (-1e3, 1e3)

    table = group_differences(quick, slow, window)

    assert list(table.index) == ["load"]
    assert table["difference"].sum() == pytest.approx(0.5 * 500)


def test_group_differences_per_task_and_per_gib():
    small, large = run_of(n_tasks=100), run_of(n_tasks=400)
    for tree in (small, large):
        tasks = tree["tasks"].to_dataset()
        nbytes = ("task", np.full(tasks.sizes["task"], 2**20))
        tree["tasks"] = xr.DataTree(tasks.assign(nbytes=nbytes))
    window = (-1e3, 1e3)
    pair = TaskTimeline(small), TaskTimeline(large)

    seconds = group_differences(*pair, window).loc["load"]
    per_task = group_differences(*pair, window, per="task").loc["load"]
    per_gib = group_differences(*pair, window, per="GiB").loc["load"]

    assert seconds["difference"] > seconds["a"]
    assert per_task["a"] == pytest.approx(seconds["a"] / 100)
    assert per_task["b"] == pytest.approx(seconds["b"] / 400)
    assert per_gib["b"] == pytest.approx(1024 * per_task["b"])


def test_group_differences_missing_group_is_nan_per_task():
    a, b = run_of(n_groups=1), run_of(n_groups=1)
    other = b["task_groups"].to_dataset().assign_coords(task_group=["store-" + "0" * 32])
    b["task_groups"] = xr.DataTree(other)
    found = group_differences(TaskTimeline(a), TaskTimeline(b), per="task")

    assert found["a"].notna().sum() == found["b"].notna().sum() == 1
    assert found["difference"].isna().all()
