"""Serve the dashboard, look at its pages in a browser, and build runs for it to show."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import panel as pn
import psutil
import xarray as xr
from playwright.sync_api import expect

from benchkit.measure.run_ids import new_id

READY = "document.body?.dataset.page === 'ready'"
HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'

expect.set_options(timeout=30_000)  # pages load slowly on a busy machine


@contextmanager
def running_dashboard(store, *options, port=0) -> Iterator[tuple[str, psutil.Process]]:
    """Serve the dashboard of a store; yield its URL and the process of the server."""
    command = [sys.executable, "-m", "benchkit", "dashboard", "--store", str(store)]
    server = subprocess.Popen(
        [*command, "--port", str(port), *options], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip(), psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(20)


def with_record(tree, **fields):
    record = {**json.loads(tree.attrs["record"]), **fields}
    tree = tree.copy(deep=True)
    tree.attrs |= {**fields, "record": json.dumps(record)}
    return tree


def many_tasks(tree, n_tasks=1_000_000, n_threads=64):
    rng = np.random.default_rng(0)
    each = n_tasks // n_threads
    n_tasks = each * n_threads
    duration = rng.exponential(0.01, (n_threads, each))
    stop = np.cumsum(duration * 1.2, axis=1)
    size = tree["task_groups"].sizes["task_group"]
    columns = {
        "start": (stop - duration).ravel(),
        "duration": duration.ravel(),
        "thread": np.repeat(np.arange(n_threads), each).astype("i4"),
        "group": rng.integers(0, size, n_tasks).astype("i4"),
        "worker": np.zeros(n_tasks, "i4"),
        "ok": np.ones(n_tasks, "i1"),
        "nbytes": np.full(n_tasks, 8, "i8"),
    }
    tree = with_record(tree, id=new_id(), workload="tests.million")
    tree["tasks"] = xr.DataTree(xr.Dataset({k: ("task", v) for k, v in columns.items()}))
    return tree


def open_page(page, address):
    """Open a URL and wait until the page is complete."""
    page.goto(address)
    page.wait_for_function(READY)


def sees(page, text):
    """Wait until a text is visible; plots and text arrive by websocket after the page."""
    expect(page.get_by_text(text).first).to_be_visible()


def wait_for_plots(page, least):
    """Wait until at least `least` canvases have been drawn on."""
    ink = """least => {
      const canvases = [];
      const search = root => { for (const element of root.querySelectorAll("*")) {
        if (element.tagName === "CANVAS") canvases.push(element);
        if (element.shadowRoot) search(element.shadowRoot); } };
      search(document);
      return canvases.filter(({width, height}, at) => {
        if (!width || !height) return false;
        const data = canvases[at].getContext("2d").getImageData(0, 0, width, height).data;
        let n = 0; for (let i = 3; i < data.length; i += 4) n += data[i] > 0;
        return n > 500; }).length >= least; }"""
    # Not at each frame, the default: reading the pixels takes most of a processor.
    page.wait_for_function(ink, arg=least, polling=250)


def brush(page, plot):
    """Drag across a plot until the URL has a window: a visible plot may not handle events yet."""
    place = page.get_by_label(plot, exact=True)
    expect(place).to_be_visible()
    place.scroll_into_view_if_needed()
    for _ in range(8):
        page.wait_for_timeout(700)
        box = place.bounding_box()
        y = box["y"] + 0.5 * box["height"]
        page.mouse.move(box["x"] + 0.3 * box["width"], y)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], y, steps=5)
        page.mouse.up()
        page.wait_for_timeout(1500)
        if "from=" in page.url:
            return
    raise AssertionError(f"{page.url}: a drag across {plot!r} set no window")


def zoom(page, plot, done, max_steps=40):
    """Turn the wheel over a plot until a condition of the page holds.

    Each step zooms to two thirds of the range. A visible plot may not handle events yet.
    """
    place = page.locator(f"[aria-label^={json.dumps(plot)}]").first
    expect(place).to_be_visible()
    place.scroll_into_view_if_needed()
    for _ in range(max_steps):
        box = place.bounding_box()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
        page.mouse.wheel(0, -200)
        page.wait_for_timeout(400)
        if page.evaluate(done):
            return
    raise AssertionError(f"{max_steps} steps of the wheel over {plot!r}: not {done}")


def light_run(a_run):
    """Return a run like those of the light capture: groups have counts, tasks have no times."""
    run = with_record(a_run, id=new_id(), capture="light")
    for name in ("tasks", "task_events"):
        if name in run.children:
            del run[name]
    return run


def text_of(view):
    """Return the HTML of all panes of a view."""
    return " ".join(str(pane.object) for pane in view.select(pn.pane.HTML))
