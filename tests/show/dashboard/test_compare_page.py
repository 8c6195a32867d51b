"""Page that compares the arms of an experiment or two selections."""

import re

import pandas as pd
import panel as pn
import pytest
from helpers.dashboards import served
from playwright.sync_api import expect

from benchkit.experiment.run.status import DONE, OPEN, Status
from benchkit.measure.run_ids import new_id
from benchkit.show.dashboard import compare as compare_page
from benchkit.show.dashboard.compare import EXAMPLES
from benchkit.show.render.panel import guard
from benchkit.store.filters import parse_selection
from benchkit.store.store import Store
from validation.dashboard_server import READY, open_page, sees, text_of, wait_for_plots, with_record

#: Mean and peak of memory, and the processes with a part of the work that is judged.
HIDDEN = re.compile("Hidden by the filters: [3-5] same")

#: JavaScript that returns the position of the first glyph of the first source with a column.
PLACE = """([name, column]) => {
  for (const figure of Bokeh.documents[0]._all_models.values()) {
    if (figure.type !== "Figure") continue;
    for (const { data_source: source } of figure.renderers) {
      if (source.name !== name || !source.data[column]) continue;
      const view = Bokeh.index.find_one(figure), { x_scale, y_scale } = view.frame;
      const box = view.canvas_view.el.getBoundingClientRect();
      const y = source.data.y ? source.data.y[0] : source.data.label[0];
      return [box.x + x_scale.compute(source.data[column][0]), box.y + y_scale.compute(y)];
    }
  }
}"""


@pytest.mark.browser
def test_compare_page_lists_and_compares_experiment(page, tmp_path, artifacts, a_run):
    store = Store(tmp_path / "store")
    for block in range(3):
        for arm, factor in (("main", 1.0), ("new", 1.5), ("null", 1.01)):
            duration = 10.0 * factor * (1 + 0.01 * block)
            facts = {"experiment": "e1", "arm": arm, "block": block, "order": block * 3}
            run = with_record(a_run, id=new_id(), duration=duration, **facts)
            run["duration"] = run["duration"] * 0 + duration
            del run.attrs["duration"]
            store.add(run)
    with served(store.path, page=page) as url:
        page.goto(url)
        page.get_by_role("link", name="Compare", exact=True).click()
        row = page.locator("tbody tr").first
        expect(row.get_by_role("link", name="new against main")).to_be_visible()
        # Without the start, and the number of disturbed runs, if there are any.
        assert row.locator("td").all_inner_texts()[1:5] == ["new against main", "1", "9", "0"]
        page.get_by_role("link", name="new against main").click()
        page.wait_for_url("**experiment=e1")
        page.wait_for_function(READY)
        sees(page, "▲ slower")
        sees(page, "What differs between main and new?")
        wait_for_plots(page, 3)
        sees(page, "± 1.0 %")  # the noise of one run
        page.screenshot(path=artifacts / "dashboard-compare.png", full_page=True)

        page.get_by_label("Metric", exact=True).select_option(label="wall time of the workload")
        page.wait_for_url("**metric=duration**")
        expect(page.get_by_text(HIDDEN)).to_be_visible()
        page.goto(f"{url}?view=compare&experiment=e1&metric=memory_peak")
        page.wait_for_function(READY)
        sees(page, "Where did the time of tests.sum in new go?")
        page.get_by_label("Metric", exact=True).select_option(label="time and memory")
        expect(page.get_by_text("Hidden by the filters")).to_have_count(0)
        page.get_by_label("Verdict").select_option(label="worse (1)")
        page.wait_for_url("**verdict=worse**")
        expect(page.get_by_text(HIDDEN)).to_be_visible()
        page.get_by_label("Find").fill("nowhere")
        page.get_by_label("Find").press("Enter")
        sees(page, "No row matches the filters.")
        page.goto(f"{url}?view=compare&experiment=e1&verdict=same&category=tests&metric=cpu_time")
        page.wait_for_function(READY)
        expect(page.get_by_label("Verdict")).to_have_value(re.compile("^same"))
        expect(page.get_by_label("Metric", exact=True)).to_have_value(
            "CPU seconds of the workers' processes"
        )
        page.goto(f"{url}?view=compare&baseline=arm%3Amain&contender=arm%3Anew")
        page.wait_for_function(READY)
        sees(page, "What differs between arm:main and arm:new?")

        # A click on a change opens its cause, a click on a dot its run.
        page.goto(f"{url}?view=compare&experiment=e1&metric=duration&order=noise")
        page.wait_for_function(READY)
        page.get_by_role("link", name="tests.sum").first.click()
        page.wait_for_url("**workload=tests.sum**")
        assert "order=noise" in page.url
        page.go_back()
        page.wait_for_function(READY)
        wait_for_plots(page, 2)
        page.get_by_text("What did each run measure?").scroll_into_view_if_needed()
        page.mouse.click(*page.evaluate(PLACE, ["runs", "x"]))
        page.wait_for_url("**view=run&id=**")
        page.goto(f"{url}?view=compare&baseline=arm%3Amain&contender=arm%3Anew")
        page.wait_for_function(READY)

        # Follow the links from a row to its cause, and to the task group in the runs of both arms.
        page.get_by_role("link", name="tests.sum").first.click()
        page.wait_for_url("**workload=tests.sum**")
        sees(page, "Which runs are these?")
        page.screenshot(path=artifacts / "dashboard-cause.png", full_page=True)
        page.locator("tbody a[href*='view=run&id']:not([href*='group'])").first.click()
        page.wait_for_url("**view=run**")
        page.go_back()
        page.get_by_role("link", name=re.compile("in A$")).first.click()
        page.wait_for_url("**view=run**group=**")
        page.go_back()
        page.get_by_role("link", name=re.compile("in both$")).first.click()
        page.wait_for_url("**view=pair**group=**")
        page.wait_for_function(READY)
        page.goto(f"{url}?view=compare&experiment=e1&workload=no.such")
        sees(page, "This cannot be explained")
        itself = "baseline=arm%3Amain&contender=arm%3Amain"
        page.goto(f"{url}?view=compare&{itself}&workload=tests.sum")
        sees(page, "arm:main and arm:main are the same 3 runs")
        page.goto(f"{url}?view=compare&experiment=e1&arm=unknown")  # meaningless keys here
        sees(page, "▲ slower")
        page.goto(f"{url}?view=compare&experiment=nothing")
        sees(page, "This cannot be compared")


@pytest.mark.browser
def test_compare_form_opens_two_selections(page, running_site):
    open_page(page, f"{running_site}?view=compare")
    for label, example in zip(("Baseline", "Contender"), EXAMPLES, strict=True):
        assert page.get_by_label(label).get_attribute("placeholder") == example
        assert parse_selection(example)["environment"] == "main"
    page.get_by_label("Baseline").fill("environment:main")
    page.get_by_label("Contender").fill("environment:unknown")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(lambda url: "contender=environment%3Aunknown" in url)
    page.wait_for_function(READY)
    sees(page, "This cannot be compared")


def test_failed_part_becomes_error_message():
    def damaged():
        raise KeyError("<b>group</b>")

    message = guard(damaged, "The causes cannot be shown")

    assert guard(lambda: 3, "The differences cannot be shown") == 3
    assert "The causes cannot be shown" in message.object
    assert "KeyError" in message.object
    assert "<b>group" not in message.object


@pytest.mark.parametrize("state", [OPEN, DONE])
def test_unfinished_comparison_is_marked_interim(nightly_store, monkeypatch, state):
    entries = pd.DataFrame({"state": [DONE, DONE, state], "arm": ["a", "b", "a"]})
    status = Status("e1", {}, entries, pd.DataFrame(), alive=True, remaining_seconds=10.0)
    monkeypatch.setattr(compare_page, "read_status", lambda store, experiment: status)

    text = text_of(pn.Column(*compare_page._interim(nightly_store, "e1")))

    assert ("Interim, 1 run of 3 still missing" in text) is (state == OPEN)
