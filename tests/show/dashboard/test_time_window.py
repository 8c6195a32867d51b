"""Time window of a run page, without a browser."""

import time
from functools import partial

import numpy as np
import pandas as pd
import panel as pn
import pytest
from bokeh.models import CrosshairTool

from benchkit import plots
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.show.dashboard.run.page import LiveSection, live_page
from benchkit.show.dashboard.state.time_window import Window
from benchkit.show.pages.run import NO_TIMES, RunData, sections
from benchkit.store.run import Run
from validation.dashboard_server import light_run, many_tasks, text_of


def window_of(tree, share=0.5, **state):
    """Return a window on the last `share` of a run, and the run."""
    data = RunData(Run(tree), TaskTimeline(tree))
    window = Window(data.run, data.timeline, state)
    left, right = window.whole
    window.range.update(start=right - share * (right - left), end=right)
    return window, data


def live_view(window, data, key):
    return LiveSection(window, partial(sections, data), key).view


def group_table(window, data):
    """Return the section of task groups, and its table."""
    view = live_view(window, data, "groups")
    (table,) = view.select(pn.widgets.Tabulator)
    return view, table


def test_window_without_task_times_shows_whole_run(a_run):
    tree = light_run(a_run)
    window, data = window_of(tree)
    _, whole = group_table(Window(data.run, data.timeline, {}), data)

    view, shown = group_table(window, data)

    assert window.part is not None
    assert len(shown.value)
    pd.testing.assert_frame_equal(shown.value, whole.value)
    assert NO_TIMES in text_of(view)
    window.group = window.timeline.groups[0]
    assert NO_TIMES in text_of(live_view(window, data, "longest"))


def test_window_selects_part_of_tasks(a_run):
    data = RunData(Run(a_run), TaskTimeline(a_run))
    window = Window(data.run, data.timeline, {})
    view, table = group_table(window, data)
    whole = table.value["tasks"].astype(int).sum()

    window.range.update(start=float(np.median(data.timeline.stop)), end=window.whole[1])

    # Half of the tasks ended before the window.
    part = table.value["tasks"].astype(int).sum()
    assert 0 < part <= data.timeline.n_tasks / 2 + 1
    assert part < whole
    assert NO_TIMES not in text_of(view)


def test_group_table_is_ordered_as_texts_like_as_numbers(a_run):
    _, table = group_table(*window_of(a_run))

    for name in ("tasks", "total (s)"):
        texts = table.value[name].tolist()
        numbers = [float(text.replace(",", "")) for text in texts]
        assert [float(text.replace(",", "")) for text in sorted(texts)] == sorted(numbers)


def test_window_shares_cursor_and_range(a_run):
    window, _ = window_of(a_run)
    figures = [plots.memory_by_kind(a_run), *plots.worker_load(a_run), *plots.scheduler_load(a_run)]

    window.share(*figures)

    marks = {figure.select_one(CrosshairTool).overlay for figure in figures}
    assert len(figures) > 2
    assert len(marks) == 1
    assert {figure.x_range for figure in figures} == {window.range}


def test_transfer_matrix_follows_address_and_window(a_run):
    window, data = window_of(a_run, cells="count")
    shown = live_view(window, data, "transfers")
    (choice,) = shown.select(pn.widgets.Select)
    figure = next(pane.object for pane in shown.select(pn.pane.Bokeh))
    part = figure.title.text
    window.range.update(start=window.whole[0] - 1, end=window.whole[1] + 1)

    assert choice.value == window.state()["cells"] == "count"
    assert "within the window" in part
    assert "in total" in figure.title.text
    assert figure.title.text != part


def test_flame_graph_follows_window_and_group(a_run):
    data = RunData(Run(a_run), TaskTimeline(a_run))
    window = Window(data.run, data.timeline, {})
    shown = live_view(window, data, "stacks")
    (first,) = shown.select(pn.pane.Bokeh)
    samples = data.run.profile()["count"]

    left, right = window.whole
    window.range.update(start=left, end=left + 0.5 * (right - left))

    (part,) = shown.select(pn.pane.Bokeh)
    assert len(samples)
    assert part is not first
    assert "within the window" in part.object.title.text
    assert "within the window" not in first.object.title.text
    window.reset()
    (whole,) = shown.select(pn.pane.Bokeh)
    assert whole.object.title.text == first.object.title.text


def test_filter_of_section_is_kept_in_the_state(a_run):
    data = RunData(Run(a_run), TaskTimeline(a_run))
    window = Window(data.run, data.timeline, {"frames": "1.0-2.0"})
    shown = live_view(window, data, "stacks")
    find, *_ = shown.select(pn.widgets.TextInput)

    find.value = "sum"

    assert window.state()["find"] == "sum"
    assert window.state()["frames"] == "", "the samples are those of other frames"
    (plot,) = shown.select(pn.pane.Bokeh)
    assert "'sum' in" in plot.object.title.text


def test_brush_updates_window_of_large_run(a_run):
    """Measure the server's part of a brush; the time is printed only, not asserted."""
    tree = many_tasks(a_run, 100_000)
    data = RunData(Run(tree), TaskTimeline(tree))
    window = Window(data.run, data.timeline, {"tab": "tasks"})
    live_page(data, window)
    left, right = window.whole

    began = time.perf_counter()
    window.range.update(start=left + 0.4 * (right - left), end=left + 0.6 * (right - left))
    print(f"brush over {window.timeline.n_tasks} tasks: {time.perf_counter() - began:.3f} s")

    assert window.part == pytest.approx(
        (left + 0.4 * (right - left), left + 0.6 * (right - left)), rel=1e-6
    )
