from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import panel as pn
import pytest
from bokeh.core.validation.check import check_integrity
from bokeh.document import Document
from bokeh.models import HoverTool, Label

from benchkit import plots
from benchkit.analysis.regression.history import build_history
from benchkit.show.dashboard.lists import workloads

NIGHTS = 60


def a_night(ago, **facts):
    day = pd.Timestamp("2026-11-20") - pd.Timedelta(days=ago)
    rng = np.random.default_rng(ago)
    return {
        "id": f"{ago:08x}", "workload": "array.sum", "category": "array", "environment": "main",
        "host": "h", "scale": 1.0, "capture": "full", "outcome": "ok", "comparable": True,
        "reason": "", "tags": f'{{"night": "{day.isoformat()}"}}',
        "started": day.tz_localize("UTC"),
        "version": 1, "dask": "2026.8", "packages_hash": "a", "error": None,
        "duration": 10 * (1.2 if ago < 20 else 1.0) * rng.lognormal(0, 0.01),
        "memory_peak": 3e9 * rng.lognormal(0, 0.01), **facts,
    }  # fmt: skip


@pytest.fixture(scope="module")
def history():
    rows = [a_night(ago) for ago in reversed(range(NIGHTS))]
    rows[30] |= {"outcome": "failed", "error": "<b>no</b>", "duration": np.nan}
    rows[10] |= {"comparable": False, "reason": "disk full"}
    for row in rows[40:]:
        row |= {"packages_hash": "b", "dask": "2026.9"}
    return build_history(pd.DataFrame(rows), metrics=["duration", "memory_peak"])


def sources(fig):
    found = [r.data_source for r in fig.renderers if r.data_source.name]
    return {source.name: source.data for source in found}


def test_history_plot_draws_failure_without_value(history):
    fig = plots.history_plot(
        history, history.find({**history.series.iloc[0], "metric": "duration"})
    )
    kept = [r.data_source for r in fig.renderers if r.data_source.name == "runs"]

    assert sum(len(source.data["id"]) for source in kept) == NIGHTS - 1
    assert sources(fig)["failures"]["id"] == ["0000001d"]
    assert sources(fig)["failures"]["y"].tolist() == [0.0]


def test_history_plot_labels_change_with_size_and_date(history):
    data = sources(plots.history_plot(history, 0))["changes"]

    assert data["label"][0].startswith("▲ +")
    assert "since 2026-11-01" in data["tip"][0]


def runs_shown(fig):
    """Return (y, marker) of each run in a figure, by run id."""
    kept = [r.data_source.data for r in fig.renderers if r.data_source.name == "runs"]
    return {
        name: (y, marker)
        for data in kept
        for name, y, marker in zip(data["id"], data["y"], data["marker"], strict=True)
    }


@pytest.mark.parametrize("from_zero", [True, False])
def test_history_plot_axis_includes_runs_set_aside(from_zero):
    rows = [a_night(ago) for ago in reversed(range(NIGHTS))]
    rows[10] |= {"comparable": False, "reason": "disk full", "duration": 14.0}
    fig = plots.history_plot(
        build_history(pd.DataFrame(rows), metrics=["duration"]), 0, from_zero=from_zero
    )

    y, marker = runs_shown(fig)[rows[10]["id"]]
    assert (y, marker) == (14.0, "circle")
    assert fig.y_range.start <= y <= fig.y_range.end


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("from_zero", [True, False])
def test_history_plot_counts_outliers_at_the_edge(small, from_zero):
    rows = [a_night(ago) for ago in reversed(range(NIGHTS))]
    rows[10] |= {"comparable": False, "reason": "disk full", "duration": 400.0}
    fig = plots.history_plot(
        build_history(pd.DataFrame(rows), metrics=["duration"]), 0, from_zero=from_zero, small=small
    )

    assert not check_integrity(fig.references()).error
    assert fig.y_range.end < 40
    y, marker = runs_shown(fig)[rows[10]["id"]]
    assert 0.95 * fig.y_range.end < y < fig.y_range.end
    assert marker == "triangle"
    assert [each.text for each in fig.select(Label)] == ["1 run beyond this axis"]
    assert "1 run beyond this axis" in fig.html_attributes["aria-label"]


def test_history_plot_marks_drop_and_rise_by_direction():
    rows = [a_night(ago) for ago in reversed(range(NIGHTS))]
    for row in rows[52:]:
        row["duration"] *= 0.5
    history = build_history(pd.DataFrame(rows), metrics=["duration"])

    for small in (False, True):
        data = sources(plots.history_plot(history, 0, small=small))["changes"]
        assert data["marker"] == ["triangle", "inverted_triangle"]


@pytest.mark.parametrize(
    ("about", "shown"),
    [
        ({}, True),
        ({"workload": "array.*", "where": {"environment": "main"}}, True),
        ({"workload": "array.other"}, False),
        ({"where": {"host": "elsewhere"}}, False),
        ({"where": {"night": "2026-11-01*"}}, True),  # a tag
        ({"since": "2026-11-12"}, False),
        ({"where": 7}, False),  # written by hand
    ],
)
def test_history_plot_draws_bankruptcy_of_selected_runs_only(history, about, shown):
    mark = {"kind": "bankruptcy", "before": "2026-11-10T00:00:00+00:00", "reason": "disks", **about}
    data = sources(plots.history_plot(history, 0, marks=[mark]))

    assert ("restarts" in data) is shown


def test_history_plot_marks_changed_packages(history):
    data = sources(plots.history_plot(history, 0))["builds"]

    assert data["night"] == ["2026-11-01"]
    assert "dask 2026.8 → 2026.9" in data["tip"][0]


def test_history_plot_label_says_if_axis_is_not_from_zero(history):
    assert plots.history_plot(history, 0).y_range.start == 0
    fitted = plots.history_plot(history, 0, from_zero=False)
    assert fitted.y_range.start > 5
    assert "not from 0" in fitted.yaxis[0].axis_label


def test_history_plot_selects_unit_of_bytes(history):
    fig = plots.history_plot(history, 1)

    assert fig.yaxis[0].axis_label == "memory peak (GiB)"


def test_small_history_plot_has_few_dates(history):
    small, large = (plots.history_plot(history, 0, small=small) for small in (True, False))

    assert small.xaxis[0].ticker.desired_num_ticks == 3
    assert large.xaxis[0].ticker.desired_num_ticks == 6


def test_history_plot_is_valid_and_tooltips_are_escaped(history):
    fig = plots.history_plot(history, 0, small=True)
    document = Document()
    document.add_root(fig)

    assert "0000001d" in str(document.to_json())
    tips = [tip for tool in fig.tools if isinstance(tool, HoverTool) for _, tip in tool.tooltips]
    assert not any("safe" in tip for tip in tips)


def test_history_plot_of_unmeasured_series_says_so(history):
    empty = history.select(metric="duration")
    empty.values[:] = np.nan
    fig = plots.history_plot(empty, 0)

    assert "Nothing was recorded" in fig.html_attributes["aria-label"]


@pytest.fixture
def workload_page(history, monkeypatch):
    runs = history.runs.assign(params=[{}] * len(history.runs))
    known = {
        "nights_of_workload": lambda name: history,
        "runs_of_workload": lambda name: runs.sort_values("started", ascending=False),
        "runs_table": lambda columns: runs[columns],
        "workload_catalogue": lambda: SimpleNamespace(variants=list),
        "run_noise": lambda runs, metric: pd.DataFrame({"workload": []}),
        "newest_attributes": lambda runs: {},
    }
    for name, made in known.items():
        monkeypatch.setattr(workloads, name, made)
    return workloads.view({"name": "array.sum"})


def test_workload_page_history_links_to_runs(workload_page):
    (pane,) = workload_page.select(pn.pane.Bokeh)
    kept = [r.data_source for r in pane.object.renderers if r.data_source.name]
    clicked = [source for source in kept if source.name in ("runs", "failures")]

    assert "not from 0" in pane.object.yaxis[0].axis_label
    assert clicked
    assert all(source.selected.js_property_callbacks for source in clicked)


def test_workload_page_lists_selected_metric(workload_page):
    def text_of_page():
        return " ".join(str(pane.object) for pane in workload_page.select(pn.pane.HTML))

    assert "memory peak" not in text_of_page()
    (choose,) = workload_page.select(pn.widgets.Select)
    choose.value = "memory_peak"

    assert "memory peak" in text_of_page()
    assert "GiB" in text_of_page()


@pytest.mark.parametrize("metric", ["duration", "outcome"])
def test_bisection_steps_draw_failed_runs_below_values(metric):
    runs = pd.DataFrame(
        {
            "id": ["1", "2", "3"], "arm": ["good", "bad", "bad"], "block": [0, 0, 1],
            "outcome": ["ok", "ok", "lost_workers"], "duration": [10.0, 9.0, np.nan],
        }
    )  # fmt: skip
    table = pd.DataFrame(
        {"build": ["good", "bad"], "runs": [1, 2], "verdict": ["good", "first bad"]}
    )
    found = SimpleNamespace(workload="array.sum", metric=metric, runs=runs, table=lambda: table)
    fig = plots.bisection_steps(found)

    failed = sources(fig)["failed"]
    values = [r.data_source.data["change"] for r in fig.renderers if "change" in r.data_source.data]
    assert failed["bottom"] == [fig.y_range.start]
    assert failed["bottom"][0] < np.concatenate(values).min()
    assert "change" not in failed
    assert list(failed["outcome"]) == ["lost workers"]


def test_sparkline_has_gaps_and_escaped_label():
    values = np.array([1.0, 1.1, np.nan, 1.2, 1.3])
    svg = plots.sparkline(values, [(3, 1)], failed=[2], label='a "b" <c>')
    root = ElementTree.fromstring(svg)

    assert root.attrib["aria-label"] == 'a "b" <c>'
    lines = [part for part in root if part.attrib.get("fill") == "none"]
    assert len(lines) == 2


def test_sparkline_without_values_is_empty():
    root = ElementTree.fromstring(plots.sparkline(np.full(5, np.nan)))

    assert len(root) == 0


def test_history_plot_shows_disturbed_runs():
    rows = [a_night(n, quality='{"duration": "disturbed"}' if n < 2 else "{}") for n in range(10)]
    fig = plots.history_plot(build_history(pd.DataFrame(rows), metrics=["duration"]), 0)
    sources = [r.data_source for r in fig.renderers if r.data_source.name == "runs"]

    assert [len(source.data["x"]) for source in sources] == [8, 2]
    assert set(sources[1].data["marker"]) == {"diamond"}
    assert "disturbed runs" in [item.label.value for item in fig.legend[0].items]
