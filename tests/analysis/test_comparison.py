import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.compare.comparison import check_metrics, compare, compare_experiment
from benchkit.errors import NotEnoughRuns, UsageError

WORKLOADS = [f"x.w{i:02}" for i in range(16)]


def runs(arm="A", n=5, *, seed=0, noise=0.03, change=None, workloads=WORKLOADS, **fields):
    """Runs of an arm with noise of 3 %; `change` multiplies the durations of some workloads."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "id": f"{arm}-{workload}-{block}",
            "workload": workload,
            "outcome": "ok",
            "comparable": True,
            "experiment": "e1",
            "arm": arm,
            "block": block,
            "order": block,
            "duration": (5 + i) * (change or {}).get(workload, 1.0) * rng.lognormal(sigma=noise),
            "memory_peak": 1e9 * rng.lognormal(sigma=noise),
            **fields,
        }
        for block in range(n)
        for i, workload in enumerate(workloads)
    ]
    return pd.DataFrame(rows)


def test_a_slower_workload_is_found_with_an_interval_around_the_truth():
    report = compare(
        runs("A", seed=1),
        runs("B", seed=2, change={"x.w03": 1.25, "x.w07": 0.8}),
        null=runs("null", seed=3),
        metrics=["duration"],
    )

    assert list(report.worse["workload"]) == ["x.w03"]
    assert list(report.better["workload"]) == ["x.w07"]
    assert list(report.frame["verdict"][:2]) == ["slower", "faster"]
    (row,) = report.worse.to_dict("records")
    assert row["low"] < 1.25 < row["high"]
    assert (row["n_baseline"], row["n_contender"]) == (10, 5)
    assert report.points(row)["contender"].shape == (5,)
    assert report.points(row)["null"].shape == (5,)
    assert "1 worse, 1 better" in report.sentence


def test_rows_of_a_report_are_as_many_as_workloads_and_metrics_that_have_values():
    report = compare(runs("A"), runs("B", seed=1), metrics=["duration", "memory_peak", "n_steals"])

    assert len(report.frame) == 2 * len(WORKLOADS)
    assert set(report.frame["unit"]) == {"s", "B"}


def test_failed_runs_are_counted_and_a_workload_that_only_failed_says_so():
    contender = runs("B", seed=1)
    contender.loc[contender["workload"] == "x.w00", "outcome"] = "wrong_answer"
    contender.loc[contender["id"] == "B-x.w01-2", "outcome"] = "failed"
    report = compare(runs("A"), contender, metrics=["duration"])
    rows = report.frame.set_index("workload")

    assert rows.loc["x.w00", "verdict"] == "failed"
    assert rows.loc["x.w00", "n_failed_contender"] == 5
    assert rows.loc["x.w01", "n_contender"] == 4
    assert "6 of 80 runs of contender left out: 5 wrong answer, 1 failed" in report.warnings


def test_runs_of_one_experiment_are_compared_within_their_blocks():
    block = np.array([1.0, 1.6, 0.7, 1.3, 0.9])
    slow = runs("A", noise=0.005)
    fast = runs("B", seed=1, noise=0.005, change=dict.fromkeys(WORKLOADS, 1.05))
    for table in (slow, fast):
        table["duration"] *= block[table["block"]]
    report = compare(slow, fast, metrics=["duration"])
    apart = compare(slow, fast, metrics=["duration"], blocked=False)

    assert report.blocked
    assert (report.frame["verdict"] == "slower").all()
    assert not (apart.frame["verdict"] == "slower").any()
    assert any("not interleaved" in text for text in apart.warnings)


def test_a_missing_block_keeps_the_others_in_their_places():
    contender = runs("B", seed=1)
    contender = contender[contender["id"] != "B-x.w02-0"]
    report = compare(runs("A"), contender, metrics=["duration"])
    row = report.frame.set_index("workload").loc["x.w02"]

    assert np.isnan(report.points(row)["contender"][0])
    assert np.isfinite(report.points(row)["contender"][1:]).all()


def test_arms_of_an_experiment_are_found_by_their_names():
    table = pd.concat(
        [
            runs("main", seed=1),
            runs("new", seed=2, change={"x.w01": 1.3}).assign(order=100),
            runs("other", seed=3).assign(order=101),
            runs("null", seed=4).assign(order=102),
        ]
    )
    report = compare_experiment(table, "e", metrics=["duration"])

    assert report.baseline == "main"
    assert report.contenders == ("new", "other")
    assert list(report.worse["contender"]) == ["new"]
    with pytest.raises(UsageError, match="no arm named 'mein': did you mean 'main'"):
        compare_experiment(table, "e1", baseline="mein")


def test_the_baseline_alone_is_held_against_itself():
    table = pd.concat([runs("main"), runs("null", seed=1).assign(order=9)])
    report = compare_experiment(table, "e1")

    assert report.contenders == ("null",)
    assert len(report.worse) == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (runs(n=0), "no runs yet"),
        (runs(), "has only the arm 'A' so far"),
    ],
)
def test_an_experiment_without_two_arms_is_not_enough(table, message):
    with pytest.raises(NotEnoughRuns, match=message) as caught:
        compare_experiment(table, "e1")

    assert caught.value.exit_code == 4


def test_no_workload_in_common_is_not_enough():
    with pytest.raises(NotEnoughRuns, match="no workload in common"):
        compare(runs(workloads=["a.b"]), runs(workloads=["a.c"]))


def test_one_run_a_side_is_a_ratio_without_a_verdict():
    report = compare(runs("A", n=1), runs("B", n=1, seed=1), metrics=["duration"])

    assert report.frame["p"].isna().all()
    assert not report.testable
    assert len(report.worse) == 0


def test_metrics_are_checked_by_name():
    assert check_metrics(["duration", "duration"]) == ("duration",)
    assert "memory_peak" in check_metrics(["all"])
    with pytest.raises(UsageError, match="did you mean 'memory_peak'"):
        check_metrics(["memory_pek"])


def test_text_json_and_html_hold_the_finding_and_escape_names():
    name = "<script>"
    report = compare(
        runs("A", workloads=[name]), runs("B", workloads=[name], change={name: 2.0}, seed=1)
    )
    records = report.to_records()

    assert "slower" in report.to_table()
    assert all(value is None or value == value for row in records for value in row.values())
    assert "<script>" not in report._repr_html_()
    assert "&lt;script&gt;" in report._repr_html_()
