"""The data behind pages, without a browser: windows of runs, and what all visitors share."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pandas as pd
import panel as pn
import pytest
from bokeh.models import CrosshairTool
from helpers.dashboard_server import with_record
from helpers.history_data import FASTER, SLOWER, fill

from benchkit import plots
from benchkit.analysis.regression.history import SERIES_FIELDS
from benchkit.analysis.run.timeline import TaskTimeline
from benchkit.experiment.run.status import DONE, OPEN, Status
from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard.compare import explanation as cause
from benchkit.show.dashboard.compare import page as compare
from benchkit.show.dashboard.compare import table as compared
from benchkit.show.dashboard.components import mark_form as marks
from benchkit.show.dashboard.pair import page as pair
from benchkit.show.dashboard.pair import task_groups as pair_groups
from benchkit.show.dashboard.run import page as run_page
from benchkit.show.dashboard.run.longest_tasks import longest_tasks
from benchkit.show.dashboard.run.overview import group_table
from benchkit.show.dashboard.run.task_groups import GroupTable
from benchkit.show.dashboard.run.transfers import transfers
from benchkit.show.dashboard.state import cache as data
from benchkit.show.dashboard.state.time_window import NO_TIMES, PairWindow, Window
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from benchkit.store.store import Store


def light(a_run):
    """Return a run like those of the light capture: groups have counts, tasks have no times."""
    run = with_record(a_run, id=new_id(), capture="light")
    for name in ("tasks", "task_events"):
        if name in run.children:
            del run[name]
    return run


def looked_at(tree, share=0.5, **state):
    """Return a window on the last `share` of a run."""
    window = Window(Run(tree), TaskTimeline(tree), state)
    left, right = window.whole
    window.range.update(start=right - share * (right - left), end=right)
    return window


def words_of(view):
    return " ".join(str(pane.object) for pane in view.select(pn.pane.HTML))


def test_a_run_without_times_of_tasks_shows_its_whole_whatever_the_window(a_run):
    tree = light(a_run)
    window = looked_at(tree)
    whole = GroupTable(Window(Run(tree), TaskTimeline(tree), {})).view.value

    shown = GroupTable(window).view.value

    assert window.part is not None
    assert len(shown)
    pd.testing.assert_frame_equal(shown, whole)
    assert NO_TIMES in words_of(group_table(window))
    window.group = window.within.groups[0]
    assert NO_TIMES in words_of(longest_tasks(window))


def test_a_run_with_times_of_tasks_shows_its_part(a_run):
    within = TaskTimeline(a_run)
    window = Window(Run(a_run), within, {})
    whole = GroupTable(window).view.value

    window.range.update(start=float(np.median(within.stop)), end=window.whole[1])
    part = GroupTable(window).view.value

    # Half of the tasks ended before the window.
    assert 0 < part["tasks"].sum() <= within.n_tasks / 2 + 1
    assert part["tasks"].sum() < whole["tasks"].sum()
    assert NO_TIMES not in words_of(group_table(window))


def test_figures_over_time_mark_one_moment_and_share_one_range(a_run):
    window = looked_at(a_run)
    drawn = [plots.memory_by_kind(a_run), *plots.worker_load(a_run), *plots.scheduler_load(a_run)]

    window.share(*drawn)

    marks = {figure.select_one(CrosshairTool).overlay for figure in drawn}
    assert len(drawn) > 2
    assert len(marks) == 1
    assert {figure.x_range for figure in drawn} == {window.range}


def a_pair(trees, **state):
    runs = [Run(tree) for tree in trees]
    return PairWindow(runs, [TaskTimeline(tree) for tree in trees], state)


def test_a_side_without_times_of_tasks_is_no_difference(a_run):
    window = a_pair([a_run, light(a_run)])
    left, right = window.whole
    window.range.update(start=(left + right) / 2, end=right)

    shown = pair_groups.group_table(window)[1][0].value

    assert window.part is not None
    assert shown["A (s)"].sum() > 0
    assert shown["B (s)"].tolist() == pytest.approx(shown["A (s)"].tolist())
    assert shown["B − A (s)"].tolist() == pytest.approx([0] * len(shown))
    told = pair_groups.about_groups(window)
    assert "of the whole runs" in told
    assert "Of B it is not known" in told


def test_seconds_of_two_runs_are_shown_per_task_and_the_address_keeps_it(a_run):
    window = a_pair([a_run, with_record(a_run, id=new_id())], per="task")
    choice, place = pair_groups.group_table(window)
    per_task = place[0].value
    choice.value = ""
    seconds = place[0].value

    assert window.state()["per"] == ""
    assert len(seconds) == len(per_task) > 0
    joined = seconds.merge(per_task, on="task group")
    found = joined["A (s)"] / joined["tasks of A_x"] * 1e3
    assert found.tolist() == pytest.approx(joined["A (ms per task)"].tolist())


def test_the_matrix_of_transfers_shows_what_the_address_asks_for_within_the_window(a_run):
    window = looked_at(a_run, cells="count")
    shown = transfers(window)
    (choice,) = shown.select(pn.widgets.Select)
    figure = next(pane.object for pane in shown.select(pn.pane.Bokeh))
    part = figure.title.text
    window.range.update(start=window.whole[0] - 1, end=window.whole[1] + 1)

    assert choice.value == window.state()["cells"] == "count"
    assert "within the window" in part
    assert "in total" in figure.title.text
    assert figure.title.text != part


def test_rows_come_in_the_order_that_was_asked_for():
    frame = pd.DataFrame(
        {
            "workload": ["c", "a", "b"], "contender": "x", "metric": "duration",
            "ratio": [1.5, 1.1, 0.8], "noise": [0.5, 0.1, 0.01],
        }
    )  # fmt: skip

    orders = {order: compared._ordered(frame, order)["workload"] for order in ("", "name", "noise")}

    assert {order: "".join(names) for order, names in orders.items()} == {
        "": "cab", "name": "abc", "noise": "bac",
    }  # fmt: skip


def test_two_runs_are_swapped_as_they_are_looked_at(a_run):
    window = a_pair([a_run, with_record(a_run, id=new_id())], page="2")
    lead = pair._controls(window)[-1]
    left, right = window.whole

    window.range.update(start=(left + right) / 2, end=right)
    window.choose(window.names[0])

    found = window.state()
    assert found["page"] == "2"
    assert f"a={window.ids['b']}" in lead.object
    assert f"from={found['from']}" in lead.object
    assert "group=" in lead.object


@pytest.fixture
def store(tmp_path, a_run, monkeypatch):
    store = fill(tmp_path / "store", a_run, n_nights=12)
    monkeypatch.setenv("BENCHKIT_STORE", str(store.path))
    return store


class Large:
    """Stand-in for a run of a million tasks."""


def test_an_answer_is_kept_and_not_what_it_was_made_from(store):
    run, made = Large(), []
    gone = weakref.ref(run)

    def make(run=run):
        made.append(type(run).__name__)
        return len(made)

    assert data.kept(make, "test", "size") == 1
    assert data.kept(make, "test", "size") == 1
    del run, make
    gc.collect()

    assert gone() is None
    assert made == ["Large"]


def test_what_failed_is_asked_again(store):
    def fail():
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        data.kept(fail, "test", "later")
    assert data.kept(lambda: 1, "test", "later") == 1


def test_answers_are_of_the_store_as_it_is(store, a_run):
    before = data.kept(lambda: len(store.runs()), "test", "runs")
    Store(store.path).add(with_record(a_run, id=new_id()))

    assert data.kept(lambda: len(store.runs()), "test", "runs") == before + 1


def test_standings_come_with_the_nights_that_they_are_rows_of(store):
    history, ones = data.series_statuses_of("duration")

    assert ones
    assert all(history.series["workload"][one.row] == one.about["workload"] for one in ones)


def test_the_nights_of_a_workload_are_those_of_all(store):
    mine, all_of_them = data.nights_of_workload(SLOWER), data.all_nights()

    assert set(mine.series["workload"]) == {SLOWER}
    assert {SLOWER, FASTER} <= set(all_of_them.series["workload"])
    for row, about in enumerate(mine.series.to_dict("records")):
        assert mine.changes[row] == all_of_them.changes[all_of_them.find(about)]


def test_key_figures_stand_beside_what_is_usual(store):
    run = data.open_run(data.nights_of_workload(SLOWER).runs["id"].iloc[-1])
    usual = data.usual_of(run)

    told = words_of(pn.Column(run_page.head(run, usual)))

    row = usual.loc[METRICS["duration"].long_name]
    assert f"{row['change']} on {row['median before']}" in told
    assert " on " not in words_of(pn.Column(run_page.head(run)))


def test_beside_the_other_arm_the_baseline_is_always_a():
    first = {"baseline": "b-first", "new": "n-first"}

    assert "a=b-first&amp;b=n-2" in cause._beside(first, "new", "n-2")
    assert "a=b-2&amp;b=n-first" in cause._beside(first, "baseline", "b-2")


@pytest.mark.parametrize("state", [OPEN, DONE])
def test_a_comparison_that_still_grows_says_so(store, monkeypatch, state):
    entries = pd.DataFrame({"state": [DONE, DONE, state], "arm": ["a", "b", "a"]})
    status = Status("e1", {}, entries, pd.DataFrame(), alive=True, remaining_seconds=10.0)
    monkeypatch.setattr(compare, "read_status", lambda store, experiment: status)

    told = words_of(pn.Column(*compare._interim(store, "e1")))

    assert ("Interim, 1 run of 3 still to come" in told) is (state == OPEN)


def test_memory_is_explained_by_kind():
    kinds = pd.DataFrame(
        {"kind": ["managed"], "bytes": [2**30], "low": [2**29], "high": [2**31],
         "baseline": [2**30], "contender": [2**31]}
    )  # fmt: skip

    told = words_of(pn.Column(*cause._memory(kinds)))

    assert all(text in told for text in ("+1.00 GiB", "+512 MiB to +2.00 GiB", "2.00 GiB"))
    assert cause._memory(kinds.iloc[:0]) == []


def test_who_logged_in_signs_as_nobody_else(store, monkeypatch):
    monkeypatch.setenv(marks.MARKS_VARIABLE, "1")
    monkeypatch.setattr(type(pn.state), "user", property(lambda state: "ada"))
    form = pn.Column(*marks.mark_run(data.open_run(data.runs_table()["id"].iloc[0])))
    reason, author = form.select(pn.widgets.TextInput)
    reason.value, author.value = "broken disk", "somebody else"
    form.select(pn.widgets.Button)[0].clicks += 1

    assert [mark["by"] for mark in Store(store.path).marks() if mark["kind"] == "exclude"] == [
        "ada"
    ]
    assert author.disabled


def test_a_mark_is_about_the_series_that_is_looked_at(store, monkeypatch):
    monkeypatch.setenv(marks.MARKS_VARIABLE, "1")
    about = data.nights_of_workload(SLOWER).series.iloc[0].to_dict()
    form = pn.Column(*marks.mark_series(about, "duration"))
    reason, author, _ = form.select(pn.widgets.TextInput)
    reason.value, author.value = "wanted", "me"
    form.select(pn.widgets.Button)[0].clicks += 1

    (mark,) = Store(store.path).marks()
    where = {name: about[name] for name in SERIES_FIELDS[1:] if about[name] is not None}
    assert mark["where"] == where
    assert "scale" in mark["where"]
