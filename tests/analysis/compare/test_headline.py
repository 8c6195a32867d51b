"""Headline: one sentence counts rows, task groups and exact counts, and judges the suite."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.composition import GroupRuns, compare_groups
from benchkit.analysis.compare.group_totals import GroupTotals
from benchkit.analysis.compare.headline import suite_changes
from benchkit.errors import NotEnoughRuns
from validation.arm_runs import arm_runs


def with_groups(report, *, task_s=1.0, n_tasks=10, graph_bytes=1e6, has_cpu=False):
    """Return a comparison with the task groups of one workload, of which `transform` may differ."""
    rng = np.random.default_rng(0)

    def side(task_s, n_tasks):
        return [
            {name: GroupTotals(seconds * rng.lognormal(sigma=0.005), n, 100.0,
                               cpu=seconds if has_cpu else np.nan)
             for name, seconds, n in (("load", 8.0, 10), ("transform", 10 * task_s, n_tasks),
                                      ("store", 9.0, 10))}
            for _ in range(5)
        ]  # fmt: skip

    arms = {"baseline": side(1.0, 10), "contender": side(task_s, n_tasks)}
    amounts = {"baseline": [{"graph_bytes": 1e6}] * 5,
               "contender": [{"graph_bytes": graph_bytes}] * 5}  # fmt: skip
    table = compare_groups([GroupRuns("x.w00", "contender", arms, amounts)])
    return replace(report, composition=table)


@pytest.fixture(scope="module")
def unchanged():
    return compare(arm_runs("A", noise=0.01), arm_runs("B", seed=1, noise=0.01),
                   metrics=["duration"])  # fmt: skip


def test_sentence_counts_a_group_that_takes_more_time(unchanged):
    report = with_groups(unchanged, task_s=1.09)

    assert not unchanged.is_worse
    assert "0 worse" in report.sentence
    assert "Task groups: 1 worse, 0 better (x.w00, group transform +" in report.sentence
    assert report.is_worse
    found = [row for row in report.to_records() if row.get("group") == "transform"]
    assert any(row["worse"] for row in found)


def test_sentence_counts_bytes_of_graphs_and_tasks(unchanged):
    more = with_groups(unchanged, graph_bytes=2.155e6)
    fewer = with_groups(unchanged, n_tasks=8, task_s=0.8)
    huge = with_groups(unchanged, graph_bytes=1.3e9)

    assert "Counts: 1 worse, 0 better (x.w00, bytes of graphs +115 %)" in more.sentence
    assert more.is_worse
    assert "(x.w00, bytes of graphs about 1,300 times as high)" in huge.sentence
    assert "Counts: 0 worse, 1 better (x.w00, tasks" in fewer.sentence
    assert not fewer.is_worse
    assert not with_groups(unchanged, graph_bytes=1.005e6).is_worse


def test_sentence_ignores_a_share_that_grows_because_others_shrink(unchanged):
    rows = with_groups(unchanged, task_s=1.2).composition
    seconds = rows["metric"] == "group_task_time"
    rows.loc[seconds, "ratio"] = 0.7  # all groups became faster, transform least
    rows.loc[seconds, "verdict"] = "undecided"

    assert not replace(unchanged, composition=rows).is_worse


def test_comparison_of_cpu_seconds_does_not_judge_wall_time(unchanged):
    slower = replace(with_groups(unchanged, task_s=1.09), metrics=("cpu_time",))
    larger = replace(with_groups(unchanged, graph_bytes=2.155e6), metrics=("cpu_time",))

    assert not slower.judges_wall_time
    assert not slower.is_worse
    assert "Wall time is not judged, only CPU seconds and counts." in slower.sentence
    assert "Counts: 1 worse" in larger.sentence
    assert larger.is_worse
    assert "Wall time" not in unchanged.sentence


def test_comparison_of_cpu_seconds_judges_those_of_task_groups(unchanged):
    report = replace(with_groups(unchanged, task_s=1.09, has_cpu=True), metrics=("cpu_time",))

    assert report.is_worse
    assert {row["metric"] for row in report.changed_groups} <= {"group_cpu_share", "group_task_cpu"}


def test_suite_changes_have_nominal_coverage():
    names = [f"x.w{i:03}" for i in range(120)]
    change = dict.fromkeys(names, 1.03)
    baseline = arm_runs("A", 4, workloads=names, noise=0.05)
    contender = arm_runs("B", 4, seed=1, workloads=names, noise=0.05, change=change)
    own = {f"c{i}": contender[contender["workload"].isin(names[i * 3 : i * 3 + 3])]
           for i in range(40)}  # fmt: skip

    suites = suite_changes(compare(baseline, own, metrics=["duration"]))

    inside = sum(suite.low <= 1.03 <= suite.high for suite in suites)
    assert binomtest(inside, 40, 0.95).pvalue > 1e-3


def test_sentence_names_what_moved_most_in_the_suite():
    report = compare(arm_runs("A"), arm_runs("B", seed=1, change={"x.w03": 1.5, "x.w05": 0.6}),
                     metrics=["duration"])  # fmt: skip

    assert "1 worse, 1 better; moved most: x.w05 −4" in report.sentence
    (suite,) = suite_changes(report)
    assert suite.low < np.exp(np.log([1.5, 0.6]).sum() / 16) < suite.high
    assert report.to_records()[0]["suite_ratio"] == pytest.approx(suite.ratio)


def busy_runs(arm, seed, cpu=1.0):
    """Return runs of one workload on a busy machine: the duration is noise, CPU seconds are not."""
    rng = np.random.default_rng(seed)
    runs = arm_runs(arm, seed=seed, noise=0.6, workloads=["x.w00"])
    return runs.assign(
        quality=json.dumps({"duration": "disturbed"}),
        cpu_time=10 * cpu * rng.lognormal(sigma=0.01, size=len(runs)),
        scheduler_cpu_time=3 * rng.lognormal(sigma=0.01, size=len(runs)),
        client_cpu_time=0.01 * rng.lognormal(sigma=0.2, size=len(runs)),
    )


def test_sentence_judges_work_where_the_machine_was_busy():
    more = compare(busy_runs("A", 0), busy_runs("B", 1, cpu=1.12))
    same = compare(busy_runs("A", 0), busy_runs("B", 1))

    assert "x.w00: 12 % more work (CPU of the workers); the wall time could not be judged on " \
        "this busy machine." in more.sentence  # fmt: skip
    assert more.is_worse
    assert "the same work (CPU) within ±5%; the wall time could not" in same.sentence
    assert "undecided: the machine was busy" in same.to_table()
    assert "client_cpu_time" not in set(more.frame["metric"])  # .1 % of the work


@pytest.mark.parametrize("work", [1.08, 3.2])
def test_compare_judges_work_of_a_busy_machine_at_equal_load(work):
    rng, sides = np.random.default_rng(0), {}
    for seed, arm in enumerate("AB"):
        runs = busy_runs(arm, seed)
        more = work if arm == "B" else 1.0
        longer = 8 * rng.lognormal(sigma=0.5, size=len(runs))
        sides[arm] = runs.assign(
            experiment="e1",
            block=range(len(runs)),
            duration=more * longer,  # a change of both
            cpu_time=10 * more * rng.lognormal(sigma=0.01, size=len(runs)) * longer**0.3,
            processor_wait_share=1 - 1 / longer,
        )
    row = compare(sides["A"], sides["B"]).frame.set_index("metric").loc["cpu_time"]

    assert row["verdict"] == "more"
    assert 0.97 * work < row["ratio"] < 1.03 * work
    assert "at equal load" in row["note"]
    quiet = [side.assign(quality="{}") for side in sides.values()]
    frame = compare(*quiet).frame.set_index("metric")
    assert "at equal load" not in frame.loc["cpu_time", "note"]


def test_compare_refuses_an_arm_without_tasks():
    runs = {arm: arm_runs(arm, seed=place, n_tasks=[0.0, 50.0][place], workloads=["x.w00"])
            for place, arm in enumerate("AB")}  # fmt: skip
    with pytest.raises(NotEnoughRuns, match=r"x\.w00 is not compared: no task of fast was captur"):
        compare(runs["B"], {"fast": runs["A"]})
    both = compare(runs["A"], {"fast": runs["A"].assign(id=runs["A"]["id"] + "-2")})

    assert len(both.frame)  # neither side has tasks: only timed


def test_compare_leaves_out_work_that_one_side_did_not_record():
    report = compare(busy_runs("A", 0).drop(columns="cpu_time"), busy_runs("B", 1))

    assert set(report.frame["metric"]) == {"duration", "memory_peak", "scheduler_cpu_time"}


def test_workload_that_an_arm_skipped_is_named_and_not_compared():
    baseline, contender = arm_runs("A"), arm_runs("B", seed=1)
    skipped = contender["workload"] == "x.w00"
    contender.loc[skipped, ["outcome", "error"]] = ["skipped", "engine frisky has no wait"]

    report = compare(baseline, contender, names=("dask", "frisky"), metrics=["duration"])

    assert "x.w00" not in set(report.frame["workload"])
    assert "failed" not in set(report.frame["verdict"])
    assert "x.w00: frisky skipped it: engine frisky has no wait" in report.warnings
