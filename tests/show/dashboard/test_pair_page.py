"""Page of two runs."""

import re
from functools import partial

import numpy as np
import panel as pn
import pytest
from helpers.running_experiment import EXPERIMENT

from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard import pair as pair_page
from benchkit.show.dashboard.run.page import LiveSection
from benchkit.show.dashboard.state.time_window import PairWindow
from benchkit.show.pages.pair import PairData, sections
from benchkit.show.pages.run import RunData
from benchkit.store.run import Run
from validation.dashboard_server import (
    READY,
    brush,
    light_run,
    open_page,
    sees,
    text_of,
    with_record,
)


def pair_window(trees, **state):
    return PairWindow(PairData(*(RunData.read(Run(tree)) for tree in trees)), state)


def live_view(window, key):
    return LiveSection(window, partial(sections, window.data), key).view


def numbers(view, name):
    """Return a column of the table of task groups."""
    (table,) = view.select(pn.widgets.Tabulator)
    return [float(text.replace(",", "")) for text in table.value[name]]


def test_pair_table_uses_whole_runs_without_task_times(a_run):
    window = pair_window([a_run, light_run(a_run)])
    left, right = window.whole
    window.range.update(start=(left + right) / 2, end=right)

    view = live_view(window, "groups")

    assert window.part is not None
    assert sum(numbers(view, "A (s)")) > 0
    assert numbers(view, "B (s)") == numbers(view, "A (s)")
    assert set(numbers(view, "B − A (s)")) == {0}
    assert "of the whole runs" in text_of(view)
    assert "Task times of B were not recorded" in text_of(view)


def test_pair_table_divides_seconds_by_tasks(a_run):
    order = {"per": "task", "sort": "A (ms per task)"}
    window = pair_window([a_run, with_record(a_run, id=new_id())], **order)
    view = live_view(window, "groups")
    per_task, n_tasks = numbers(view, "A (ms per task)"), numbers(view, "tasks of A")
    (choice,) = view.select(pn.widgets.Select)

    choice.value = ""

    assert {window.state()[name] for name in order} == {""}, "the column of the order is gone"
    seconds = [ms * n / 1e3 for ms, n in zip(per_task, n_tasks, strict=True)]
    assert sorted(numbers(view, "A (s)")) == pytest.approx(sorted(seconds), abs=1e-3)
    assert sum(seconds) > 0


def test_pair_sections_follow_window_and_group(a_run):
    window = pair_window([a_run, with_record(a_run, id=new_id())])
    view = live_view(window, "groups")
    whole = sum(numbers(view, "tasks of A"))
    half = float(np.median(window.data.a.timeline.stop))

    window.range.update(start=half, end=window.whole[1])
    (table,) = view.select(pn.widgets.Tabulator)
    group = table.value["task group"].iloc[0]
    window.select_group(group)

    assert 0 < sum(numbers(view, "tasks of A")) < whole
    assert table.value["task group"].iloc[0] == f"● {group}"


def test_pair_swap_link_keeps_selection(a_run):
    window = pair_window([a_run, with_record(a_run, id=new_id())], page="2")
    links = pair_page.controls(window)[-1]
    left, right = window.whole

    window.range.update(start=(left + right) / 2, end=right)
    window.select_group(window.data.groups[0])

    state = window.state()
    assert state["page"] == "2"
    assert f"a={window.ids['b']}" in links.object
    assert f"from={state['from']}" in links.object
    assert "group=" in links.object


@pytest.mark.browser
@pytest.mark.slow
def test_pair_page_opens_from_list_and_comparison(page, running_site, artifacts):
    open_page(page, f"{running_site}?view=runs")
    page.get_by_role("link", name=re.compile("^compare .* with another run")).first.click()
    page.wait_for_url("**pick=*")
    page.get_by_role("link", name=re.compile("^compare with")).first.click()
    page.wait_for_url("**view=pair**")
    page.wait_for_function(READY)
    sees(page, "B − A")
    sees(page, "Which metrics differ?")

    open_page(page, f"{running_site}?view=compare&experiment={EXPERIMENT}")
    page.get_by_role("link", name="tests.sum").first.click()
    page.wait_for_url("**workload=tests.sum**")
    page.get_by_role("link", name="compare this run of new with the first run of").first.click()
    page.wait_for_url("**view=pair**")
    page.wait_for_function(READY)
    brush(page, "How much memory did each run use?")
    page.get_by_label("Task group").select_option(index=1)
    page.wait_for_url("**group=*")
    assert "from=" in page.url
    page.screenshot(path=artifacts / "dashboard-pair.png", full_page=True)
