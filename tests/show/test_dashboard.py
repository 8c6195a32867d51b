"""The dashboard in a real browser, with real runs, a hostile one, and one of a million tasks."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr
from helpers.dashboard_server import HOSTILE, READY, many_tasks, sees, served, with_record
from playwright.sync_api import expect

import benchkit.show.dashboard
from benchkit.measure.run_ids import new_id
from benchkit.store.store import Store

FOLDER = Path(benchkit.show.dashboard.__file__).parent


@pytest.fixture(scope="module")
def ids(a_run):
    return {
        "real": a_run.attrs["id"],
        **{name: new_id() for name in ("hostile", "failed", "broken")},
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory, a_run, ids):
    store = Store(tmp_path_factory.mktemp("dashboard") / "store")
    store.add(a_run)
    hostile = with_record(
        a_run,
        id=ids["hostile"],
        workload=HOSTILE,
        environment=HOSTILE,
        host=HOSTILE,
        outcome="failed",
        error=HOSTILE,
        tags=json.dumps({HOSTILE: HOSTILE, "quote": "\"'"}),
    )
    hostile.attrs |= {"traceback": HOSTILE, "source": HOSTILE, "logs": json.dumps({"w": [HOSTILE]})}
    names = [f"{HOSTILE}{i}" for i in range(hostile["task_groups"].sizes["task_group"])]
    groups = hostile["task_groups"].to_dataset()
    hostile["task_groups"] = xr.DataTree(groups.assign_coords(task_group=("task_group", names)))
    store.add(hostile)
    failed = with_record(a_run, id=ids["failed"], outcome="failed", error="ValueError: no")
    for name in list(failed.children):
        del failed[name]
    store.add(failed)
    store.add(with_record(a_run, id=ids["broken"]))
    (file,) = Path(store.path).rglob(f"{ids['broken']}.nc")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:2000])
    with served(store.path) as url:
        yield url


def draws(page, least):
    """Wait until at least `least` canvases have been drawn on."""
    ink = """least => {
      const canvases = [];
      const search = root => { for (const one of root.querySelectorAll("*")) {
        if (one.tagName === "CANVAS") canvases.push(one);
        if (one.shadowRoot) search(one.shadowRoot); } };
      search(document);
      return canvases.filter(({width, height}, at) => {
        if (!width || !height) return false;
        const data = canvases[at].getContext("2d").getImageData(0, 0, width, height).data;
        let n = 0; for (let i = 3; i < data.length; i += 4) n += data[i] > 0;
        return n > 500; }).length >= least; }"""
    page.wait_for_function(ink, arg=least)


@pytest.mark.browser
def test_from_the_list_a_click_leads_to_a_run_with_its_plots(page, site, ids, artifacts):
    page.goto(site)
    page.wait_for_function(READY)
    sees(page, "4 runs")
    sees(page, "2 failed")
    page.screenshot(path=artifacts / "dashboard-runs.png")

    page.locator(f'a[href*="&id={ids["real"]}"]').click()
    page.wait_for_url(f"**id={ids['real']}*")
    page.wait_for_function(READY)

    sees(page, "tests.sum")
    draws(page, 3)
    page.screenshot(path=artifacts / "dashboard-run.png", full_page=True)

    page.get_by_text("Tasks", exact=True).click()
    page.wait_for_url("**tab=tasks")
    draws(page, 1)
    page.screenshot(path=artifacts / "dashboard-tasks.png", full_page=True)

    page.go_back()
    page.wait_for_url(lambda url: "tab=tasks" not in url)
    page.wait_for_function(READY)
    draws(page, 3)


@pytest.mark.browser
def test_a_filter_narrows_the_list(page, site):
    page.goto(site)
    page.wait_for_function(READY)
    field = page.locator(".tabulator-col[tabulator-field=outcome] input")
    field.click()
    field.press_sequentially("failed")

    expect(page.locator(".tabulator-row")).to_have_count(2)


@pytest.mark.browser
@pytest.mark.parametrize(
    "tab", ["overview", "tasks", "stacks", "transfers", "machines", "trouble", "facts"]
)
def test_a_link_opens_the_tab_and_hostile_text_stays_text(page, site, ids, tab):
    page.goto(f"{site}?view=run&id={ids['hostile']}&tab={tab}")
    page.wait_for_function(READY)

    sees(page, "<script>")
    assert page.evaluate("window.hacked") is None


@pytest.mark.browser
def test_the_list_shows_hostile_text_as_text(page, site):
    page.goto(site)
    page.wait_for_function(READY)

    sees(page, "window.hacked")
    assert page.evaluate("window.hacked") is None


@pytest.mark.browser
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?view=nothing", "There is no such page"),
        ("?view=run&id=00000000-0000", "This run cannot be shown"),
        ("?view=run&id=../../etc/passwd", "This run cannot be shown"),
        ("?view=run&id={real}&tab=nothing", "wall time"),
    ],
)
def test_a_wrong_address_is_a_page_that_says_so(page, site, ids, query, text):
    page.goto(site + query.format(**ids))
    page.wait_for_function(READY)

    sees(page, text)


@pytest.mark.browser
def test_a_broken_run_and_one_without_records_are_pages_that_say_so(page, site, ids, artifacts):
    page.goto(f"{site}?view=run&id={ids['broken']}")
    page.wait_for_function(READY)
    sees(page, "This run cannot be shown")

    page.goto(f"{site}?view=run&id={ids['failed']}")
    page.wait_for_function(READY)
    sees(page, "ValueError: no")
    page.screenshot(path=artifacts / "dashboard-failed.png")


#: JavaScript that returns the y position of the first row of each figure with rows, in pixels.
PLACES = """() => [...Bokeh.documents[0]._all_models.values()]
  .filter(m => m.type === "Figure" && m.y_range.type === "FactorRange"
               && m.renderers.some(r => ["rows", "runs"].includes(r.data_source.name)))
  .map(m => {
    const view = Bokeh.index.find_one(m), box = view.canvas_view.el.getBoundingClientRect();
    return box.y + view.frame.y_scale.compute(m.y_range.factors[0]);
  })"""
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
def test_an_experiment_is_found_in_the_list_and_compared(page, tmp_path, artifacts, a_run):
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
        page.get_by_role("link", name="Compare").click()
        sees(page, "main, new, null: 1 workload, 9 runs")
        page.get_by_role("link", name="main, new, null").click()
        page.wait_for_url("**experiment=e1")
        page.wait_for_function(READY)
        sees(page, "▲ slower")
        sees(page, "What differs between main and new")
        draws(page, 3)
        sees(page, "± 1.0 %")  # the noise of one run
        page.screenshot(path=artifacts / "dashboard-compare.png", full_page=True)

        page.get_by_label("Metric").select_option(label="wall time of the workload")
        page.wait_for_url("**metric=duration**")
        sees(page, "Hidden by the filters: 2 same.")
        page.goto(f"{url}?view=compare&experiment=e1&metric=memory_peak")
        page.wait_for_function(READY)
        sees(page, "tests.sum in new")  # the cause of the longer time, for any metric
        page.get_by_label("Metric").select_option(label="time and memory")
        expect(page.get_by_text("Hidden by the filters")).to_have_count(0)
        page.get_by_label("Verdict").select_option(label="worse (1)")
        page.wait_for_url("**verdict=worse**")
        sees(page, "Hidden by the filters: 2 same.")
        page.get_by_label("Find").fill("nowhere")
        page.get_by_label("Find").press("Enter")
        sees(page, "No row matches the filters.")
        page.goto(f"{url}?view=compare&experiment=e1&verdict=same&category=tests&metric=cpu_time")
        page.wait_for_function(READY)
        expect(page.get_by_label("Verdict")).to_have_value(re.compile("^same"))
        expect(page.get_by_label("Metric")).to_have_value("CPU seconds of the workers' processes")
        page.goto(f"{url}?view=compare&baseline=arm%3Amain&contender=arm%3Anew")
        page.wait_for_function(READY)
        sees(page, "What differs between arm:main and arm:new")

        # Rows are aligned in all three figures; a click on a change opens its cause, a click on a
        # dot its run.
        page.goto(f"{url}?view=compare&experiment=e1&metric=duration&order=noise")
        page.wait_for_function(READY)
        tops = page.evaluate(PLACES)
        assert len(tops) == 3
        assert max(tops) - min(tops) < 1
        page.mouse.click(*page.evaluate(PLACE, ["rows", "change"]))
        page.wait_for_url("**workload=tests.sum**")
        assert "order=noise" in page.url
        page.go_back()
        page.wait_for_function(READY)
        page.mouse.click(*page.evaluate(PLACE, ["runs", "x"]))
        page.wait_for_url("**view=run&id=**")
        page.goto(f"{url}?view=compare&baseline=arm%3Amain&contender=arm%3Anew")
        page.wait_for_function(READY)

        # Follow the links from a row to its cause, and to the task group in the runs of both arms.
        page.get_by_role("link", name="tests.sum").first.click()
        page.wait_for_url("**workload=tests.sum**")
        sees(page, "Runs of both")
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
        sees(page, "This cannot be explained")
        page.goto(f"{url}?view=compare&experiment=e1&arm=nobody")  # meaningless keys here
        sees(page, "▲ slower")
        page.goto(f"{url}?view=compare&experiment=nothing")
        sees(page, "This cannot be compared")


@pytest.mark.browser
def test_the_dark_look_follows_the_system_and_the_button(browser, site, artifacts):
    context = browser.new_context(color_scheme="dark", viewport={"width": 1300, "height": 900})
    page = context.new_page()
    page.goto(f"{site}?view=run")
    page.wait_for_function(READY)
    ground = "getComputedStyle(document.body).backgroundColor"

    dark = page.evaluate(ground)
    page.screenshot(path=artifacts / "dashboard-dark.png")
    page.get_by_role("button", name="Switch between light and dark").click()
    light = page.evaluate(ground)
    page.reload()

    assert (dark, light) == ("rgb(23, 28, 33)", "rgb(255, 255, 255)")
    assert page.evaluate(ground) == light
    context.close()


@pytest.mark.browser
def test_an_empty_store_names_the_command_that_fills_it(page, tmp_path, artifacts, a_run):
    store = Store(tmp_path / "store")
    run_id = store.add(a_run)
    (file,) = Path(store.path).rglob(f"{run_id}.nc")
    file.unlink()
    for cached in Path(store.path, "index").rglob("*.json"):
        cached.unlink()
    with served(store.path, page=page) as url:
        page.goto(url)
        page.wait_for_function(READY)
        sees(page, "benchkit run -k tag:quick")
        page.screenshot(path=artifacts / "dashboard-empty.png")


@pytest.mark.browser
@pytest.mark.slow
def test_a_million_tasks_are_drawn_and_zoomed_to_rectangles(page, tmp_path, artifacts, a_run):
    store = Store(tmp_path / "store")
    run_id = store.add(many_tasks(a_run))
    with served(store.path, page=page) as url:
        page.goto(f"{url}?view=run&id={run_id}&tab=tasks")
        page.wait_for_function(f"{TITLES}.includes('1 000 000 tasks')")
        draws(page, 1)
        page.screenshot(path=artifacts / "dashboard-million.png")

        page.mouse.move(600, 500)
        for _ in range(17):  # each wheel step zooms to two thirds of the time
            page.mouse.wheel(0, -200)
            page.wait_for_timeout(30)
        page.wait_for_function(f"{RECTANGLES} > 100")
        assert page.evaluate(RECTANGLES) <= 4000
        page.screenshot(path=artifacts / "dashboard-million-zoomed.png")


_ALL = "[...(window.Bokeh?.documents[0]?._all_models.values() ?? [])]"
TITLES = f"{_ALL}.filter(m => m.type === 'Title').map(m => m.text).join('|')"
RECTANGLES = f"""Math.max(...{_ALL}.filter(m => m.type === 'ColumnDataSource' && m.data.left)
    .map(m => m.data.left.length))"""


@pytest.mark.browser
def test_panel_serve_starts_the_same_app(page, tmp_path, a_run):
    store = Store(tmp_path / "store")
    store.add(a_run)
    with __import__("socket").socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "panel", "serve", str(FOLDER / "app.py")),
            *("--port", str(port), "--allow-websocket-origin", f"127.0.0.1:{port}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BENCHKIT_STORE": store.path, "BOKEH_RESOURCES": "server"},
    )
    try:
        for line in server.stderr:
            if "running at" in line:
                break
        page.goto(f"http://127.0.0.1:{port}/app?view=run")
        page.wait_for_function(READY)
        sees(page, "tests.sum")
    finally:
        server.terminate()
        server.wait(10)


def test_a_store_that_is_not_there_is_refused_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchkit", "dashboard", "--store", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--allow-websocket-origin", "*", "--address", "0.0.0.0"], "name the hosts"),
        (["--allow-websocket-origin", "*:5006"], "'*:5006' lets any web page read"),
        (["--basic-auth", "nowhere.json"], "no such file of users"),
        (["--follow", "nosuch"], "experiment 'nosuch': no experiment of that id"),
    ],
)
def test_options_that_cannot_be_served_are_refused(tmp_path, a_run, options, message):
    from click.testing import CliRunner

    from benchkit.cli.main import benchkit as command

    Store(tmp_path / "s").add(a_run)
    done = CliRunner().invoke(command, ["dashboard", "--store", str(tmp_path / "s"), *options])

    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_only_one_module_makes_markup(path):
    """Allow Panel panes that can render HTML in `parts` only, which escapes their text."""
    tree = ast.parse(path.read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    forbidden = {"HTML", "Markdown", "Str", "Alert", "StaticText", "TooltipIcon", "Card"}

    assert not names & forbidden or path.name == "parts.py"
