"""Totals of the task groups of a run."""

from __future__ import annotations

import numpy as np
import xarray as xr
from helpers.synthetic_runs import make_run

from benchkit.analysis.compare.group_totals import group_totals, run_amounts


def test_group_totals_are_absent_without_numbers_of_tasks():
    tree = make_run()
    assert group_totals(tree)

    tree["task_groups"] = tree["task_groups"].to_dataset().drop_vars("n_tasks")

    assert group_totals(tree) == {}


def test_run_amounts_are_of_the_whole_run():
    tree = make_run()
    n_tasks = int(tree["task_groups"]["n_tasks"].sum())
    tree["submissions"] = xr.Dataset({"n_nodes": ("submission", [90, 30])})
    counts = {"count": [[0.0, 6.0], [np.nan, 0.0]], "bytes": [[0.0, 600.0], [200.0, 0.0]]}
    tree["transfers"] = xr.Dataset({name: (("a", "b"), rows) for name, rows in counts.items()})

    assert run_amounts(tree) == {
        "graph_tasks": 120.0,
        "run_transfers": 6 / n_tasks,
        "run_transfer_bytes": 800 / n_tasks,
    }

    incomplete = ("incomplete_report", [1])
    tree["transfers"] = tree["transfers"].to_dataset().assign(incomplete=incomplete)
    assert set(run_amounts(tree)) == {"graph_tasks"}
