import json

import numpy as np
import pytest
from helpers.run_trees import run_tree
from scipy.stats import binomtest

from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.compare.explain import IDLE, explain
from benchkit.errors import NotEnoughRuns


def test_explain_parts_sum_to_total():
    before = [run_tree({"sum": (10, 2), "load": (4, 0)}, 10.0)] * 3
    after = [run_tree({"sum": (10, 12), "load": (6, 0)}, 16.5, suffix="fedcba9876543210")] * 3
    found = explain(before, after)

    assert found.total_s == pytest.approx(6.5)
    assert found.parts["seconds"].sum() == pytest.approx(6.5)
    (first,) = found.parts.head(1).to_dict("records")
    assert (first["group"], first["activity"]) == ("sum", "transfer")
    assert first["seconds"] == pytest.approx(5.0)  # 10 thread-seconds on two threads
    assert found.sentence == (
        "Of +6.5 s, +5 s is transfer in sum, +1 s is compute in load, +0.5 s is idle."
    )


def test_explain_keeps_groups_of_single_arm():
    found = explain([run_tree({"a": (2, 0)}, 2.0)], [run_tree({"b": (4, 0)}, 3.0)])
    parts = found.parts.set_index(["group", "activity"])["seconds"]

    assert parts["a", "compute"] == pytest.approx(-1.0)
    assert parts["b", "compute"] == pytest.approx(2.0)
    assert parts[IDLE, IDLE] == pytest.approx(0.0)
    assert found.parts["low"].isna().all()  # one run a side has no interval


def test_explain_subtracts_overlap_as_unexplained():
    found = explain([run_tree({"a": (2, 0)}, 1.0)], [run_tree({"a": (2, 2)}, 1.0)])
    parts = found.parts.set_index("group")["seconds"]

    assert parts["unexplained"] == pytest.approx(-1.0)
    assert found.parts["seconds"].sum() == pytest.approx(found.total_s) == 0.0
    assert list(found.parts["group"])[-1] == "unexplained"


@pytest.mark.parametrize("blocked", [True, False])
def test_explain_intervals_have_nominal_coverage(blocked):
    rng = np.random.default_rng(5)
    n_trials, hits = 120, 0
    for _ in range(n_trials):
        block = rng.normal(0, 1, 5) if blocked else np.zeros(5)
        sides = [
            [run_tree({"a": (2 * (5 + more + b + rng.normal(0, 0.2)), 0)}, 20.0) for b in block]
            for more in (0.0, 1.0)
        ]
        (row,) = explain(*sides, blocked=blocked).parts.query("group == 'a'").to_dict("records")
        hits += row["low"] <= 1.0 <= row["high"]

    assert binomtest(hits, n_trials, 0.95).pvalue > 1e-4


def test_explain_memory_by_kind_at_peak():
    found = explain(
        [run_tree({"a": (1, 0)}, 1.0)], [run_tree({"a": (1, 0)}, 1.0, peak=(1, 2, 3, 40))]
    )

    assert found.memory["kind"].iloc[0] == "spilled"
    assert found.memory["bytes"].iloc[0] == 36


def test_explain_needs_runs_of_both_arms():
    with pytest.raises(NotEnoughRuns, match="the contender has no run"):
        explain([run_tree({"a": (1, 0)}, 1.0)], [])


def test_differences_lists_only_differences():
    facts = {
        "packages": json.dumps({"dask": "2026.7.0", "numpy": "2.4"}),
        "config": json.dumps({"distributed": {"scheduler": {"work-stealing": True}}}),
        "outcome": "ok",
    }
    other = {
        "packages": json.dumps({"dask": "2026.8.0", "numpy": "2.4"}),
        "config": json.dumps({"distributed": {"scheduler": {"work-stealing": False}}}),
        "outcome": "ok",
    }
    found = differences(
        [run_tree({"a": (1, 0)}, 1.0, **facts)], [run_tree({"a": (1, 0)}, 1.0, **other)]
    )

    assert found.to_numpy().tolist() == [
        ["package", "dask", "2026.7.0", "2026.8.0"],
        ["config", "distributed.scheduler.work-stealing", "True", "False"],
    ]
