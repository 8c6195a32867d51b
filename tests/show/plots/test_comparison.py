"""Figures of comparisons show the same values as the report."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from bokeh.models.annotations import ColorBar
from scipy.stats import gmean

from benchkit import plots
from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.explain import explain
from benchkit.show.plots.comparison import interval_bar
from benchkit.store.schema import METRICS
from validation.arm_runs import WORKLOADS, arm_runs
from validation.run_trees import run_tree


@pytest.fixture(scope="module")
def report():
    change = {"x.w03": 1.25, "x.w07": 0.8}
    return compare(
        arm_runs("A", seed=1), arm_runs("B", seed=2, change=change), null=arm_runs("null", seed=3)
    )


def data_of(figure, column):
    for renderer in figure.renderers:
        if column in renderer.data_source.data:
            return list(renderer.data_source.data[column])
    raise AssertionError(f"nothing drawn from {column}")


def test_figures_of_one_workload_have_a_row_for_each_metric():
    one = compare(arm_runs("A", workloads=["x"]), arm_runs("B", seed=1, workloads=["x"]))

    for draw in (plots.heat_map, plots.raw_points):
        assert sorted(set(data_of(draw(one, None), "label"))) == ["duration", "memory peak"]


def test_interval_bar_has_an_arrow_where_the_axis_ends():
    look = {"noise": (0.4, 0.6), "zero": 0.5, "label": "<+5 %>"}
    whole = interval_bar(0.7, 0.6, 0.8, tone="bad", **look)
    cut = interval_bar(0.7, 0.6, 1.8, tone="bad", **look)
    alone = interval_bar(0.5, math.nan, math.nan, **look)

    assert whole.count("<path") == 3  # no change, interval, mark
    assert cut.count("<path") == 4
    assert alone.count("<path") == 1
    assert "<circle" in alone
    assert "nan" not in alone
    assert 'aria-label="&lt;+5 %&gt;"' in whole


def test_heat_map_shows_probability_of_each_change(report):
    fig = plots.heat_map(report, "duration")
    cells = {
        (label, beyond): value
        for label, beyond, value in zip(
            data_of(fig, "label"), data_of(fig, "beyond"), data_of(fig, "value"), strict=True
        )
    }

    assert cells["x.w03", "+5"] > 0.99
    assert cells["x.w03", "+60"] < 0.01
    assert cells["x.w07", "−5"] < -0.99
    labels = [name for name in fig.xaxis[0].major_label_overrides.values() if name]
    less = [f"−{percent}" for percent in range(80, 0, -10)]
    assert labels == [*less, "0", *(f"+{percent}" for percent in range(10, 81, 10))]
    assert cells["x.w03", "any more"] > 0.99


def test_heat_map_rows_without_change_are_pale(report):
    fig = plots.heat_map(report, "duration")
    alpha = dict(zip(data_of(fig, "label"), data_of(fig, "alpha"), strict=True))
    changed = set(report.frame.loc[report.frame["changed"], "workload"])

    assert changed
    assert {label for label, value in alpha.items() if value == 1.0} == changed
    assert {value for label, value in alpha.items() if label not in changed} == {0.3}


def test_raw_points_contain_run_ids(report):
    fig = plots.raw_points(report, "duration")
    table = arm_runs("A", seed=1).set_index("id")
    both = pd.concat([table, arm_runs("null", seed=3)])
    (baseline,) = (r for r in fig.renderers if r.name == "baseline")
    data = baseline.data_source.data
    middle = both.groupby("workload")["duration"].agg(gmean)

    assert len(set(data["id"])) == len(data["id"]) == 5 * len(WORKLOADS)
    for run_id, share, label in zip(data["id"], data["x"], data["label"], strict=True):
        run = table.loc[run_id]
        assert run["workload"] == label
        assert share == pytest.approx(100 * run["duration"] / middle[label])


def test_raw_points_draw_every_run(report):
    fig = plots.raw_points(report, "duration")
    dots = sum(len(renderer.data_source.data["x"]) for renderer in fig.renderers)

    assert dots == 3 * 5 * len(WORKLOADS)


def test_comparison_plots_report_missing_metric(report):
    for draw in (plots.heat_map, plots.raw_points):
        assert "no rows for this metric" in draw(report, "cost").html_attributes["aria-label"]


def test_comparison_plots_name_metric_in_title(report):
    for draw in (plots.heat_map, plots.raw_points):
        assert METRICS["duration"].long_name in draw(report, "duration").title.text
        assert "my cost" in draw(report, "my_cost").html_attributes["aria-label"]


def test_heat_map_reports_too_few_runs(report):
    without_p = replace(report, frame=report.frame.assign(p=float("nan")))
    label = plots.heat_map(without_p, "duration").html_attributes["aria-label"]

    assert "two runs per side" in label
    assert "no rows" not in label


def test_heat_map_colour_bar_has_title(report):
    (bar,) = plots.heat_map(report, "duration").select(ColorBar)

    assert bar.title == "probability"


def test_heat_map_counts_unchanged_rows_of_long_comparison():
    many = [f"x.w{i:03}" for i in range(90)]
    report = compare(
        arm_runs("A", workloads=many), arm_runs("B", seed=1, workloads=many, change={"x.w004": 2.0})
    )
    fig = plots.heat_map(report, "duration")

    assert "with verdict same not shown" in fig.title.text
    assert "x.w004" in data_of(fig, "label")


@pytest.mark.parametrize("draw", [plots.heat_map, plots.raw_points])
def test_comparison_plots_show_first_rows_if_all_are_unchanged(draw):
    many = [f"x.w{i:03}" for i in range(90)]
    runs = arm_runs("A", workloads=many)
    fig = draw(compare(runs, runs.assign(id="B" + runs["id"])), "duration")

    assert "30 more not shown" in fig.title.text
    assert fig.renderers


def test_waterfall_title_names_saved_seconds():
    found = explain([run_tree({"a": (6, 0)}, 4.0)] * 2, [run_tree({"a": (2, 0)}, 2.0)] * 2)
    fig = plots.waterfall(found)

    assert fig.title.text.startswith("Where were seconds saved?")
    assert "(+)" in fig.xaxis[0].axis_label


def test_waterfall_ends_with_total():
    found = explain([run_tree({"a": (2, 0)}, 2.0)] * 2, [run_tree({"a": (6, 0)}, 4.0)] * 2)
    fig = plots.waterfall(found)

    labels, seconds = data_of(fig, "label"), data_of(fig, "seconds")
    assert labels[0] == "compute in a"
    assert labels[-1] == "total"
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1]) == 2.0


def test_sweep_plot_places_values_in_order():
    contenders = {f"c{i}": arm_runs(f"c{i}", seed=i, workloads=WORKLOADS[:1]) for i in range(1, 4)}
    report = compare(arm_runs("A", workloads=WORKLOADS[:1]), contenders)
    for values in ([[1000, 100], [500, 500], [1, 2]], [10, 4, 2]):
        points = {name: {"key": value} for name, value in zip(contenders, values, strict=True)}
        fig = plots.sweep_plot(report, points, "key")

        labels = fig.xaxis[0].major_label_overrides
        by_name = {place: labels[place] for place in data_of(fig, "x")}
        assert list(by_name) == [0, 1, 2]
        assert set(by_name.values()) == set(map(str, values))
    assert list(labels.values()) == ["2", "4", "10"]

    fig = plots.sweep_plot(report, {"baseline": {"key": 3}, "c1": {"key": 5}}, "key")
    assert [*fig.xaxis[0].major_label_overrides.values()] == ["3", "5"]
    assert data_of(fig, "ratio")[0] == 0.0
    assert data_of(fig, "verdict")[0] == "baseline"


def test_heat_map_of_few_rows_has_no_room_for_its_scale():
    few = WORKLOADS[:4]
    small = compare(arm_runs("A", workloads=few), arm_runs("B", seed=1, workloads=few))

    assert not plots.heat_map(small, "duration").select(ColorBar)


@pytest.mark.parametrize("draw", [plots.heat_map, plots.raw_points])
def test_comparison_titles_fit_a_telephone(draw, report):
    assert len(draw(report, "duration").title.text.partition(" (")[0]) <= 56
