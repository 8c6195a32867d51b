"""Page of two runs."""

import re

import pytest
from helpers.running_experiment import EXPERIMENT

from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard import pair as pair_page
from benchkit.show.dashboard.state.time_window import PairWindow
from benchkit.store.run import Run
from validation.dashboard_server import READY, brush, light_run, open_page, sees, with_record


def pair_window(trees, **state):
    runs = [Run(tree) for tree in trees]
    return PairWindow(runs, [TaskTimeline(tree) for tree in trees], state)


def test_pair_table_uses_whole_runs_without_task_times(a_run):
    window = pair_window([a_run, light_run(a_run)])
    left, right = window.whole
    window.range.update(start=(left + right) / 2, end=right)

    shown = pair_page.group_table(window)[1][0].value

    assert window.part is not None
    assert shown["A (s)"].sum() > 0
    assert shown["B (s)"].tolist() == pytest.approx(shown["A (s)"].tolist())
    assert shown["B − A (s)"].tolist() == pytest.approx([0] * len(shown))
    text = pair_page.about_groups(window)
    assert "of the whole runs" in text
    assert "Task times of B were not recorded" in text


def test_pair_table_divides_seconds_by_tasks(a_run):
    window = pair_window([a_run, with_record(a_run, id=new_id())], per="task")
    choice, place = pair_page.group_table(window)
    per_task = place[0].value
    choice.value = ""
    seconds = place[0].value

    assert window.state()["per"] == ""
    assert len(seconds) == len(per_task) > 0
    joined = seconds.merge(per_task, on="task group")
    ms_per_task = joined["A (s)"] / joined["tasks of A_x"] * 1e3
    assert ms_per_task.tolist() == pytest.approx(joined["A (ms per task)"].tolist())


def test_pair_swap_link_keeps_selection(a_run):
    window = pair_window([a_run, with_record(a_run, id=new_id())], page="2")
    links = pair_page._controls(window)[-1]
    left, right = window.whole

    window.range.update(start=(left + right) / 2, end=right)
    window.select_group(window.names[0])

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
    sees(page, "Key figures")

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
