import json

import numpy as np
import pytest
from scipy.stats import binomtest

from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.compare.explain import IDLE, explain
from benchkit.errors import NotEnoughRuns
from validation.run_trees import run_tree


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
        "Of +6.50 s, +5.00 s is transfer in sum, +1.00 s is compute in load, +0.50 s is idle."
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


def test_explain_sentence_has_parts_of_both_signs_and_rest():
    before = [run_tree({"a": (8, 0), "b": (2, 0), "c": (1, 0), "d": (1, 0)}, 6.0)]
    after = [run_tree({"a": (2, 0), "b": (5, 0), "c": (1.6, 0), "d": (1.4, 0)}, 5.0)]

    assert explain(before, after).sentence == (
        "Of −1.00 s, −3.00 s is compute in a, +1.50 s is compute in b, +0.50 s is all other parts."
    )


def test_explain_joins_renamed_groups():
    before = [run_tree({"sum": (10, 0), "x": (2, 0)}, 6.0, n_tasks=[48, 3])]
    after = [run_tree({"block-id-sum": (6, 0), "x": (2, 0)}, 4.0, n_tasks=[48, 3])]
    found = explain(before, after)
    parts = found.parts.set_index("group")["seconds"]

    assert parts["sum → block-id-sum"] == pytest.approx(-2.0)
    assert found.sentence == "Of −2.00 s, −2.00 s is compute in sum → block-id-sum."


def test_explain_keeps_names_that_several_groups_may_have_had():
    before = [run_tree({"a": (4, 0), "b": (2, 0)}, 3.0, n_tasks=[8, 8])]
    after = [run_tree({"c": (4, 0)}, 2.0, n_tasks=[8])]

    assert set(explain(before, after).parts["group"]) == {"a", "b", "c"}


def test_differences_sorts_packages_by_importance():
    packages = [
        {"asttokens": "2.4", "bleach": "6.1", "dask": "1", "numpy": "1.0", "zict": "2.0"},
        {"dask": "2", "numpy": "2.0", "zict": "3.0", "blosc2": "3.0"},
    ]
    sides = [
        [run_tree({"a": (1, 0)}, 1.0, packages=json.dumps(side), python=python)]
        for side, python in zip(packages, ("3.11", "3.12"), strict=True)
    ]
    found = differences(*sides)

    assert list(found["name"]) == [
        *("dask", "python", "numpy", "zict"),  # then those of one side
        *("asttokens", "bleach", "blosc2"),
    ]
