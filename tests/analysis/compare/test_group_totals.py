"""Totals of the task groups of a run."""

from __future__ import annotations

from helpers.synthetic_runs import make_run

from benchkit.analysis.compare.group_totals import group_totals


def test_group_totals_are_absent_without_numbers_of_tasks():
    tree = make_run()
    assert group_totals(tree)

    tree["task_groups"] = tree["task_groups"].to_dataset().drop_vars("n_tasks")

    assert group_totals(tree) == {}
