"""Functions of a group that changed are named from the call stacks of whole runs."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from benchkit.analysis.compare.group_totals import changed_rows, describe_group_change
from benchkit.analysis.compare.run_groups import compare_run_groups, find_frame, frame_samples
from benchkit.store.run import Run
from validation.run_trees import profile_group, runs_with_stacks, store_of_runs
from validation.simulated_groups import frame_arms

ENVIRONMENT = "/envs/{}/lib/python3.12/site-packages/lib/"


def test_frame_samples_counts_a_recursive_function_once():
    step, leaf = ("step", ENVIRONMENT.format("a") + "core.py"), ("leaf", "own.py")
    run = Run(xr.DataTree.from_dict({"/profile": profile_group({
        ("merge", step, step, leaf): 6, ("merge", step): 2, ("sum", leaf): 3
    })}))  # fmt: skip
    samples = frame_samples(run.profile())

    assert samples["merge"].total == 8
    assert samples["merge"].counts == {("step", "lib/core.py"): 8, ("leaf", "own.py"): 6}
    assert samples["sum"].counts == {("leaf", "own.py"): 3}
    assert frame_samples(pd.DataFrame()) == {}


def test_find_frame_names_the_innermost_function(rng):
    found = [find_frame(frame_arms(rng, 3.0), 1) for _ in range(20)]
    names = [row["function"] for row in found if row]

    assert len(names) >= 16
    assert names.count("leaf3") >= 0.9 * len(names)
    for row in filter(None, found):
        assert row["low"] < row["ratio"] < row["high"]
        assert row["contender_value"] == pytest.approx(row["baseline"] * row["ratio"])


def test_find_frame_is_silent_where_all_functions_take_longer(rng):
    named = [
        find_frame(frame_arms(rng, 1.0, n_runs, total=total), 1) is not None
        for n_runs in (3, 5, 10)
        for total in (60, 1000, 20_000)
        for _ in range(40)
    ]

    assert np.mean(named) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(named))


def test_find_frame_needs_two_runs_a_side(rng):
    arms = frame_arms(rng, 5.0)
    assert find_frame({**arms, "contender": arms["contender"][:1]}, 1) is None
    assert find_frame({**arms, "contender": [None] * 5}, 1) is None


def test_compare_run_groups_names_function_of_changed_group(rng):
    runs = runs_with_stacks(rng, 5)
    arms = {arm: [f"{arm}-{n}" for n in range(5)] for arm in ("baseline", "contender")}
    arms["baseline"].append("gone")
    arms["contender"].append("")
    store, read = store_of_runs(runs), []

    def load(ids, groups, load=store.load):
        read.append((len(ids), groups))
        return load(ids, groups)

    store.load = load
    table = compare_run_groups({("new", "etl"): arms}, store, blocked=True)
    first, frame = changed_rows(table)[:2]

    assert (first["group"], first["metric"]) == ("b", "group_share")
    assert (frame["group"], frame["metric"], frame["contender"]) == ("b", "frame_share", "new")
    assert (frame["function"], frame["file"]) == ("take", "lib/core.py")
    text = describe_group_change(frame)
    assert text.startswith("etl: in group b, take (lib/core.py) is in 5")
    assert ", before in 3" in text
    assert read == [(10, ("profile",))]  # of one group, once
