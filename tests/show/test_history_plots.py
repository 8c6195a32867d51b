from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from bokeh.document import Document
from bokeh.models import HoverTool

from benchkit import plots
from benchkit.analysis.history import build_history

NIGHTS = 60


def a_night(ago, **facts):
    day = pd.Timestamp("2026-11-20") - pd.Timedelta(days=ago)
    rng = np.random.default_rng(ago)
    return {
        "id": f"{ago:08x}", "workload": "array.sum", "category": "array", "environment": "main",
        "host": "h", "scale": 1.0, "capture": "full", "outcome": "ok", "comparable": True,
        "reason": "", "tags": {"night": day.isoformat()}, "started": day.tz_localize("UTC"),
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


def sources(drawn):
    found = [r.data_source for r in drawn.renderers if r.data_source.name]
    return {source.name: source.data for source in found}


def test_every_night_is_in_the_figure_and_a_failure_has_no_value(history):
    drawn = plots.over_nights(
        history, history.find({**history.series.iloc[0], "metric": "duration"})
    )
    kept = [r.data_source for r in drawn.renderers if r.data_source.name == "runs"]

    assert sum(len(source.data["id"]) for source in kept) == NIGHTS - 1
    assert sources(drawn)["failures"]["id"] == ["0000001d"]
    assert sources(drawn)["failures"]["y"].tolist() == [0.0]


def test_the_step_is_told_with_its_size_and_its_interval(history):
    told = sources(plots.over_nights(history, 0))["changes"]

    assert told["label"][0].startswith("▲ +")
    assert "since 2026-11-01" in told["tip"][0]


def test_other_packages_are_marked_where_they_came(history):
    told = sources(plots.over_nights(history, 0))["builds"]

    assert told["night"] == ["2026-11-01"]
    assert "dask 2026.8 → 2026.9" in told["tip"][0]


def test_the_axis_begins_at_zero_or_says_that_it_does_not(history):
    assert plots.over_nights(history, 0).y_range.start == 0
    fitted = plots.over_nights(history, 0, from_zero=False)
    assert fitted.y_range.start > 5
    assert "not from 0" in fitted.yaxis[0].axis_label


def test_bytes_get_a_unit_that_suits_them(history):
    drawn = plots.over_nights(history, 1)

    assert drawn.yaxis[0].axis_label == "memory peak (GiB)"


def test_a_figure_can_be_sent_to_a_page_and_its_hover_never_asks_for_markup(history):
    drawn = plots.over_nights(history, 0, small=True)
    document = Document()
    document.add_root(drawn)

    assert "0000001d" in str(document.to_json())
    tips = [tip for tool in drawn.tools if isinstance(tool, HoverTool) for _, tip in tool.tooltips]
    assert not any("safe" in tip for tip in tips)


def test_a_series_that_was_never_measured_says_so(history):
    empty = history.select(metric="duration")
    empty.values[:] = np.nan
    drawn = plots.over_nights(empty, 0)

    assert "Nothing was recorded" in drawn.html_attributes["aria-label"]


def test_a_sparkline_is_well_formed_breaks_where_nothing_is_and_is_named():
    values = np.array([1.0, 1.1, np.nan, 1.2, 1.3])
    svg = plots.sparkline(values, [(3, 1)], failed=[2], label='a "b" <c>')
    root = ElementTree.fromstring(svg)

    assert root.attrib["aria-label"] == 'a "b" <c>'
    lines = [part for part in root if part.attrib.get("fill") == "none"]
    assert len(lines) == 2


def test_a_sparkline_of_nothing_is_empty():
    root = ElementTree.fromstring(plots.sparkline(np.full(5, np.nan)))

    assert len(root) == 0
