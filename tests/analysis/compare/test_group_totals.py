"""Totals of the task groups of a run."""

import numpy as np
import xarray as xr

from benchkit.analysis.compare.group_totals import (
    describe_group_change,
    group_totals,
    run_amounts,
    tree_values,
)
from validation.synthetic_runs import make_run


def test_group_totals_are_absent_without_numbers_of_tasks():
    tree = make_run()
    assert group_totals(tree_values(tree))

    tree["task_groups"] = tree["task_groups"].to_dataset().drop_vars("n_tasks")

    assert group_totals(tree_values(tree)) == {}


def test_run_amounts_are_of_the_whole_run():
    tree = make_run()
    n_tasks = int(tree["task_groups"]["n_tasks"].sum())
    tree["submissions"] = xr.Dataset(
        {"n_nodes": ("submission", [90, 30]), "nbytes": ("submission", [700, 50])}
    )
    counts = {"count": [[0.0, 6.0], [np.nan, 0.0]], "bytes": [[0.0, 600.0], [200.0, 0.0]]}
    tree["transfers"] = xr.Dataset({name: (("a", "b"), rows) for name, rows in counts.items()})

    assert run_amounts(tree_values(tree), group_totals(tree_values(tree))) == {
        "graph_tasks": 120.0,
        "graph_bytes": 750.0,
        "run_transfers": 6 / n_tasks,
        "run_transfer_bytes": 800 / n_tasks,
    }

    incomplete = ("incomplete_report", [1])
    tree["transfers"] = tree["transfers"].to_dataset().assign(incomplete=incomplete)
    unknown = ("submission", [700, -1])
    tree["submissions"] = tree["submissions"].to_dataset().assign(nbytes=unknown)
    assert set(run_amounts(tree_values(tree), group_totals(tree_values(tree)))) == {"graph_tasks"}


def test_describe_group_change_counts_fewer_and_measures_less():
    row = {"workload": "etl", "group": "", "unit": "1", "exact": False}
    row |= {"baseline": 0.5, "contender_value": 0.25, "ratio": 0.5, "low": 0.4, "high": 0.6}

    assert describe_group_change({**row, "metric": "run_transfers"}) == (
        "etl: the run has 50.0 % fewer transfers per task (-60.0 to -40.0): 0.500 -> 0.250"
    )
    assert describe_group_change({**row, "metric": "group_share", "group": "merge"}) == (
        "etl: group merge takes 50.0 % less of the run (-60.0 to -40.0): 50.0 % -> 25.0 %"
    )
