"""A page keeps its state in its URL, so that a link shows the same page to another person."""

import re

import pandas as pd
import pytest
from helpers.dashboards import served
from playwright.sync_api import expect

from benchkit.formatting import ROWS_SHOWN
from benchkit.store.build.run_from_recording import run_from_recording
from validation.dashboard_server import READY, open_page, sees
from validation.history_data import SLOWER, fill
from validation.synthetic_recordings import record, segment, stacks

#: Bokeh's protocol sends header, metadata and content of a message as separate parts.
N_PARTS = 3

#: Call stacks: functions with file and line; caller, function and number of samples of each call.
FRAMES = [["sum", "", 0], ["work", "own.py", 3], ["read", "own.py", 7], ["add", "own.py", 9]]
NODES = [-1, 0, 20, 0, 1, 20, 1, 2, 15, 1, 3, 5]

ROW = ".tabulator-row .tabulator-cell[tabulator-field='{}']"
N_NIGHTS = 20

#: JavaScript that returns the data which a page holds for each file that it offers.
OFFERED = """[...Bokeh.documents[0]._all_models.values()]
  .filter(model => "_transfers" in model.properties).map(model => model.data)"""


@pytest.fixture(scope="module")
def store(tmp_path_factory, a_run):
    folder = tmp_path_factory.mktemp("addresses")
    reports = {"0": {"profile": stacks(FRAMES, NODES)}}
    run = a_run.copy()
    run["profile"] = run_from_recording(record(folder, segment(reports=reports)))["profile"]
    return fill(folder / "store", run, n_nights=N_NIGHTS)


@pytest.fixture(scope="module")
def site(store):
    with served(store.path) as url:
        yield url


def reopen(page):
    """Open the page's URL in the state in which another person would get it."""
    page.goto("about:blank")
    page.go_back()
    page.reload()
    page.wait_for_function(READY)


@pytest.mark.browser
def test_address_keeps_filters_and_order_of_runs(page, site, store):
    open_page(page, f"{site}?view=runs")
    typed = page.locator("[tabulator-field='environment'] input")
    typed.click()
    typed.press_sequentially("release")
    page.wait_for_url("**environment=release**")
    release = int((store.runs()["environment"] == "release").sum())
    sees(page, f"{release} of {len(store)} are shown. Only where environment contains 'release'.")
    page.locator(".tabulator-col[tabulator-field='duration (s)'] .tabulator-col-title").click()
    page.wait_for_url("**sort=**duration**")

    url = page.url
    n_entries = page.evaluate("history.length")
    reopen(page)
    page.wait_for_timeout(1500)  # the table reports its filter once more when it is built
    assert (page.url, page.evaluate("history.length")) == (url, n_entries + 1)
    expect(page.locator("[tabulator-field='environment'] input")).to_have_value("release")
    expect(page.locator(ROW.format("environment")).first).to_have_text("release")
    shown = page.locator(ROW.format("duration (s)")).all_inner_texts()
    assert len(shown) > 2
    descending = "sort=-" in page.url
    assert shown == sorted(shown, key=float, reverse=descending)

    expect(page.get_by_text("show all")).to_have_attribute("href", re.compile("^((?!release).)*$"))

    button = page.get_by_text(re.compile("The runs shown, as CSV")).first
    with page.expect_download() as download:
        button.click()
    saved = pd.read_csv(download.value.path())
    assert len(saved) == release
    assert set(saved["environment"]) == {"release"}

    open_page(page, f"{site}?view=runs&environment=RELEASE&outcome=ok&sort=-started")
    sees(page, "Only where environment contains 'RELEASE'. Only where outcome contains 'ok'.")
    release = set(store.runs(environment="release", outcome="ok")["id"])
    first = page.locator(".tabulator-row").first
    expect(first).to_contain_text("release")
    first.get_by_text("release").click()
    page.wait_for_url("**view=run&id=**")
    assert re.search("id=([0-9a-f-]+)", page.url).group(1) in release


@pytest.mark.browser
def test_address_keeps_page_of_runs(page, site, store):
    def shown():
        return page.locator(f"{ROW.format('open')} a").first.get_attribute("aria-label")

    open_page(page, f"{site}?view=runs")
    first = shown()
    page.locator(".tabulator-page[data-page='2']").click()
    page.wait_for_url("**page=2**")
    second = shown()
    assert second != first

    reopen(page)
    expect(page.locator(".tabulator-page.active")).to_have_text("2")
    assert shown() == second
    page.locator("[tabulator-field='workload'] input").press_sequentially("x")
    page.wait_for_url("**workload=x**")
    assert "page" not in page.url, "what is looked for begins on the first page"

    for word, where in (("999", str(-(-len(store) // ROWS_SHOWN))), ("0", "1"), ("two", "1")):
        open_page(page, f"{site}?view=runs&page={word}")
        expect(page.locator(".tabulator-page.active")).to_have_text(where)


@pytest.mark.browser
def test_address_keeps_filter_and_order_of_groups(page, site, store):
    open_page(page, f"{site}?view=run&id={store.ids()[-1]}")
    expect(page.locator(ROW.format("task group")).first).to_be_visible()
    names = page.locator(ROW.format("task group")).all_inner_texts()
    typed = page.locator("[tabulator-field='task group'] input")
    typed.click()
    typed.press_sequentially(names[-1][:6])
    page.wait_for_url("**holds=**")
    page.locator(".tabulator-col[tabulator-field='tasks'] .tabulator-col-title").click()
    page.wait_for_url("**sort=**tasks**")

    reopen(page)
    expect(page.locator("[tabulator-field='task group'] input")).to_have_value(names[-1][:6])
    left = page.locator(ROW.format("task group"))
    expect(left.first).to_contain_text(names[-1][:6])
    assert left.count() == sum(names[-1][:6].lower() in name.lower() for name in names)


@pytest.mark.browser
def test_address_keeps_call_stack_selection(page, site, store):
    open_page(page, f"{site}?view=run&id={store.ids()[-1]}&tab=stacks")
    page.get_by_label("Find").fill("read")
    page.get_by_label("Find").press("Enter")
    page.wait_for_url("**find=**")
    title = page.get_by_label(re.compile("'read' in "))
    expect(title.first).to_be_visible()
    call = page.get_by_label("As wide as the page")
    call.focus()
    call.select_option(index=call.locator("option").count() - 1)
    page.wait_for_url("**frames=**")
    wide = page.url

    reopen(page)
    assert page.url == wide
    expect(page.get_by_label("Find")).to_have_value("read")
    ends = page.evaluate(
        """() => {
          const all = [...Bokeh.documents[0]._all_models.values()];
          const flame = all.find(m => m.type === "Figure" && m.select_one?.("frames") ||
            m.type === "Figure" && m.renderers.some(r => r.data_source.name === "frames"));
          return [flame.x_range.start, flame.x_range.end];
        }"""
    )
    left, right = re.search(r"frames=([\d.]+)-([\d.]+)", wide).groups()
    assert ends == pytest.approx([float(left), float(right)])

    expect(page.get_by_label("As wide as the page")).not_to_have_value("everything")
    page.get_by_label("As wide as the page").select_option(label="everything")
    page.wait_for_url(lambda url: "frames=" not in url)
    page.get_by_label("Tasks", exact=True).select_option(index=1)
    page.wait_for_url("**prefix=**")
    # Another group has other tasks, so the choice of tasks is reset.
    page.get_by_label("Task group").select_option(index=1)
    page.wait_for_url(lambda url: "group=" in url and "prefix=" not in url)


@pytest.mark.browser
def test_overview_of_earlier_night_uses_data_until_then(page, site, store):
    open_page(page, site)
    sees(page, "regressed, new")
    earlier = page.get_by_label("Night (UTC)").locator("option").nth(10).inner_text()
    page.get_by_label("Night (UTC)").select_option(label=earlier)
    page.wait_for_url("**night=**")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Night of {earlier}")
    expect(page.get_by_text("regressed, new")).to_have_count(0)

    reopen(page)
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Night of {earlier}")
    sees(page, "that night")
    open_page(page, f"{site}?view=overview&night=1999-01-01T00:00:00")  # no such night
    expect(page.get_by_role("heading", level=1)).not_to_contain_text(earlier)
    open_page(page, f"{site}?view=follow")
    sees(page, "No experiment is running")


@pytest.mark.browser
def test_address_keeps_days_of_history(page, site):
    open_page(page, f"{site}?view=history&workload={SLOWER}&environment=main")
    axis = """[...Bokeh.documents[0]._all_models.values()].find(
      m => m.type === "Figure" && m.toolbar.tools.length > 3).x_range"""
    first, last = page.evaluate(f"[{axis}.start, {axis}.end]")
    middle = (first + last) / 2
    page.evaluate(f"{axis}.setv({{start: {middle}}})")
    page.wait_for_url("**from=**to=**")

    reopen(page)
    start, end = page.evaluate(f"[{axis}.start, {axis}.end]")
    assert start == pytest.approx(middle, abs=60_000)
    assert end == pytest.approx(last, abs=60_000)
    open_page(page, f"{site}?view=history&workload={SLOWER}&environment=main&from=x&to=1999-01-01")
    assert page.evaluate(f"[{axis}.start, {axis}.end]") == pytest.approx([first, last])


@pytest.mark.browser
def test_run_file_download_equals_stored_file(page, site, store):
    run_id = store.ids()[-1]
    open_page(page, f"{site}?view=run&id={run_id}&tab=facts")
    button = page.locator("button", has_text=f"{run_id}.nc")
    expect(button).to_be_visible()
    button.focus()
    for _ in range(2):
        with page.expect_download() as download:
            page.keyboard.press("Enter")

        with open(download.value.path(), "rb") as saved:
            assert saved.read() == store.file(run_id).read_bytes()
        page.wait_for_function(f"{OFFERED}.length > 0 && {OFFERED}.every(data => !data)")


def block_messages(page, word):
    """Block messages that contain `word`; return them, and a function that sends them."""
    blocked, servers, parts = [], [], []

    def between(browser):
        servers.append(browser.connect_to_server())
        browser.on_message(on_message)

    def on_message(part):
        parts.append(part)
        if len(parts) == N_PARTS:
            if word in parts[-1]:
                blocked.extend(parts)
            else:
                send(parts)
            parts.clear()

    def send(some):
        for part in some:
            servers[-1].send(part)

    page.route_web_socket("**/ws*", between)
    return blocked, lambda: send(blocked)


@pytest.mark.browser
def test_table_page_opens_before_document_ready(page, site):
    blocked, release = block_messages(page, "document_ready")
    page.goto(f"{site}?view=runs&page=2")
    active = page.locator(".tabulator-page.active")
    expect(active).to_be_visible()
    page.wait_for_timeout(1000)  # the table has reported that it is built
    assert blocked, "no message was blocked"
    release()
    expect(active).to_have_text("2")


@pytest.mark.browser
def test_row_opens_before_document_ready(page, site):
    blocked, _ = block_messages(page, "document_ready")
    page.goto(f"{site}?view=runs")
    page.locator(ROW.format("environment")).first.click()
    page.wait_for_url("**view=run&id=**")
    assert blocked, "the page was painted"
