"""Composition: changes of task groups are found by their share, counts without statistics."""

import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.compare.composition import GroupRuns, compare_groups
from benchkit.analysis.compare.group_totals import (
    GroupTotals,
    describe_group_change,
    group_totals,
    tree_values,
)
from validation.run_trees import run_tree
from validation.simulated_groups import group_report, score_groups


def runs(seconds, *, n_tasks=10, nbytes=1000.0):
    """Return totals of one run per element: {group: seconds}."""
    return [
        {name: GroupTotals(value, n_tasks, nbytes) for name, value in run.items()}
        for run in seconds
    ]


def compared(baseline, contender, **options):
    """Return rows of a single workload by (group, metric)."""
    arms = {"baseline": baseline, "contender": contender}
    table = compare_groups([GroupRuns("w", "b", arms)], **options)
    return {(row["group"], row["metric"]): row for row in table.to_dict("records")}


def test_group_totals_adds_groups_of_equal_names():
    first = run_tree({"a": (2, 9), "b": (3, 0)}, 5.0, n_tasks=[4, 6])
    assert group_totals(tree_values(first))["a"][:2] == (2.0, 4)  # without the seconds of transfers
    groups = first["task_groups"].to_dataset()
    groups["task_group"] = [f"a-{digit * 16}" for digit in "01"]
    first["task_groups"] = type(first)(groups)
    assert group_totals(tree_values(first))["a"][:2] == (5.0, 10)


def test_compare_groups_finds_planted_group_in_share(rng):
    false, found, n_planted, right, named = [], 0, 0, 0, 0
    for _ in range(6):
        groups, planted = group_report(rng, 5, share=0.3)
        score = score_groups(compare_groups(groups, blocked=True), planted)
        false.append(score[1] / max(score[0], 1))
        found, n_planted = found + score[2], n_planted + len(planted)
        right, named = right + score[3], named + score[4]

    assert found >= 0.8 * n_planted
    assert right >= 0.95 * named
    assert np.mean(false) < 0.05 + 3 * np.std(false) / np.sqrt(len(false))


def test_compare_groups_finds_planted_group_in_cpu_time_of_busy_machine(rng):
    scores = {}
    for cpu in (None, 0.02):
        drawn = [group_report(rng, 5, share=0.3, noise=0.1, cpu=cpu) for _ in range(4)]
        scores[cpu] = np.sum(
            [
                (*score_groups(compare_groups(groups, blocked=True), planted), len(planted))
                for groups, planted in drawn
            ],
            axis=0,
        )

    called, false, found, right, named, n_planted = scores[0.02]
    assert found >= 0.8 * n_planted
    assert scores[None][2] < 0.4 * scores[None][5]
    assert right >= 0.95 * named
    assert false <= 0.15 * called  # .05 expected; 95 % of four reports are below .15


def test_group_totals_reads_cpu_time_of_tasks():
    run = run_tree({"a": (2, 9), "b": (3, 0)}, 5.0, n_tasks=[4, 6])
    assert np.isnan(group_totals(tree_values(run))["a"].cpu)
    fine = [
        ("execute", "a", "thread-cpu", 1.25),
        ("execute", "a", "thread-cpu", 0.25),
        ("execute", "a", "thread-noncpu", 0.5),
        ("gather-dep", "a", "thread-cpu", 7.0),
    ]
    frame = pd.DataFrame(fine, columns=["context", "prefix", "activity", "value"])
    run["fine"] = type(run)(frame.rename_axis("metric").to_xarray())

    assert group_totals(tree_values(run))["a"].cpu == 1.5
    assert np.isnan(group_totals(tree_values(run))["b"].cpu)


def test_compare_groups_is_silent_without_a_change(rng):
    listed = 0
    for _ in range(8):
        groups, _ = group_report(rng, 5, share=0, n_workloads=10)
        listed += compare_groups(groups, blocked=True)["verdict"].isin(["more", "less"]).any()

    assert listed <= 3  # 5 % of reports; 4 or more of 8 has a probability of .0004


def test_compare_groups_ignores_speed_of_machine():
    slow, jitter = [1.0, 1.3, 0.9, 1.1, 1.2], [1.0, 1.02, 0.99, 1.01, 0.98]
    base = runs(
        [{"a": 10 * s, "b": 5 * s * j, "c": s / j} for s, j in zip(slow, jitter, strict=True)]
    )
    other = runs(
        [
            {"a": 20 * s, "b": 10 * s / j, "c": 2 * s}
            for s, j in zip(slow[::-1], jitter, strict=True)
        ]
    )
    rows = compared(base, other)

    assert {rows[name, "group_share"]["verdict"] for name in "abc"} == {"undecided"}
    assert rows["a", "group_task_time"]["ratio"] == pytest.approx(2.0)


def test_compare_groups_names_large_group_that_grew():
    jitter = [1.0, 1.01, 0.99, 1.005, 0.995]
    base = runs([{"a": 60 * j, "b": 25 / j, "c": 15.0} for j in jitter])
    other = runs([{"a": 90 * j, "b": 25 / j, "c": 15.0} for j in jitter])
    rows = compared(base, other)
    row = rows["a", "group_share"]

    assert row["verdict"] == "more"
    assert row["baseline"] == pytest.approx(0.60, abs=0.001)
    assert row["contender_value"] == pytest.approx(90 / 130, abs=0.001)
    assert rows["a", "group_task_time"]["verdict"] == "more"
    assert rows["b", "group_share"]["verdict"] == rows["c", "group_share"]["verdict"] == "undecided"


def test_compare_groups_counts_are_exact():
    base = runs([{"a": 1.0, "b": 2.0}] * 3)
    other = runs([{"a": 1.0, "b": 2.0}] * 3, n_tasks=12, nbytes=1200.5)
    rows = compared(base, other)

    tasks, per_task, whole = (
        rows[key] for key in (("a", "group_tasks"), ("a", "group_task_bytes"), ("", "group_tasks"))
    )
    assert (tasks["baseline"], tasks["contender_value"], tasks["ratio"]) == (10, 12, 1.2)
    assert tasks["exact"]
    assert tasks["verdict"] == "more"
    assert per_task["exact"]
    assert per_task["verdict"] == "same"
    assert (whole["baseline"], whole["contender_value"]) == (20, 24)
    assert describe_group_change(whole) == (
        "w: the run has 20.0 % more tasks, the same in all runs: 20 -> 24"
    )


def test_compare_groups_needs_two_runs_for_exact_counts():
    rows = compared(runs([{"a": 1.0, "b": 2.0}]), runs([{"a": 1.0, "b": 2.0}] * 2, n_tasks=12))

    assert not rows["a", "group_tasks"]["exact"]
    assert rows["a", "group_tasks"]["verdict"] == "undecided"


def test_compare_groups_matches_renamed_groups():
    base = runs([{"old": 1.0, "b": 2.0}] * 2)
    other = runs([{"new": 1.0, "b": 2.0}] * 2)
    for side in (base, other):
        for run in side:
            run["b"] = run["b"]._replace(n_tasks=7)
    rows = compared(base, other)

    assert rows["old → new", "group_tasks"]["verdict"] == "same"
    assert {group for group, _ in rows} == {"", "b", "old → new"}


def test_compare_groups_tolerates_missing_runs_and_empty_arms():
    base = [*runs([{"a": 1.0, "b": 2.0}] * 2), None]
    other = [None, *runs([{"a": 1.0, "b": 2.0}] * 2)]
    rows = compared(base, other, blocked=True)
    assert rows["a", "group_tasks"]["verdict"] == "same"
    assert compared([None, None], [None, None]) == {}
    assert len(compare_groups([])) == 0


def test_describe_group_change_shows_share_and_interval():
    row = {"workload": "etl", "group": "merge", "metric": "group_share", "unit": "1"}
    row |= {"baseline": 0.041, "contender_value": 0.046, "ratio": 1.12, "low": 1.081, "high": 1.16}
    assert describe_group_change({**row, "exact": False}) == (
        "etl: group merge takes 12.0 % more of the run (+8.1 to +16.0): 4.1 % -> 4.6 %"
    )
    many = {"ratio": 1500.0, "low": 1400.0, "high": 1600.0, "exact": False}
    many |= {"metric": "run_transfers", "group": "", "baseline": 0.001, "contender_value": 1.5}
    assert describe_group_change({**row, **many}) == (
        "etl: the run has about 1,500 times as many transfers per task (1400 to 1600 times): "
        "0.00100 -> 1.50"
    )
    few = {"ratio": 0.1, "low": 0.08, "high": 0.125, "baseline": 1.0, "contender_value": 0.1}
    assert describe_group_change({**row, **few, "exact": False}) == (
        "etl: group merge takes about 10 times less of the run (8 to 12 times): 100.0 % -> 10.0 %"
    )
    gone = {**row, "metric": "group_tasks", "baseline": 3.0, "contender_value": 0.0, "exact": True}
    assert describe_group_change(gone) == "etl: group merge is gone"


def test_compare_groups_has_amounts_of_the_whole_run(rng):
    def amounts(graph, transfers):
        transfers = transfers * np.exp(0.03 * rng.standard_normal(5))
        return [{"graph_tasks": graph, "run_transfers": value} for value in transfers]

    arms = {arm: runs([{"a": 1.0, "b": 2.0}] * 5) for arm in ("baseline", "contender")}
    group = GroupRuns("w", "b", arms, {"baseline": amounts(40.0, 2), "contender": amounts(44.0, 3)})
    table = compare_groups([group]).set_index("metric")
    graph, transfers = table.loc["graph_tasks"], table.loc["run_transfers"]

    assert (graph["verdict"], graph["exact"], graph["ratio"]) == ("more", True, pytest.approx(1.1))
    assert (transfers["verdict"], transfers["exact"]) == ("more", False)
    assert transfers["ratio"] == pytest.approx(1.5, rel=0.06)
    assert "run_transfer_bytes" not in table.index
    changed = table[table["verdict"] == "more"].reset_index().to_dict("records")
    sentences = [describe_group_change(row) for row in changed]
    assert sentences[0] == "w: the run submits 10.0 % more tasks, the same in all runs: 40 -> 44"
    assert sentences[1].startswith("w: the run has 49.9 % more transfers per task (+45.7 to ")


def test_compare_groups_finds_transfers_where_there_were_none():
    arms = {arm: runs([{"a": 1.0, "b": 2.0}] * 5) for arm in ("baseline", "contender")}
    counts = {arm: [{"run_transfers": n}] * 5 for arm, n in (("baseline", 0.0), ("contender", 2.0))}
    table = compare_groups([GroupRuns("w", "b", arms, counts)])
    (row,) = table[table["metric"] == "run_transfers"].to_dict("records")

    assert (row["verdict"], row["exact"]) == ("more", True)
    sentence = "w: the run has more transfers per task, the same in all runs: 0 -> 2"
    assert describe_group_change(row) == sentence
