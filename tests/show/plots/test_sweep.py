"""Curves of simulations: what is on their axes."""

import math

import pandas as pd
import pytest
from bokeh.models import Line

from benchkit.analysis.compare.compare_runs import compare
from benchkit.show.plots.sweep import simulation_curves, sweep_plot
from validation.arm_runs import arm_runs


def table(**columns):
    n = len(next(iter(columns.values())))
    settings = {name: values for name, values in columns.items() if "." in name}
    shape = {"workers": [4] * n, "threads": [1] * n, "bandwidth": [1e9] * n}
    shape |= {name: values for name, values in columns.items() if name in shape}
    results = {"seconds": range(1, n + 1), "low": range(n), "high": range(2, n + 2)}
    results |= {name: [1] * n for name in ("transfer_bytes", "memory_peak", "scheduler")}
    return pd.DataFrame({**shape, **settings, **results})


def first_figure(frame):
    return simulation_curves(frame, "graph.tree").children[0][0]


@pytest.mark.parametrize(
    ("columns", "label", "places"),
    [
        ({"workers": [10, 1, 100]}, "workers", [1, 10, 100]),
        ({"bandwidth": [2e8, 1e8]}, "bandwidth of a worker (B/s)", [1e8, 2e8]),
        ({"scheduler.worker-saturation": [math.inf, 1.0]}, "scheduler.worker-saturation", [0, 1]),
        ({"threads": [4, 1]}, "threads", [0, 1]),
        ({"threads": [2]}, "workers", [4]),
    ],
)
def test_simulation_curves_are_over_what_differs(columns, label, places):
    fig = first_figure(table(**columns))

    assert fig.xaxis.axis_label == label
    assert fig.renderers[0].data_source.data["x"].tolist() == places


def test_simulation_curves_name_the_values_of_a_setting():
    fig = first_figure(table(**{"scheduler.worker-saturation": [math.inf, 1.0]}))

    assert fig.xaxis.major_label_overrides == {0: "1.0", 1: "inf"}


def test_simulation_curves_have_a_curve_per_other_setting():
    columns = {"workers": [1, 10, 1, 10], "scheduler.work-stealing": [True, True, False, False]}
    fig = first_figure(table(**columns))

    names = [item.label.value for item in fig.legend[0].items]
    assert names == ["work-stealing=False", "work-stealing=True"]
    assert fig.renderers[0].data_source.data["value"].tolist() == [3, 4]


def has_line(fig):
    return any(isinstance(renderer.glyph, Line) for renderer in fig.renderers)


def test_curves_over_words_have_no_line():
    assert has_line(first_figure(table(threads=[4, 1])))
    assert not has_line(first_figure(table(**{"shuffle.method": ["p2p", "tasks"]})))

    runs = {name: arm_runs(name, seed=seed, workloads=["x"]) for seed, name in enumerate("ABC")}
    comparison = compare(runs["A"], {"B": runs["B"], "C": runs["C"]}, names=("A", ""))
    for values, wanted in (([1, 2, 4], True), (["single", "batched", "none"], False)):
        points = {arm: {"param.n": value} for arm, value in zip("ABC", values, strict=True)}
        fig = sweep_plot(comparison, points, "param.n")
        assert has_line(fig) == wanted
        assert len(fig.renderers[0].data_source.data["x"]) == 3
