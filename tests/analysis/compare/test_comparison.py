import numpy as np
import pandas as pd
import pytest

from benchkit.analysis.compare.compare_runs import compare, compare_experiment
from benchkit.analysis.metric_names import check_metrics
from benchkit.errors import NotEnoughRuns, UsageError
from benchkit.show.reports.reports import comparison_markdown
from validation.arm_runs import WORKLOADS, arm_runs


def test_compare_detects_slower_and_faster_workloads():
    report = compare(
        arm_runs("A", seed=1),
        arm_runs("B", seed=2, change={"x.w03": 1.25, "x.w07": 0.8}),
        null=arm_runs("null", seed=3),
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


def test_compare_has_row_per_workload_and_metric():
    report = compare(
        arm_runs("A"), arm_runs("B", seed=1), metrics=["duration", "memory_peak", "n_steals"]
    )

    assert len(report.frame) == 2 * len(WORKLOADS)
    assert set(report.frame["unit"]) == {"s", "B"}


def test_compare_counts_failed_runs():
    contender = arm_runs("B", seed=1)
    contender.loc[contender["workload"] == "x.w00", "outcome"] = "wrong_answer"
    contender.loc[contender["id"] == "B-x.w01-2", "outcome"] = "timeout"
    report = compare(arm_runs("A"), contender, metrics=["duration"])
    rows = report.frame.set_index("workload")

    assert rows.loc["x.w00", "verdict"] == "failed"
    assert rows.loc["x.w00", "n_failed_contender"] == 5
    assert rows.loc["x.w01", "n_contender"] == 4
    assert (
        "6 of 80 runs of contender left out: 5 wrong answer, 1 timeout; "
        "the duration of a timeout counts as its deadline"
    ) in report.warnings


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.4])
def test_compare_never_calls_a_side_that_fails_more_better(ratio):
    contender = arm_runs("B", seed=1, change=dict.fromkeys(["x.w00"], ratio))
    contender.loc[contender["id"] == "B-x.w00-2", "outcome"] = "lost_workers"
    report = compare(arm_runs("A"), contender, metrics=["duration", "memory_peak"])
    rows = report.frame[report.frame["workload"] == "x.w00"].set_index("metric")

    assert rows.loc["duration", "verdict"] == ("slower" if ratio > 1 else "failed")
    assert rows.loc["memory_peak", "verdict"] == "failed"
    assert rows["worse"].all()
    assert "contender fails more often: 1 of 5 runs, baseline 0 of 5" in rows["note"].iloc[0]
    assert list(report.better["workload"]) == []
    n_failed = 1 if ratio > 1 else 2
    assert f"{2 - n_failed} worse, 0 better" in report.sentence
    assert f"{n_failed} failed" in report.sentence
    assert "▲ failed" in report.to_table()
    assert "5 + 4, failed 0 + 1" in report.to_table()


def test_compare_allows_better_where_the_baseline_fails_more():
    baseline = arm_runs("A", noise=0.01)
    baseline.loc[baseline["id"] == "A-x.w00-2", "outcome"] = "failed"
    contender = arm_runs("B", seed=1, noise=0.01, change={"x.w00": 0.7})

    rows = compare(baseline, contender, metrics=["duration"]).frame.set_index("workload")

    assert rows.loc["x.w00", "verdict"] == "faster"
    assert not rows.loc["x.w00", "worse"]


def test_compare_counts_timeouts_as_deadline():
    contender = arm_runs("B", seed=1, deadline_s=300.0, phase="workload")
    late = contender["id"].isin([f"B-x.w00-{block}" for block in range(5)])
    contender.loc[late, "outcome"] = "timeout"
    contender.loc[late, "duration"] = np.nan

    report = compare(arm_runs("A"), contender, metrics=["duration", "memory_peak"])
    rows = report.frame[report.frame["workload"] == "x.w00"].set_index("metric")

    assert rows.loc["duration", "verdict"] == "slower"
    assert rows.loc["duration", "n_contender"] == 5
    assert rows.loc["duration", "contender_value"] == pytest.approx(300)
    assert "5 runs reached the deadline" in rows.loc["duration", "note"]
    assert rows.loc["memory_peak", "n_contender"] == 0


def test_compare_timeouts_of_both_sides_are_not_the_same():
    arms = [
        arm_runs(arm, seed=seed, deadline_s=5.0, phase="workload", outcome="timeout", duration=5.0)
        for seed, arm in enumerate("AB")
    ]

    report = compare(*arms, metrics=["duration"])

    assert set(report.frame["verdict"]) == {"undecided"}


def test_compare_names_workloads_of_one_side():
    report = compare(arm_runs("A"), arm_runs("B", workloads=WORKLOADS[:14]), metrics=["duration"])

    text = "2 workloads measured in baseline only, not compared: x.w14, x.w15"
    assert text in report.warnings


def test_compare_uses_blocks_of_experiment():
    block = np.array([1.0, 1.6, 0.7, 1.3, 0.9])
    slow = arm_runs("A", noise=0.005)
    fast = arm_runs("B", seed=1, noise=0.005, change=dict.fromkeys(WORKLOADS, 1.05))
    for table in (slow, fast):
        table["duration"] *= block[table["block"]]
    report = compare(slow, fast, metrics=["duration"])
    apart = compare(slow, fast, metrics=["duration"], blocked=False)

    assert report.blocked
    assert (report.frame["verdict"] == "slower").all()
    assert not (apart.frame["verdict"] == "slower").any()
    assert any("not interleaved" in text for text in apart.warnings)
    assert "not interleaved: the machine can cause such changes" in apart.sentence


def test_compare_uses_blocks_of_several_experiments():
    """A loop of `interleave` that ran twice: the blocks of each loop begin with 0."""
    block = np.array([1.0, 1.6, 0.7, 1.3, 0.9])
    tables = []
    for arm, change in (("A", 1.0), ("B", 1.05)):
        parts = [
            arm_runs(arm, seed=seed, noise=0.005, change=dict.fromkeys(WORKLOADS, change),
                     experiment=name)
            for seed, name in enumerate(("e1", "e2"), 2 if arm == "B" else 0)
        ]  # fmt: skip
        for part, factor in zip(parts, (1.0, 3.0), strict=True):
            part["duration"] *= factor * block[part["block"]]
        tables.append(pd.concat(parts, ignore_index=True))

    report = compare(*tables, metrics=["duration"])

    assert report.blocked
    assert (report.frame["verdict"] == "slower").all()
    assert report.points(report.frame.iloc[0])["baseline"].shape == (10,)
    assert not any("not interleaved" in text for text in report.warnings)
    assert "interleaved" not in report.sentence
    # Experiments of one arm only are not interleaved with those of the other.
    first, second = (table[table["experiment"] == name] for table, name in
                     zip(tables, ("e1", "e2"), strict=True))  # fmt: skip
    assert not compare(first, second, metrics=["duration"]).blocked
    assert not compare(tables[0], second, metrics=["duration"]).blocked


def test_compare_takes_the_null_arm_out_of_a_selection():
    """`param:method=single` selects both arms of an experiment that measured its baseline."""
    baseline = pd.concat([arm_runs("A"), arm_runs("null", seed=3)], ignore_index=True)
    contender = arm_runs("B", seed=1)
    arms = {"A": arm_runs("A"), "B": contender}

    report = compare(baseline, contender, metrics=["duration"])
    reverse = compare(contender, baseline, metrics=["duration"])

    assert report.blocked
    assert not any("interleaved" in text for text in report.warnings)
    assert report.points(report.frame.iloc[0])["baseline"].shape == (5,)
    assert report.points(report.frame.iloc[0])["null"].shape == (5,)
    whole = compare(arms["A"], arms["B"], null=arm_runs("null", seed=3), metrics=["duration"])
    assert report.frame["ratio"].tolist() == whole.frame["ratio"].tolist()
    assert reverse.blocked
    assert "80 runs of contender left out: the null arm repeats it" in reverse.warnings


def test_compare_keeps_positions_of_missing_blocks():
    contender = arm_runs("B", seed=1)
    contender = contender[contender["id"] != "B-x.w02-0"]
    report = compare(arm_runs("A"), contender, metrics=["duration"])
    row = report.frame.set_index("workload").loc["x.w02"]

    assert np.isnan(report.points(row)["contender"][0])
    assert np.isfinite(report.points(row)["contender"][1:]).all()


def test_compare_experiment_selects_arms_by_name():
    table = pd.concat(
        [
            arm_runs("main", seed=1),
            arm_runs("new", seed=2, change={"x.w01": 1.3}).assign(order=100),
            arm_runs("other", seed=3).assign(order=101),
            arm_runs("null", seed=4).assign(order=102),
        ]
    )
    report = compare_experiment(table, "e", metrics=["duration"])

    assert report.baseline == "main"
    assert report.contenders == ("new", "other")
    assert list(report.worse["contender"]) == ["new"]
    with pytest.raises(UsageError, match="no arm named 'mein': did you mean 'main'"):
        compare_experiment(table, "e1", baseline="mein")


def test_compare_experiment_compares_null_arm_alone():
    table = pd.concat([arm_runs("main"), arm_runs("null", seed=1).assign(order=9)])
    report = compare_experiment(table, "e1")

    assert report.contenders == ("null",)
    assert len(report.worse) == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (arm_runs(n=0), "no runs yet"),
        (arm_runs(), "has only the arm 'A' so far"),
    ],
)
def test_compare_experiment_needs_two_arms(table, message):
    with pytest.raises(NotEnoughRuns, match=message) as caught:
        compare_experiment(table, "e1")

    assert caught.value.exit_code == 4


def test_compare_needs_common_workload():
    with pytest.raises(NotEnoughRuns, match="no workload in common"):
        compare(arm_runs(workloads=["a.b"]), arm_runs(workloads=["a.c"]))


def test_compare_says_why_common_workloads_have_no_values():
    arms = {arm: arm_runs(arm, n=2, outcome="wrong_answer") for arm in ("base", "other")}
    count = 2 * len(WORKLOADS)

    with pytest.raises(NotEnoughRuns) as caught:
        compare(arms["base"], arms["other"], names=("base", "other"))

    assert str(caught.value) == (
        "base and other have no workload in common that ended ok; "
        f"{count} of {count} runs of base left out: {count} wrong answer; "
        f"{count} of {count} runs of other left out: {count} wrong answer"
    )


def test_compare_single_runs_have_no_verdict():
    report = compare(arm_runs("A", n=1), arm_runs("B", n=1, seed=1), metrics=["duration"])

    assert report.frame["p"].isna().all()
    assert not report.testable
    assert len(report.worse) == 0


def test_check_metrics_rejects_unknown_names():
    assert check_metrics(["duration", "duration"]) == ("duration",)
    assert "memory_peak" in check_metrics(["all"])
    with pytest.raises(UsageError, match="did you mean 'memory_peak'"):
        check_metrics(["memory_pek"])


def test_comparison_outputs_escape_names():
    name = "<script>"
    report = compare(
        arm_runs("A", workloads=[name]), arm_runs("B", workloads=[name], change={name: 2.0}, seed=1)
    )
    records = report.to_records()

    assert "slower" in report.to_table()
    assert all(value is None or value == value for row in records for value in row.values())
    assert "<script>" not in report._repr_html_()
    assert "&lt;script&gt;" in report._repr_html_()


def test_compare_refuses_the_same_runs_twice():
    frame = arm_runs()
    with pytest.raises(UsageError, match=r"^baseline and contender are the same .* runs"):
        compare(frame, frame.copy())
    with pytest.raises(UsageError, match=r"^env:a and env:a are the same"):
        compare(frame, {"env:a": frame}, names=("env:a", "contender"))


def test_compare_refuses_simulated_with_measured_runs():
    measured, simulated = arm_runs(), arm_runs().assign(simulated=1)
    simulated["id"] = "s" + simulated["id"].astype(str)
    measured["simulated"] = None

    with pytest.raises(UsageError, match="some of these runs are simulated, the others measured"):
        compare(measured, simulated)
    with pytest.raises(UsageError, match="some of these runs are simulated, the others measured"):
        compare(measured, pd.concat([measured.head(3), simulated]))

    other = simulated.assign(id="t" + simulated["id"])
    assert len(compare(simulated, other).frame)


def test_compare_names_empty_set():
    frame = arm_runs()
    with pytest.raises(NotEnoughRuns, match=r"^B: no runs are selected$"):
        compare(frame, {"B": frame.iloc[:0]})


@pytest.mark.parametrize("seed", range(5))
def test_compare_values_agree_with_change(seed):
    report = compare(
        arm_runs("A", seed=seed, noise=0.5),
        {"B": arm_runs("B", seed=seed + 100, noise=0.5)},
        null=arm_runs("null", seed=seed + 200, noise=0.5),
    )
    quotient = report.frame["contender_value"] / report.frame["baseline"]

    assert quotient.to_numpy() == pytest.approx(report.frame["ratio"].to_numpy(), rel=1e-12)


def test_compare_values_are_geometric_means():
    sides = {"A": arm_runs("A", 2), "B": arm_runs("B", 2), "null": arm_runs("null", 2)}
    for name, values in (("A", [1.0, 4.0]), ("B", [2.0, 32.0]), ("null", [4.0, 16.0])):
        sides[name] = sides[name][sides[name]["workload"] == "x.w00"].assign(duration=values)
    report = compare(sides["A"], {"B": sides["B"]}, null=sides["null"], metrics=["duration"])
    (row,) = report.frame.to_dict("records")

    assert row["baseline"] == pytest.approx(4.0)  # the null arm is part of the baseline
    assert row["contender_value"] == pytest.approx(8.0)
    assert row["ratio"] == pytest.approx(2.0)


def test_compare_values_with_zeros_are_means():
    sides = [arm_runs(arm, 2, workloads=["x.w00"]) for arm in "AB"]
    sides[0]["duration"], sides[1]["duration"] = [0.0, 2.0], [3.0, 3.0]
    (row,) = compare(*sides, metrics=["duration"]).frame.to_dict("records")

    assert (row["baseline"], row["contender_value"], row["ratio"]) == pytest.approx((1, 3, 3))


def test_comparison_table_names_both_arms():
    report = compare(
        arm_runs("A"), {"B": arm_runs("B")}, names=("change", "contender"), metrics=["duration"]
    )
    header = report.to_table(all_rows=True).splitlines()[0].split("  ")

    assert report.title == "B against change"
    assert [name.strip() for name in header if name.strip()][:5] == [
        *("workload", "metric", "change (baseline)", "B", "change"),
    ]


@pytest.mark.parametrize(
    ("changed", "last"),
    [
        ([], "2 rows are the same within ±5%"),
        (["x.w00"], "and 1 that is the same within ±5%"),
    ],
)
def test_comparison_table_counts_rows_that_are_the_same(changed, last):
    workloads = ["x.w00", "x.w01"]
    sides = [
        arm_runs("A", workloads=workloads, noise=0.001),
        arm_runs("B", workloads=workloads, noise=0.001, change=dict.fromkeys(changed, 1.4)),
    ]
    lines = compare(*sides, metrics=["duration"]).to_table().splitlines()

    assert lines[-1] == last
    assert len(lines) == 1 + 2 * len(changed)  # the header and the row that changed


def test_comparison_title_names_all_contenders():
    arms = {name: arm_runs(name) for name in "BCD"}
    report = compare(arm_runs("A"), arms, names=("A", "contender"), metrics=["duration"])

    assert report.title == "B, C and D against A"
    titles = comparison_markdown(report).split("\n| --- ")[0].split("\n")[-1]
    assert titles.startswith("| workload | contender | metric | verdict | change | 95% interval |")
    assert "| A | contender value |" in titles


def test_compare_refuses_what_is_no_table_of_runs():
    with pytest.raises(UsageError, match=r"baseline: must be a table of runs.*not 'latest'"):
        compare("latest", "first")


def test_compare_names_another_memory_limit_but_not_another_boot():
    baseline = arm_runs("A", memory_limit=2**31)
    pages, half = (arm_runs("B", memory_limit=n) for n in (2**31 - 8192, 2**30))

    text = "memory limit: 2147483648 for baseline, 1073741824 for contender"
    assert text in compare(baseline, half, metrics=["duration"]).warnings
    found = compare(baseline, pages, metrics=["duration"]).warnings
    assert not any("memory limit" in line for line in found)
