"""Time window of a run page, without a browser."""

import time

import numpy as np
import pandas as pd
import panel as pn
import pytest
from bokeh.models import CrosshairTool

from benchkit import plots
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.show.dashboard.run.overview import group_table
from benchkit.show.dashboard.run.page import longest_tasks
from benchkit.show.dashboard.run.task_groups import GroupTable
from benchkit.show.dashboard.run.transfers import transfers
from benchkit.show.dashboard.state.time_window import NO_TIMES, Window
from benchkit.store.run import Run
from validation.dashboard_server import light_run, many_tasks, text_of


def window_of(tree, share=0.5, **state):
    """Return a window on the last `share` of a run."""
    window = Window(Run(tree), TaskTimeline(tree), state)
    left, right = window.whole
    window.range.update(start=right - share * (right - left), end=right)
    return window


def test_window_without_task_times_shows_whole_run(a_run):
    tree = light_run(a_run)
    window = window_of(tree)
    whole = GroupTable(Window(Run(tree), TaskTimeline(tree), {})).view.value

    shown = GroupTable(window).view.value

    assert window.part is not None
    assert len(shown)
    pd.testing.assert_frame_equal(shown, whole)
    assert NO_TIMES in text_of(group_table(window))
    window.group = window.timeline.groups[0]
    assert NO_TIMES in text_of(longest_tasks(window))


def test_window_selects_part_of_tasks(a_run):
    within = TaskTimeline(a_run)
    window = Window(Run(a_run), within, {})
    whole = GroupTable(window).view.value

    window.range.update(start=float(np.median(within.stop)), end=window.whole[1])
    part = GroupTable(window).view.value

    # Half of the tasks ended before the window.
    assert 0 < part["tasks"].sum() <= within.n_tasks / 2 + 1
    assert part["tasks"].sum() < whole["tasks"].sum()
    assert NO_TIMES not in text_of(group_table(window))


def test_window_shares_cursor_and_range(a_run):
    window = window_of(a_run)
    figures = [plots.memory_by_kind(a_run), *plots.worker_load(a_run), *plots.scheduler_load(a_run)]

    window.share(*figures)

    marks = {figure.select_one(CrosshairTool).overlay for figure in figures}
    assert len(figures) > 2
    assert len(marks) == 1
    assert {figure.x_range for figure in figures} == {window.range}


def test_transfer_matrix_follows_address_and_window(a_run):
    window = window_of(a_run, cells="count")
    shown = transfers(window)
    (choice,) = shown.select(pn.widgets.Select)
    figure = next(pane.object for pane in shown.select(pn.pane.Bokeh))
    part = figure.title.text
    window.range.update(start=window.whole[0] - 1, end=window.whole[1] + 1)

    assert choice.value == window.state()["cells"] == "count"
    assert "within the window" in part
    assert "in total" in figure.title.text
    assert figure.title.text != part


def test_brush_updates_window_of_large_run(a_run):
    """Measure the server's part of a brush; the time is printed only, not asserted."""
    from benchkit.analysis.run.timeline import TaskTimeline
    from benchkit.show.dashboard.run.page import live_figures
    from benchkit.show.dashboard.state.time_window import Window

    tree = many_tasks(a_run, 100_000)
    window = Window(Run(tree), TaskTimeline(tree), {"tab": "tasks"})
    live_figures(window)
    left, right = window.whole

    began = time.perf_counter()
    window.range.update(start=left + 0.4 * (right - left), end=left + 0.6 * (right - left))
    print(f"brush over {window.timeline.n_tasks} tasks: {time.perf_counter() - began:.3f} s")

    assert window.part == pytest.approx(
        (left + 0.4 * (right - left), left + 0.6 * (right - left)), rel=1e-6
    )
