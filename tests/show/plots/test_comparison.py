"""Figures of comparisons show the same values as the report."""

from dataclasses import replace

import pytest
from bokeh.models.annotations import ColorBar
from helpers.arm_runs import WORKLOADS, arm_runs
from helpers.run_trees import run_tree

from benchkit import plots
from benchkit.analysis.compare.compare_runs import compare
from benchkit.analysis.compare.explain import explain
from benchkit.store.schema import METRICS


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


def test_the_forest_shows_all_workloads_changed_ones_on_top_with_their_symbols(report):
    drawn = plots.forest_plot(report, "duration")
    labels = data_of(drawn, "label")

    assert sorted(labels) == WORKLOADS
    assert set(labels[:2]) == {"x.w03", "x.w07"}
    assert dict(zip(labels, data_of(drawn, "marker"), strict=True))["x.w03"] == "triangle"
    assert data_of(drawn, "change")[labels.index("x.w03")] == pytest.approx(25, abs=8)
    assert "(%)" in drawn.xaxis[0].axis_label


def test_the_forest_shows_the_one_of_many_that_changed_most():
    many = [f"x.w{i:02}" for i in range(50)]
    contender = arm_runs("B", seed=2, workloads=many, change={"x.w04": 1.6, "x.w09": 0.5})
    report = compare(arm_runs("A", seed=1, workloads=many), contender)
    drawn = plots.forest_plot(report, "duration")
    changes = data_of(drawn, "change")

    assert max(changes) == pytest.approx(60, abs=10)
    assert drawn.x_range.start < min(changes)
    assert drawn.x_range.end > max(changes)


def test_an_endless_interval_does_not_make_all_effects_of_a_forest_look_alike():
    many = [f"x.w{i:02}" for i in range(20)]
    report = compare(
        arm_runs("A", seed=1, workloads=many),
        arm_runs("B", seed=2, workloads=many, change={"x.w04": 1.2}),
    )
    frame = report.frame.copy()
    frame.loc[frame["workload"] == "x.w11", ["high", "selected_high"]] = 40.0
    drawn = plots.forest_plot(replace(report, frame=frame), "duration")

    assert 20 < drawn.x_range.end < 60


def test_the_heat_map_is_sure_of_the_change_and_of_no_more(report):
    drawn = plots.heat_map(report, "duration")
    cells = {
        (label, beyond): value
        for label, beyond, value in zip(
            data_of(drawn, "label"), data_of(drawn, "beyond"), data_of(drawn, "value"), strict=True
        )
    }

    assert cells["x.w03", "+5"] > 0.99
    assert cells["x.w03", "+60"] < 0.01
    assert cells["x.w07", "−5"] < -0.99
    labels = [name for name in drawn.xaxis[0].major_label_overrides.values() if name]
    less = [f"−{percent}" for percent in range(80, -1, -10)]
    assert labels == [*less, *(f"+{percent}" for percent in range(0, 81, 10))]


def test_the_three_figures_of_a_comparison_share_their_rows(report):
    changes = plots.forest_plot(report, "duration")
    sure = plots.heat_map(report, "duration", beside=changes)
    points = plots.raw_points(report, "duration", beside=changes)

    for drawn in (sure, points):
        assert drawn.y_range is changes.y_range
        assert drawn.height == changes.height
        assert drawn.min_border_top == changes.min_border_top
        assert drawn.min_border_bottom == changes.min_border_bottom
        assert not drawn.yaxis.visible
        assert set(data_of(drawn, "label")) == set(WORKLOADS)


def test_a_dot_knows_which_run_it_is(report):
    drawn = plots.raw_points(report, "duration")
    table = arm_runs("A", seed=1).set_index("id")
    (baseline,) = (one for one in drawn.renderers if one.name == "baseline")
    data = baseline.data_source.data
    middle = table.groupby("workload")["duration"].median()

    assert len(set(data["id"])) == len(data["id"]) == 5 * len(WORKLOADS)
    for run_id, share, label in zip(data["id"], data["x"], data["label"], strict=True):
        run = table.loc[run_id]
        assert run["workload"] == label
        assert share == pytest.approx(100 * run["duration"] / middle[label])


def test_every_run_is_a_dot(report):
    drawn = plots.raw_points(report, "duration")
    dots = sum(len(renderer.data_source.data["x"]) for renderer in drawn.renderers)

    assert dots == 3 * 5 * len(WORKLOADS)


def test_a_metric_nobody_measured_is_said_to_be_missing(report):
    for draw in (plots.forest_plot, plots.heat_map, plots.raw_points):
        assert "No row is of this metric." in draw(report, "cost").html_attributes["aria-label"]


def test_titles_name_a_metric_in_words(report):
    for draw in (plots.forest_plot, plots.heat_map, plots.raw_points):
        assert METRICS["duration"].long_name in draw(report, "duration").title.text
        assert "my cost" in draw(report, "my_cost").html_attributes["aria-label"]


def test_a_heat_map_of_too_few_runs_does_not_say_that_nothing_was_measured(report):
    unsure = replace(report, frame=report.frame.assign(p=float("nan")))
    told = plots.heat_map(unsure, "duration").html_attributes["aria-label"]

    assert "two runs a side" in told
    assert "No row" not in told


def test_the_scale_of_the_heat_map_is_named(report):
    (bar,) = plots.heat_map(report, "duration").select(ColorBar)

    assert bar.title == "how sure"


def test_a_long_report_counts_what_is_the_same_instead_of_drawing_it():
    many = [f"x.w{i:03}" for i in range(90)]
    report = compare(
        arm_runs("A", workloads=many), arm_runs("B", seed=1, workloads=many, change={"x.w004": 2.0})
    )
    drawn = plots.forest_plot(report, "duration")

    assert "that are the same are not shown" in drawn.title.text
    assert "x.w004" in data_of(drawn, "label")


@pytest.mark.parametrize("draw", [plots.forest_plot, plots.heat_map, plots.raw_points])
def test_a_long_report_in_which_all_is_the_same_shows_the_first_of_it(draw):
    many = [f"x.w{i:03}" for i in range(90)]
    drawn = draw(compare(arm_runs("A", workloads=many), arm_runs("A", workloads=many)), "duration")

    assert "30 more are not shown" in drawn.title.text
    assert drawn.renderers


def test_a_waterfall_of_what_got_faster_speaks_of_no_extra_seconds():
    found = explain([run_tree({"a": (6, 0)}, 4.0)] * 2, [run_tree({"a": (2, 0)}, 2.0)] * 2)
    drawn = plots.waterfall(found)

    assert drawn.title.text.startswith("Where were seconds saved?")
    assert "(+)" in drawn.xaxis[0].axis_label


def test_the_waterfall_ends_in_the_whole():
    found = explain([run_tree({"a": (2, 0)}, 2.0)] * 2, [run_tree({"a": (6, 0)}, 4.0)] * 2)
    drawn = plots.waterfall(found)

    labels, seconds = data_of(drawn, "label"), data_of(drawn, "seconds")
    assert labels[0] == "compute in a"
    assert labels[-1] == "all together"
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1]) == 2.0
