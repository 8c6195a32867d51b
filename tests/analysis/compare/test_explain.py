"""A difference in parts: by task group and activity, by kind of memory, and by cause."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.compare.explain import IDLE, cause_changes, explain, with_causes
from benchkit.errors import NotEnoughRuns, NotRecorded, UnreadableRun
from benchkit.store.run import Run
from validation.graph_runs import MadeTask, graph_run
from validation.run_trees import run_tree

WORKLOADS = ("x.same", "x.slow")


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


def test_explain_tells_idle_before_between_and_after_tasks(tmp_path):
    runs = []
    for name, begin, pause, rest in [("a", 1.0, 0.5, 0.25), ("b", 3.0, 0.75, 0.25)]:
        (tmp_path / name).mkdir()
        tasks = [
            MadeTask("x-0", begin, begin + 1),
            MadeTask("y-0", begin + 1 + pause, begin + 2 + pause, ["x-0"]),
        ]
        duration = begin + 2 + pause + rest
        runs.append(graph_run(tmp_path / name, tasks, duration=duration, n_workers=1))
    parts = explain(runs[:1], runs[1:]).parts.set_index("activity")

    idle = parts[parts["group"] == IDLE]
    assert idle["baseline_s"].to_dict() == pytest.approx(
        {"idle before the first task": 1.0, "idle between tasks": 0.5,
         "idle after the last task": 0.25}
    )  # fmt: skip
    assert idle.loc["idle before the first task", "seconds"] == pytest.approx(2.0)
    assert idle.loc["idle between tasks", "seconds"] == pytest.approx(0.25)


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


def test_explain_memory_by_kind_on_average():
    """The mean of memory is explained by means: the peak has other values."""
    trees = [run_tree({"a": (1, 0)}, 1.0), run_tree({"a": (1, 0)}, 1.0, peak=(1, 2, 3, 40))]
    samples = [tree["scheduler"].to_dataset() for tree in trees]
    weights = np.gradient(samples[0]["time"].values.astype(float))
    means = [np.average(data["spilled"].values, weights=weights) for data in samples]

    found = explain([trees[0]], [trees[1]])

    row = found.mean_memory.set_index("kind").loc["spilled"]
    assert row["bytes"] == pytest.approx(means[1] - means[0])
    assert row["bytes"] < found.memory.set_index("kind").loc["spilled", "bytes"]
    assert found.mean_memory_sentence.startswith("On average over time: +")
    assert found.memory_sentence.startswith("At the peak: +")


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
    before = [run_tree({"a": (8, 0), "b": (2, 0), "c": (1, 0), "d": (1, 0), "e": (0, 0)}, 6.0)]
    after = [run_tree({"a": (2, 0), "b": (5, 0), "c": (1.6, 0), "d": (1.3, 0), "e": (0.1, 0)}, 5.0)]

    assert explain(before, after).sentence == (
        "Of −1.00 s, −3.00 s is compute in a, +1.50 s is compute in b, +0.30 s is compute in c, "
        "+0.20 s is all other parts."
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


def chain(folder, fetch=0.6, compute=1.0, **more):
    """Return a run of two tasks, the second of which fetches the result of the first."""
    start = 2.0 + fetch
    tasks = [
        MadeTask("load-0", 0, 2),
        MadeTask(
            "sum-0", start, start + compute, ["load-0"], worker=1, thread=1,
            events=[("transfer", 2.0, start)],
        ),
    ]  # fmt: skip
    folder.mkdir()
    return graph_run(folder, tasks, duration=start + compute, n_workers=2, **more)


def test_cause_changes_name_the_fetches(tmp_path):
    before = [chain(tmp_path / f"a{n}", 0.6 + 0.1 * n) for n in range(2)]
    after = [chain(tmp_path / f"b{n}", 1.8 + 0.1 * n, 1.5) for n in range(2)]
    found = cause_changes(before, after)

    assert found.total_s == pytest.approx(np.sqrt(5.3 * 5.4) - np.sqrt(3.6 * 3.7))
    first, second = found.causes.to_dict("records")
    assert (first["cause"], first["group"]) == ("transfer", "sum")
    assert first["baseline_s"] == pytest.approx(0.65, rel=1e-3)
    assert first["contender_s"] == pytest.approx(1.85, rel=1e-3)
    assert first["seconds"] == pytest.approx(1.2, rel=1e-3)
    assert first["low"] < 1.2 < first["high"]
    assert (second["cause"], second["group"]) == ("not parallel", "sum")
    assert found.bounds.loc["network"].tolist() == pytest.approx([0.65, 1.85], rel=1e-3)
    assert found.sentence == (
        "+1.20 s waiting for transfers (sum), +0.50 s computing with most threads idle (sum); "
        "the largest lower bound, critical path, went from 3.00 s to 3.50 s."
    )


def test_causes_and_parts_have_the_sum_of_the_row(tmp_path):
    before = [chain(tmp_path / f"a{n}", fetch) for n, fetch in enumerate((4, 18, 5, 90))]
    after = [chain(tmp_path / f"b{n}", fetch) for n, fetch in enumerate((0.1, 0.3, 0.2, 0.2))]
    durations = [[float(run.tree["duration"]) for run in side] for side in (before, after)]
    found = explain(before, after)
    whole = np.diff([np.exp(np.mean(np.log(side))) for side in durations])[0]

    assert found.total_s == pytest.approx(whole)
    assert found.parts["seconds"].sum() == pytest.approx(whole)
    assert found.causes.total_s == pytest.approx(whole)

    row = explain(before, after, (14.2, 3.25))
    assert row.total_s == row.causes.total_s == pytest.approx(3.25 - 14.2)
    assert (row.causes.causes["baseline_s"] <= 14.2).all()


def test_cause_changes_name_a_new_lower_bound(tmp_path):
    found = cause_changes([chain(tmp_path / "a")], [chain(tmp_path / "b", 3.5)])

    assert found.sentence == (
        "+2.90 s waiting for transfers (sum); "
        "the largest lower bound is network (3.50 s), it was critical path (3.00 s)."
    )
    assert found.causes["low"].isna().all()  # one run a side has no interval


def test_cause_changes_of_a_faster_arm_are_negative(tmp_path):
    found = cause_changes([chain(tmp_path / "a", 1.6)], [chain(tmp_path / "b")])

    assert found.sentence == "−1.00 s waiting for transfers (sum)."


def test_cause_changes_use_pairs_of_blocks(tmp_path):
    before = [chain(tmp_path / f"a{n}", fetch) for n, fetch in enumerate((0.5, 1.5))]
    after = [chain(tmp_path / f"b{n}", fetch) for n, fetch in enumerate((1.5, 2.5))]
    row = cause_changes(before, after, blocked=True).causes.iloc[0]

    assert row["low"] == pytest.approx(1.0, abs=0.05)  # unpaired: -8 to 10
    assert row["high"] == pytest.approx(1.0, abs=0.05)


def test_explanation_has_causes_of_runs_with_graphs(tmp_path):
    found = explain([chain(tmp_path / "a")], [chain(tmp_path / "b", 1.6)])

    assert found.causes.total_s == pytest.approx(found.total_s) == pytest.approx(1.0)
    assert found.sentence.endswith(" By cause: +1.00 s waiting for transfers (sum).")


def test_runs_without_graph_have_no_causes(tmp_path):
    whole = chain(tmp_path / "a")
    without = Run(whole.tree.copy())
    del without.tree["submissions"]

    with pytest.raises(NotRecorded):
        cause_changes([without], [whole])
    assert explain([without], [whole]).causes is None


def fetching(folder, fetch):
    """Return a run of which the last task fetches the result of the first."""
    tasks = [
        MadeTask("load-0", 0, 2),
        MadeTask(
            "sum-0", 2 + fetch, 3 + fetch, ["load-0"], worker=1, thread=1,
            events=[("transfer", 2, 2 + fetch)],
        ),
    ]  # fmt: skip
    folder.mkdir(parents=True)
    return graph_run(folder, tasks, duration=3 + fetch, n_workers=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of each workload and arm by id; the fetches of `x.slow` are 2 s longer in B."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        f"{arm}-{workload}-{n}": fetching(
            folder / arm / workload / str(n), 1 + 0.01 * n + 2 * (arm == "B") * ("slow" in workload)
        )
        for arm in "AB"
        for workload in WORKLOADS
        for n in range(3)
    }


def compared(runs):
    rows = [
        {
            "id": run_id, "workload": run_id.split("-")[1], "outcome": "ok", "comparable": True,
            "arm": run_id[0], "block": 0, "order": 0, "duration": run.metrics["duration"],
            "memory_peak": 1e9,
        }
        for run_id, run in runs.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    sides = [table[table["arm"] == arm] for arm in "AB"]
    return compare(*sides, metrics=["duration", "memory_peak"], blocked=False)


def test_with_causes_explains_only_changed_durations(runs):
    opened = []
    comparison = compared(runs)
    found = with_causes(comparison, lambda run_id, _: opened.append(run_id) or runs[run_id])

    assert found.causes == [
        "x.slow, duration: +2.00 s waiting for transfers (sum); "
        "the largest lower bound is network (3.01 s), it was critical path (3.00 s)."
    ]
    assert {run_id.split("-")[1] for run_id in opened} == {"x.slow"}
    assert len(opened) == 6
    assert found.to_table().endswith("\n\n" + found.causes[0])
    causes = {(row["workload"], row["metric"]): row["cause"] for row in found.to_records()}
    assert sum(cause != "" for cause in causes.values()) == 1
    assert causes["x.slow", "duration"].startswith("+2.00 s waiting for transfers (sum)")


def test_with_causes_says_once_why_causes_are_unknown(runs):
    def open_run(run_id, groups):
        run = Run(runs[run_id].tree.copy())
        del run.tree["submissions"]
        return run

    comparison = compared(runs)
    found = with_causes(comparison, open_run)

    assert found.causes == []
    (warning,) = [text for text in found.warnings if text not in comparison.warnings]
    assert warning.startswith("cause unknown for 1 changed row: run ")
    assert "the dependencies of its tasks were not recorded" in warning


def test_with_causes_accepts_missing_run_files(runs):
    def open_run(run_id, groups):
        raise UnreadableRun(f"{run_id}: damaged")

    found = with_causes(compared(runs), open_run)

    assert found.causes == []
    assert found.warnings[-1] == "cause unknown for 1 changed row: A-x.slow-0: damaged"


def test_differences_name_kernel_libc_and_image_of_the_machine():
    sides = []
    for kernel, image in (
        ("6.8.0-1021-azure", "ubuntu24 1"),
        ("6.11.0", "ubuntu24 20261115"),
    ):
        run = run_tree({"a": (1, 0)}, 2.0)
        host = {"system": f"Linux-{kernel}-x86_64-with-glibc2.39", "image": image, "load": 1.0}
        run.attrs["host_json"] = json.dumps(host)
        sides.append([run])

    found = differences(*sides)
    rows = found[found["kind"] == "machine"].set_index("name")

    assert list(rows.index) == ["image", "kernel"]
    assert rows.loc["kernel", "contender"] == "Linux-6.11.0-x86_64"
    assert rows.loc["image", "baseline"] == "ubuntu24 1"
