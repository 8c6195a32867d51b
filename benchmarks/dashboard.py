"""Measure the dashboard on a large store, in a browser, against every budget of the design.

    python benchmarks/dashboard.py
    python benchmarks/dashboard.py --quick

Makes a store in a temporary folder (months of nights, an experiment, a run of a million tasks),
serves it with one process of `benchkit dashboard`, and drives Chromium. (Several visitors:
`dashboard_visitors.py`.) Prints medians, worst values and budgets; asserts nothing, because times
depend on the machine. An interaction ends when the last reply of the server has been painted.
Needs Debian's chromium.
"""

import argparse
import asyncio
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import psutil
from playwright.async_api import TimeoutError

sys.path.insert(0, str(Path(__file__).parent.parent))

from validation.history_data import LAST, SLOWER, fill
from validation.dashboard_server import READY, many_tasks, running_dashboard
from validation.synthetic_runs import make_run

from benchkit.measure.run_ids import new_id

#: Quantity -> budget and goal, in the unit of the line that is printed.
LIMITS = {
    "paint": (1.5, 0.5),
    "usable": (2.5, 0.8),
    "zoom": (250, 50),
    "brush": (200, 50),
    "table": (500, 150),
}
#: A reply after a pause of this length has another cause, such as a change of the page's URL.
PAUSE_MS = 250
RECORD_REPLIES = """
window.replies = []; window.began = null;
for (const kind of ["wheel", "click", "input", "moved"])
  window.addEventListener(kind, () => { window.began ??= performance.now(); }, true);
window.WebSocket = class extends WebSocket {
  constructor(...args) {
    super(...args);
    this.addEventListener("message", () => {
      const received = performance.now();
      requestAnimationFrame(() => requestAnimationFrame(
        () => window.replies.push([received, performance.now()])));
    });
  }
};
"""
REPLY_TIME = """pause => {
  const replies = window.replies.filter(
    ([received]) => window.began !== null && received >= window.began);
  if (!replies.length) return null;
  let last = replies[0];
  for (const reply of replies) if (reply[0] - last[0] < pause) last = reply;
  return performance.now() - last[0] > pause ? last[1] - window.began : null;
}"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
MOVE_WINDOW = """share => {
  const models = [...Bokeh.documents[0]._all_models.values()];
  const range = models.find(m => m.type === "Range1d" && m.reset_start !== null
                            && m.bounds !== null && m.bounds !== "auto");
  if (!range) return false;
  const [left, right] = range.bounds, width = right - left;
  window.dispatchEvent(new Event("moved"));
  range.setv({start: left + share * width, end: left + (share + 0.3) * width});
  return true;
}"""


def make_store(folder: Path, n_runs: int, n_tasks: int, n_rows: int) -> dict[str, str]:
    """Fill a store; return the ids of a run, of the large run and of an experiment."""
    n_nights = 60
    n_more = max(0, n_runs // (2 * n_nights) - 8)
    store = fill(folder, make_run(), n_nights=n_nights, n_more=n_more)
    experiment = new_id()
    started = LAST - pd.Timedelta(days=1)
    store.add_many(
        make_run(
            f"made.w{row:02d}", n_samples=10, n_tasks=20, experiment=experiment, arm=arm,
            environment=arm, block=block, order=order, seed=block,
            started=f"{started + pd.Timedelta(minutes=row)}+00:00".replace(" ", "T"),
            duration=10.0 + row + 0.1 * block + 1.5 * (arm == "contender" and row % 4 == 0),
        )
        for row in range(n_rows)
        for block in range(5)
        for order, arm in enumerate(("baseline", "contender"))
    )  # fmt: skip
    run = make_run(SLOWER, n_samples=600, n_workers=4, n_tasks=5000)
    usual, large = store.add(run), store.add(many_tasks(run, n_tasks))
    return {"usual": usual, "large": large, "experiment": experiment, "n": str(len(store))}


def cpu_s(server: psutil.Process) -> float:
    """Return the CPU seconds of the server so far; unlike wall time, not affected by other load."""
    return sum(server.cpu_times()[:2])


class Table:
    """Print a line per measurement, with its budget and its goal."""

    def __init__(self) -> None:
        print(f"\n{'':44s} {'median':>8s} {'worst':>8s} {'budget':>8s} {'goal':>8s}")

    def line(self, label: str, values: list[float], unit: str, limits: str) -> None:
        """Print the median and the worst value; `limits` is a key of `LIMITS`."""
        if not values:
            print(f"{label:44s} {'not measured':>17s}")
            return
        median, worst = statistics.median(values), max(values)
        budget, goal = LIMITS[limits]
        digits = 0 if unit == "ms" else 2
        numbers = " ".join(f"{v:8.{digits}f}" for v in (median, worst, budget, goal))
        print(f"{label:44s} {numbers} {unit}{'' if median <= budget else '  OVER'}", flush=True)


async def visit(page, url: str, timeout_s: float = 60) -> tuple[float, float] | None:
    """Return the times of first paint and of the complete page in s; None after the timeout."""
    began = time.perf_counter()
    # Poll by time, not by animation frame: a background tab has no frames.
    try:
        await page.goto(url, wait_until="commit", timeout=timeout_s * 1e3)
        await page.wait_for_function(READY, polling=20, timeout=timeout_s * 1e3)
    except TimeoutError:
        return None
    usable = time.perf_counter() - began
    # A background tab may never be painted.
    return (await page.evaluate(PAINTED) or math.nan) / 1e3, usable


async def reply_times(page, timeout_ms: float = 20_000) -> list[float]:
    """Return ms from the visitor's action to the painted last reply; empty without a reply."""
    try:
        handle = await page.wait_for_function(
            REPLY_TIME, arg=PAUSE_MS, polling=20, timeout=timeout_ms
        )
    except TimeoutError:
        return []
    return [await handle.json_value()]


async def clear_replies(page) -> None:
    await page.wait_for_timeout(900)
    await page.evaluate("() => { window.replies = []; window.began = null; }")


async def measure_views(
    context, url: str, ids: dict[str, str], table: Table, repeats: int, server: psutil.Process
) -> None:
    addresses = {
        "Overview": "view=overview",
        "History of a workload": f"view=history&workload={quote(SLOWER)}",
        "Workloads": "view=workloads",
        "Workloads, one": f"view=workloads&name={quote(SLOWER)}",
        "Environments": "view=environments",
        "Environments, one": "view=environments&name=main",
        "Runs": "view=runs",
        "Compare, an experiment": f"view=compare&experiment={ids['experiment']}",
        "Run": f"view=run&id={ids['usual']}",
        "Run, tasks": f"view=run&id={ids['usual']}&tab=tasks",
        "Run of a million tasks": f"view=run&id={ids['large']}",
        "Run of a million tasks, tasks": f"view=run&id={ids['large']}&tab=tasks",
    }
    for name, address in addresses.items():
        page = await context.new_page()
        first = await visit(page, f"{url}?{address}")
        before = cpu_s(server)
        visits = [await visit(page, f"{url}?{address}") for _ in range(repeats)]
        cpu_per_visit = (cpu_s(server) - before) / repeats
        times = [pair for pair in visits if pair is not None]
        table.line(f"{name}: first paint", [paint for paint, _ in times], "s", "paint")
        table.line(f"{name}: usable", [usable for _, usable in times], "s", "usable")
        text = f"paint {first[0]:.2f} s, usable {first[1]:.2f} s" if first else "timeout"
        print(f"    server CPU per visit {cpu_per_visit:.2f} s; first visit: {text}")
        await page.close()


async def measure_zoom_and_brush(
    context, url: str, ids: dict[str, str], table: Table, repeats: int
) -> None:
    page = await context.new_page()
    await visit(page, f"{url}?view=run&id={ids['large']}&tab=tasks")
    await page.wait_for_timeout(1500)
    canvas = page.locator(".bk-Canvas").last
    await canvas.scroll_into_view_if_needed()
    box = await canvas.bounding_box()
    await page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5)
    times = []
    for _ in range(repeats + 2):
        await clear_replies(page)
        await page.mouse.wheel(0, -150)
        times += await reply_times(page)
    table.line("Zoom of a million tasks, a step", times, "ms", "zoom")
    await page.close()
    for name, run in (("a usual run", "usual"), ("a million tasks", "large")):
        page = await context.new_page()
        await visit(page, f"{url}?view=run&id={ids[run]}")
        await page.wait_for_timeout(1500)
        times = []
        for step in range(repeats + 2):
            await clear_replies(page)
            if not await page.evaluate(MOVE_WINDOW, 0.1 + 0.05 * step):
                break
            times += await reply_times(page)
        table.line(f"Brush over time, {name}", times, "ms", "brush")
        await page.close()


async def measure_tables(context, url: str, table: Table, repeats: int) -> None:
    page = await context.new_page()
    await visit(page, f"{url}?view=runs")
    await page.wait_for_selector(".tabulator-row")
    times = []
    for _ in range(repeats):
        await clear_replies(page)
        await page.locator(".tabulator-col[tabulator-field=workload] .tabulator-col-title").click()
        times += await reply_times(page)
    table.line("Runs: sort", times, "ms", "table")
    times = []
    for word in ("vort", "p2p", "join", "slow", "anom")[:repeats]:
        field = page.locator(".tabulator-col[tabulator-field=workload] input")
        await field.fill("")
        await clear_replies(page)
        await field.press_sequentially(word, delay=10)
        times += await reply_times(page)
    table.line("Runs: filter", times, "ms", "table")
    await page.close()


async def measure(
    args: argparse.Namespace, url: str, server: psutil.Process, ids: dict[str, str]
) -> None:
    from playwright.async_api import async_playwright

    external: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking",
                  "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"],
        )  # fmt: skip
        context = await browser.new_context(viewport={"width": 1300, "height": 900})
        await context.add_init_script(RECORD_REPLIES)
        context.on(
            "request",
            lambda r: None if "127.0.0.1" in r.url or r.url.startswith(("data:", "blob:"))
            else external.append(r.url),
        )  # fmt: skip
        table = Table()
        await measure_views(context, url, ids, table, args.repeats, server)
        await measure_zoom_and_brush(context, url, ids, table, args.repeats)
        await measure_tables(context, url, table, args.repeats)
        await browser.close()
    print(f"{'Requests to other hosts':44s} {len(external):8d} {'':8s} {0:8d} {0:8d}")
    for address in sorted(set(external)):
        print(f"    {address}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000, help="Runs in the store.")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="Tasks of the largest run.")
    parser.add_argument("--rows", type=int, default=40, help="Workloads of the experiment.")
    parser.add_argument("--repeats", type=int, default=5, help="Visits of a page.")
    parser.add_argument("--quick", action="store_true", help="A small store and few visits.")
    parser.add_argument("--store", type=Path, help="Folder of the store, reused if it exists.")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.tasks, args.rows = min(args.runs, 1500), min(args.tasks, 100_000), 10
        args.repeats = 2
    with tempfile.TemporaryDirectory() as folder:
        path = args.store or Path(folder) / "store"
        ids_file = path.parent / f"{path.name}.txt"
        if not path.exists():
            began = time.perf_counter()
            ids = make_store(path, args.runs, args.tasks, args.rows)
            ids_file.write_text("\n".join(f"{name} {value}" for name, value in ids.items()))
            print(f"store made in {time.perf_counter() - began:.0f} s")
        ids = dict(line.split(maxsplit=1) for line in ids_file.read_text().splitlines())
        load = ", ".join(f"{mean:.1f}" for mean in os.getloadavg())
        print(f"{ids['n']} runs, {args.tasks} tasks in one, {os.cpu_count()} cores, load {load}")
        with running_dashboard(path) as (url, server):
            asyncio.run(measure(args, url, server, ids))


if __name__ == "__main__":
    main()
