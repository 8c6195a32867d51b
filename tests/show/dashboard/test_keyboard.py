"""Keyboard shortcuts of the dashboard's pages, and errors that the page frame must handle."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers.dashboards import served
from playwright.sync_api import expect

from benchkit.store.store import Store
from validation.dashboard_server import READY, open_page
from validation.history_data import SLOWER

#: JavaScript that returns the element with the focus, also inside a shadow root.
FOCUSED = """(() => {
  let element = document.activeElement;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  const label = element?.labels?.[0]?.textContent.trim();
  return label || element?.href || element?.placeholder || element?.tagName;
})()"""
#: JavaScript that takes the focus from the element that has it, as its removal does.
LEAVE = """(() => {
  let element = document.activeElement;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  element.blur();
})()"""
NO_STORAGE = """Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("blocked", "SecurityError"); }
});"""


@pytest.fixture(scope="module")
def store(twelve_nights):
    return Store(twelve_nights)


@pytest.fixture(scope="module")
def site(store):
    with served(store.path) as url:
        yield url


def press(page, *keys):
    """Press keys in sequence; return the element that has the focus afterwards."""
    for key in keys:
        page.keyboard.press(key)
    return page.evaluate(FOCUSED)


def press_until_focus(page, key):
    """Press a key until an element keeps the focus: Tabulator redraws its rows at any time."""
    for _ in range(50):
        if (element := press(page, key)) != "BODY":
            break
        page.wait_for_timeout(100)
    return element


@pytest.mark.browser
def test_keys_of_overview(page, site):
    open_page(page, f"{site}?view=overview")
    page.locator("tbody tr a[href]").nth(2).wait_for()
    links = page.locator("tbody tr").evaluate_all(
        "rows => rows.map(r => r.querySelector('a').href)"
    )

    assert press(page, "j") == links[0]
    assert press(page, "j", "j") == links[2]
    assert press(page, "k") == links[1]
    assert press(page, "k", "k") == links[0], "there is none before the first"
    assert press(page, "Control+m") == links[0], "a key of the browser"
    assert press(page, "m") == "Metric"
    assert press(page, "j") == "Metric", "in a field a letter is a letter"
    assert press(page, "Escape", "/") == "Find"
    page.keyboard.type("jm")
    expect(page.get_by_label("Find")).to_have_value("jm")
    assert press(page, "Escape") == "BODY"


@pytest.mark.browser
def test_brackets_change_night(page, site):
    open_page(page, f"{site}?view=overview")
    title, nights = page.get_by_role("heading", level=1), page.get_by_label("Night (UTC)")
    last, before = (nights.locator("option").nth(place).inner_text() for place in (0, 1))

    press(page, "]")  # no night after the last
    press(page, "[")
    expect(title).to_contain_text(before)
    page.wait_for_url("**night=**")
    press(page, "]")
    expect(title).to_contain_text(last)


@pytest.mark.browser
def test_keys_of_runs_list(page, site):
    open_page(page, f"{site}?view=runs")
    # Tabulator draws its rows after the page is complete.
    page.locator(".tabulator-row a[href]").nth(1).wait_for()

    assert press(page, "/") == "filter"
    press(page, "Escape")
    first = press_until_focus(page, "j")
    assert "view=run&id=" in first
    second = press_until_focus(page, "j")
    assert second != first
    before = press_until_focus(page, "k")
    assert before != second
    page.evaluate(LEAVE)
    after = press_until_focus(page, "j")
    assert after != before, "continues where a redraw removed the focus"
    page.wait_for_timeout(500)  # for the last redraw
    last = press_until_focus(page, "j")
    page.keyboard.press("Enter")
    page.wait_for_url(last)


@pytest.mark.browser
def test_escape_shows_whole_run(page, site, store):
    open_page(page, f"{site}?view=run&id={store.ids()[-1]}&from=0.1&to=0.2")
    whole = page.get_by_role("button", name="Whole run")
    expect(whole).to_be_enabled()

    page.get_by_label("From (s)").focus()
    press(page, "Escape")
    page.wait_for_timeout(800)
    assert "from=" in page.url, "it has left the field"
    press(page, "Escape")
    page.wait_for_url(lambda url: "from=" not in url)
    expect(whole).to_be_disabled()


@pytest.mark.browser
def test_shortcut_dialog_lists_and_disables_keys(page, site):
    open_page(page, f"{site}?view=overview")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    page.locator("tbody tr a[href]").first.wait_for()

    press(page, "?")
    expect(dialog).to_be_visible()
    keys = [*"/jk", "Enter", "m", "[", "]", "Esc", "Esc", "?"]
    assert dialog.locator("kbd").all_inner_texts() == keys
    absent = dialog.get_by_text("(not on this page)").all_inner_texts()
    assert absent == ["show the whole run (not on this page)"]
    assert Axe().run(page).response["violations"] == []
    page.emulate_media(color_scheme="dark")
    assert Axe().run(page).response["violations"] == []
    press(page, "Escape")
    expect(dialog).to_be_hidden()

    page.get_by_role("button", name="Keyboard shortcuts").click()
    dialog.get_by_role("checkbox").uncheck()
    dialog.get_by_role("button", name="Close").click()
    page.evaluate("document.activeElement.blur()")
    assert press(page, "m") == "BODY"
    page.reload()
    page.wait_for_function(READY)
    assert press(page, "m") == "BODY"

    open_page(page, f"{site}?view=compare")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(dialog.get_by_text("previous night (not on this page)")).to_be_visible()


@pytest.mark.browser
def test_back_reloads_but_fragment_link_does_not(page, site):
    open_page(page, f"{site}?view=overview")
    page.evaluate("window.same = true")
    page.get_by_role("link", name="Skip to content").press("Enter")
    page.wait_for_url("**#main")
    page.wait_for_timeout(500)
    assert page.evaluate("window.same")

    page.get_by_label("Find").fill("vorticity")
    page.get_by_label("Find").press("Enter")
    page.wait_for_url("**find=vorticity**")
    page.go_back()
    page.wait_for_function(f"!window.same && {READY}")
    expect(page.get_by_label("Find")).to_have_value("")


@pytest.mark.browser
def test_page_works_without_local_storage(page, site):
    page.add_init_script(NO_STORAGE)

    open_page(page, f"{site}?view=overview&find={SLOWER.partition('[')[0]}")

    page.get_by_role("button", name=re.compile("light and dark")).click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_page_title_names_content(page, site, store):
    run_id, workload = store.runs().iloc[-1][["id", "workload"]]

    open_page(page, f"{site}?view=run&id={run_id}")
    expect(page).to_have_title(f"{workload} · Run {run_id[:13]} · benchkit")
    open_page(page, f"{site}?view=history&workload={SLOWER}&environment=main")
    expect(page).to_have_title(f"{SLOWER} · History main · benchkit")


@pytest.mark.browser
def test_missing_connection_shows_reasons(browser, site):
    page = browser.new_page()  # Bokeh logs the error to the console
    page.route_web_socket("**/ws*", lambda socket: socket.close())

    page.goto(site)

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("No connection to the server")
    expect(alert).to_contain_text(f"--allow-websocket-origin {site.split('/')[2]}")
    page.close()


@pytest.mark.browser
def test_stopped_server_shows_alert(browser, store):
    page = browser.new_page()  # styles may still be loading
    with served(store.path) as url:
        open_page(page, url)
        expect(page.get_by_role("alert")).to_be_empty()

    expect(page.get_by_role("alert")).to_contain_text("Connection lost")
    expect(page.get_by_role("button", name="Reload")).to_be_visible()
    page.close()
