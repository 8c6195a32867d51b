"""Page of a run in a browser: window, task group, tabs and files."""

import html
import json
import re
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pytest
from helpers.dashboards import served
from helpers.running_experiment import EXPERIMENT
from playwright.sync_api import expect

from benchkit.show.dashboard.state import cache, nights
from benchkit.show.dashboard.state.url import href
from benchkit.show.pages import run as run_page
from benchkit.show.render.html import content_markup, head_markup
from benchkit.store.schema import METRICS
from benchkit.store.store import Store
from validation.dashboard_server import (
    HOSTILE,
    READY,
    brush,
    many_tasks,
    open_page,
    sees,
    wait_for_plots,
    zoom,
)
from validation.graph_runs import MadeTask, graph_run
from validation.history_data import SLOWER
from validation.synthetic_recordings import ON

ROW = ".tabulator-row .tabulator-cell[tabulator-field='task group']"


def total_seconds(page):
    """Add up the thread-seconds of the groups that the table shows."""
    cells = page.locator(".tabulator-cell[tabulator-field='total (s)']").all_inner_texts()
    return sum(float(text.replace(",", "")) for text in cells)


def back(page, gone):
    page.go_back()
    page.wait_for_url(lambda url: gone not in url)
    page.wait_for_load_state()
    page.wait_for_function(READY)


@pytest.mark.browser
@pytest.mark.slow
def test_run_page_keeps_window_and_group_in_address(page, running_site, running_store, artifacts):
    run_id = running_store.ids()[0]
    open_page(page, f"{running_site}?view=run&id={run_id}")
    sees(page, "The whole run,")
    expect(page.locator(ROW).first).to_be_visible()
    whole = total_seconds(page)

    brush(page, "Where was the cluster's memory?")
    sees(page, " to ")
    assert 0 <= total_seconds(page) < whole
    text = page.get_by_text(re.compile(r" s of .* s: ")).inner_text()

    page.reload()
    page.wait_for_function(READY)
    expect(page.get_by_text(text)).to_be_visible()
    page.get_by_label("Memory of").select_option("worker 1")
    page.wait_for_url("**worker=*")
    page.get_by_role("button", name="Whole run").click()
    page.wait_for_url(lambda url: "from=" not in url)
    brush(page, "What were threads busy with?")

    page.get_by_label("Task group").select_option(index=1)
    page.wait_for_url("**group=*")
    assert "from=" in page.url
    page.screenshot(path=artifacts / "dashboard-window.png", full_page=True)
    page.get_by_role("link", name="its tasks").click()
    page.wait_for_url("**tab=tasks**")
    expect(page.get_by_label(re.compile("What did each thread do"))).to_be_visible()
    assert "group=" in page.url
    page.screenshot(path=artifacts / "dashboard-group.png", full_page=True)
    back(page, "tab=tasks")
    assert "group=" in page.url
    back(page, "group=")
    assert "from=" in page.url


@pytest.mark.browser
def test_click_on_sorted_row_selects_its_group(page, running_site, running_store):
    open_page(page, f"{running_site}?view=run&id={running_store.ids()[0]}")
    page.locator(".tabulator-col[tabulator-field='total (s)'] .tabulator-col-title").click()
    page.wait_for_timeout(1500)
    name = page.locator(ROW).nth(0).inner_text()

    page.locator(ROW).nth(0).click()

    page.wait_for_url("**group=*")
    expect(page.locator("p b").first).to_be_visible()
    sees(page, "its tasks")
    assert page.locator("p b").all_inner_texts()[-1] == name

    page.get_by_role("link", name="its call stacks").click()
    page.wait_for_url("**tab=stacks**")
    page.get_by_role("link", name="its transfers").click()
    page.wait_for_url("**tab=transfers**")
    sees(page, "Fetched for")
    assert "group=" in page.url


@pytest.mark.browser
def test_artifact_is_downloaded_not_displayed(page, own_site, own_store):
    run_id = own_store.ids()[0]
    folder = Path(own_store.path, "experiments", EXPERIMENT, "extras", run_id)
    folder.mkdir(parents=True)
    (folder / "performance-report.html").write_text(HOSTILE)
    (folder / "<img src=x onerror=window.hacked=1>.txt").write_text("x")

    open_page(page, f"{own_site}?view=run&id={run_id}&tab=facts")
    link = page.get_by_text(re.compile("^(Download )?performance-report.html"))
    with page.expect_download() as download:
        link.first.click()

    assert Path(download.value.path()).read_text() == HOSTILE


@pytest.mark.browser
@pytest.mark.slow
def test_tabs_and_window_work_with_keyboard(page, running_site, running_store):
    open_page(page, f"{running_site}?view=run&id={running_store.ids()[0]}")
    sees(page, "The whole run,")
    page.locator(".bk-tab", has_text="Overview").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label(re.compile("What did each thread do"))).to_be_visible()

    first = page.get_by_label("From (s)")
    whole = float(first.input_value())
    first.fill(str(whole + 1))
    first.press("Enter")
    page.wait_for_url(lambda url: "from=" in url and "tab=tasks" in url)
    first.fill("1e9")  # after the end
    first.press("Enter")
    expect(first).to_have_value(f"{whole + 1:.3f}")


@pytest.mark.browser
def test_longest_tasks_show_keys(page, running_site, running_store):
    run_id = running_store.ids()[0]
    run = running_store.open(run_id)
    frame = run.task_stream()
    frame["key"] = run.task_keys()
    tasks = frame[frame["duration"].notna()]
    tasks = tasks[tasks["task_group"] == tasks["task_group"].iloc[0]]
    group = str(tasks["task_group"].iloc[0])
    longest = tasks.sort_values("duration", kind="stable").iloc[-1]
    assert run.task_keys(frame.index[:3].to_numpy()) == list(frame["key"][:3])

    open_page(page, f"{running_site}?view=run&id={run_id}&tab=tasks&group={quote(group)}")
    sees(page, "The longest")
    row = page.locator("tr", has=page.locator("td[data-label='key']")).first
    expect(row).to_contain_text(str(longest["key"]))
    expect(row).to_contain_text(f"{longest['duration']:.4f}")


_ALL = "[...(window.Bokeh?.documents[0]?._all_models.values() ?? [])]"
TITLES = f"{_ALL}.filter(m => m.type === 'Title').map(m => m.text).join('|')"
RECTANGLES = f"""Math.max(...{_ALL}.filter(m => m.type === 'ColumnDataSource' && m.data.left)
    .map(m => m.data.left.length))"""


@pytest.mark.browser
@pytest.mark.slow
def test_task_stream_zooms_a_million_tasks(page, tmp_path, artifacts, a_run):
    store = Store(tmp_path / "running_store")
    run_id = store.add(many_tasks(a_run))
    with served(store.path, page=page) as url:
        page.goto(f"{url}?view=run&id={run_id}&tab=tasks")
        page.wait_for_function(f"{TITLES}.includes('1,000,000 tasks')")
        wait_for_plots(page, 1)
        page.screenshot(path=artifacts / "dashboard-million.png")

        zoom(page, "What did each thread do?", f"{RECTANGLES} > 100")
        assert page.evaluate(RECTANGLES) <= 4000
        page.screenshot(path=artifacts / "dashboard-million-zoomed.png")


def test_run_head_shows_usual_values(nightly_store):
    data = cache.load_run(nights.nights_of_workload(SLOWER).runs["id"].iloc[-1])

    text = head_markup(run_page.page(data, {}))

    row = data.baseline.loc[METRICS["duration"].long_name]
    assert f"{row['change']} on {row['median before']}" in text
    alone = run_page.RunData(data.run, data.timeline)
    assert row["change"] not in head_markup(run_page.page(alone, {}))


def test_conclusion_links_findings_to_their_window(tmp_path):
    stack = "parse (x.py:1)\nread (y.py:2)"
    message = json.dumps({"seconds": 0.8, "stack": stack})
    tasks = [MadeTask("work-0", 1.2, 2.5)]
    run = graph_run(tmp_path, tasks, duration=2.5, events=[[ON + 1.0, "loop-blocked", -1, message]])
    page = run_page.page(run_page.RunData.read(run), {})

    sentences, findings, *_ = page["limits"].contents()

    assert "Of 2.50 s, " in sentences[0].text
    text = html.unescape(content_markup(findings, href))
    link = re.search(r"<a [^>]*href=[\"'](.*?)[\"'][^>]*>(.*?)</a>", text)
    assert link, text
    assert link[2] == "the scheduler's event loop was blocked"
    keys = dict(parse_qsl(link[1]))
    assert (keys["tab"], keys["from"], keys["to"]) == ("tasks", "0.2", "1"), link[1]
