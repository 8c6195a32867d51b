"""Dashboard in a browser: navigation, errors, hostile text, themes, and `panel serve`."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr
from helpers.dashboards import served
from helpers.nginx import free_port
from playwright.sync_api import expect

import benchkit.show.dashboard
from benchkit.measure.run_ids import new_id
from benchkit.store.store import Store
from validation.dashboard_server import HOSTILE, READY, sees, wait_for_plots, with_record

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


@pytest.mark.browser
def test_runs_list_opens_run_with_plots(page, site, ids, artifacts):
    page.goto(site)
    page.wait_for_function(READY)
    sees(page, "4 runs")
    sees(page, "2 failed")
    page.screenshot(path=artifacts / "dashboard-runs.png")

    page.locator(f'a[href*="&id={ids["real"]}"]').click()
    page.wait_for_url(f"**id={ids['real']}*")
    page.wait_for_function(READY)

    sees(page, "tests.sum")
    wait_for_plots(page, 3)
    page.screenshot(path=artifacts / "dashboard-run.png", full_page=True)

    page.get_by_text("Tasks", exact=True).click()
    page.wait_for_url("**tab=tasks")
    wait_for_plots(page, 1)
    page.screenshot(path=artifacts / "dashboard-tasks.png", full_page=True)

    page.go_back()
    page.wait_for_url(lambda url: "tab=tasks" not in url)
    page.wait_for_function(READY)
    wait_for_plots(page, 3)


@pytest.mark.browser
def test_runs_list_filter(page, site):
    page.goto(site)
    page.wait_for_function(READY)
    field = page.locator(".tabulator-col[tabulator-field=outcome] input")
    field.click()
    field.press_sequentially("failed")

    expect(page.locator(".tabulator-row")).to_have_count(2)


@pytest.mark.browser
@pytest.mark.parametrize("tab", ["overview", "trouble", "facts"])  # the others: test_views
def test_run_tab_escapes_hostile_text(page, site, ids, tab):
    page.goto(f"{site}?view=run&id={ids['hostile']}&tab={tab}")
    page.wait_for_function(READY)

    sees(page, "<script>")
    assert page.evaluate("window.hacked") is None


@pytest.mark.browser
def test_runs_list_escapes_hostile_text(page, site):
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
def test_invalid_address_shows_message(page, site, ids, query, text):
    page.goto(site + query.format(**ids))
    page.wait_for_function(READY)

    sees(page, text)


@pytest.mark.browser
def test_unreadable_and_empty_runs_show_message(page, site, ids, artifacts):
    page.goto(f"{site}?view=run&id={ids['broken']}")
    page.wait_for_function(READY)
    sees(page, "This run cannot be shown")

    page.goto(f"{site}?view=run&id={ids['failed']}")
    page.wait_for_function(READY)
    sees(page, "ValueError: no")
    page.screenshot(path=artifacts / "dashboard-failed.png")


@pytest.mark.browser
def test_dark_theme_follows_system_and_button(browser, site, artifacts):
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
def test_empty_store_shows_command(page, tmp_path, artifacts, a_run):
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
def test_panel_serve_runs_app(page, tmp_path, a_run):
    store = Store(tmp_path / "store")
    store.add(a_run)
    port = free_port()
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
        server.wait(120)


def test_only_the_renderer_makes_html_panes():
    """Allow Panel panes that can render HTML in `render/panel.py` only: it escapes their text."""
    forbidden = {"HTML", "Markdown", "Str", "Alert", "StaticText", "TooltipIcon", "Card"}
    found = set()
    for path in [*FOLDER.rglob("*.py"), *(FOLDER.parent / "render").rglob("*.py")]:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):  # types of arguments and results are allowed
            if isinstance(node, ast.FunctionDef):
                node.returns = None
            elif isinstance(node, ast.arg):
                node.annotation = None
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        found |= {path.name} if names & forbidden else set()

    assert found == {"panel.py"}
