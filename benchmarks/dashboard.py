"""Measure the dashboard on a large store, in a browser, against every budget of the design.

    python benchmarks/dashboard.py
    python benchmarks/dashboard.py --quick

Makes a store in a temporary folder (months of nights, an experiment, a run of a million tasks),
serves it with `benchkit dashboard`, and drives Chromium. For simultaneous visitors a server of two
processes is measured too. Prints medians, worst values and budgets; asserts nothing, because times
depend on the machine. An interaction ends when the last answer of the server has been painted.
Needs Debian's chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import psutil
import visitor
from playwright.async_api import TimeoutError

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers.history_data import LAST, SLOWER, fill
from helpers.dashboard_server import READY, many_tasks
from helpers.synthetic_runs import make_run

from benchkit.measure.run_ids import new_id

PAINT_S, USABLE_S, ZOOM_MS, BRUSH_MS, TABLE_MS = 1.5, 2.5, 250, 200, 500
VISITOR_MB, CROWD_S = 5.0, 3.0
#: Goals stricter than the budgets, in the same order.
MOONSHOTS = {"paint": 0.5, "usable": 0.8, "zoom": 50, "brush": 50, "table": 150, "visitor": 1.0,
             "crowd": 1.0}  # fmt: skip
#: Visits before the memory per visitor is measured; which process serves a visit is random.
WARM_VISITS = 8
#: An answer after a pause of this length belongs to something else, such as the page's URL.
QUIET_MS = 250
WATCH = """
window.told = []; window.began = null;
for (const kind of ["wheel", "click", "input", "moved"])
  window.addEventListener(kind, () => { window.began ??= performance.now(); }, true);
window.WebSocket = class extends WebSocket {
  constructor(...args) {
    super(...args);
    this.addEventListener("message", () => {
      const at = performance.now();
      requestAnimationFrame(() => requestAnimationFrame(
        () => window.told.push([at, performance.now()])));
    });
  }
};
"""
ANSWERED = """quiet => {
  const after = window.told.filter(([at]) => window.began !== null && at >= window.began);
  if (!after.length) return null;
  let last = after[0];
  for (const one of after) if (one[0] - last[0] < quiet) last = one;
  return performance.now() - last[0] > quiet ? last[1] - window.began : null;
}"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
MOVE = """share => {
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
            environment=arm, block=block, order=place, seed=block,
            started=f"{started + pd.Timedelta(minutes=row)}+00:00".replace(" ", "T"),
            duration=10.0 + row + 0.1 * block + 1.5 * (arm == "contender" and row % 4 == 0),
        )
        for row in range(n_rows)
        for block in range(5)
        for place, arm in enumerate(("baseline", "contender"))
    )  # fmt: skip
    whole = make_run(SLOWER, n_samples=600, n_workers=4, n_tasks=5000)
    usual, large = store.add(whole), store.add(many_tasks(whole, n_tasks))
    return {"usual": usual, "large": large, "experiment": experiment, "n": str(len(store))}


def serve(store: Path, num_procs: int) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, "-m", "benchkit", "dashboard", "--store", str(store), "--port", "0"]
    command += ["--num-procs", str(num_procs)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return server, server.stdout.readline().strip()


def processes(pid: int) -> list[psutil.Process]:
    """Return the server's processes: the first one and its children."""
    started = psutil.Process(pid)
    return [started, *started.children()]


def rss_mb(pid: int) -> float:
    return sum(each.memory_info().rss for each in processes(pid)) / 2**20


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of the server so far; unlike wall time, not affected by other load."""
    return sum(sum(each.cpu_times()[:2]) for each in processes(pid))


class Table:
    """Print one line per measurement, with its budget and its goal."""

    def __init__(self) -> None:
        print(f"\n{'':44s} {'median':>8s} {'worst':>8s} {'budget':>8s} {'goal':>8s}")

    def line(self, what: str, values: list[float], unit: str, budget: float, goal: str) -> None:
        """Print the median and the worst of some values."""
        if not values:
            print(f"{what:44s} {'not measured':>17s}")
            return
        middle, worst = statistics.median(values), max(values)
        digits = 0 if unit == "ms" else 2
        word = "" if middle <= budget else "  OVER"
        numbers = " ".join(f"{v:8.{digits}f}" for v in (middle, worst, budget, MOONSHOTS[goal]))
        print(f"{what:44s} {numbers} {unit}{word}", flush=True)


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


async def answered(page, timeout_ms: float = 20_000) -> list[float]:
    """Return ms from the visitor's action to the painted last answer; empty without an answer."""
    try:
        handle = await page.wait_for_function(
            ANSWERED, arg=QUIET_MS, polling=20, timeout=timeout_ms
        )
    except TimeoutError:
        return []
    return [await handle.json_value()]


async def forget(page) -> None:
    await page.wait_for_timeout(900)
    await page.evaluate("() => { window.told = []; window.began = null; }")


async def views(
    context, url: str, ids: dict[str, str], table: Table, repeats: int, pid: int
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
        before = cpu_s(pid)
        visits = [await visit(page, f"{url}?{address}") for _ in range(repeats)]
        each = (cpu_s(pid) - before) / repeats
        measured = [one for one in visits if one is not None]
        table.line(f"{name}: first paint", [one[0] for one in measured], "s", PAINT_S, "paint")
        table.line(f"{name}: usable", [one[1] for one in measured], "s", USABLE_S, "usable")
        told = f"paint {first[0]:.2f} s, usable {first[1]:.2f} s" if first else "not in time"
        print(f"    {each:.2f} s of the server's CPU a visit; the first visit: {told}")
        await page.close()


async def zoom_and_brush(
    context, url: str, ids: dict[str, str], table: Table, repeats: int
) -> None:
    page = await context.new_page()
    await visit(page, f"{url}?view=run&id={ids['large']}&tab=tasks")
    await page.wait_for_timeout(1500)
    canvas = page.locator(".bk-Canvas").last
    await canvas.scroll_into_view_if_needed()
    box = await canvas.bounding_box()
    await page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5)
    steps = []
    for _ in range(repeats + 2):
        await forget(page)
        await page.mouse.wheel(0, -150)
        steps += await answered(page)
    table.line("Zoom of a million tasks, a step", steps, "ms", ZOOM_MS, "zoom")
    await page.close()
    for name, run in (("a usual run", "usual"), ("a million tasks", "large")):
        page = await context.new_page()
        await visit(page, f"{url}?view=run&id={ids[run]}")
        await page.wait_for_timeout(1500)
        steps = []
        for step in range(repeats + 2):
            await forget(page)
            if not await page.evaluate(MOVE, 0.1 + 0.05 * step):
                break
            steps += await answered(page)
        table.line(f"Brush over time, {name}", steps, "ms", BRUSH_MS, "brush")
        await page.close()


async def tables(context, url: str, table: Table, repeats: int) -> None:
    page = await context.new_page()
    await visit(page, f"{url}?view=runs")
    await page.wait_for_selector(".tabulator-row")
    times = []
    for _ in range(repeats):
        await forget(page)
        await page.locator(".tabulator-col[tabulator-field=workload] .tabulator-col-title").click()
        times += await answered(page)
    table.line("Runs: sort", times, "ms", TABLE_MS, "table")
    times = []
    for word in ("vort", "p2p", "join", "slow", "anom")[:repeats]:
        field = page.locator(".tabulator-col[tabulator-field=workload] input")
        await field.fill("")
        await forget(page)
        await field.press_sequentially(word, delay=10)
        times += await answered(page)
    table.line("Runs: filter", times, "ms", TABLE_MS, "table")
    await page.close()


async def crowd(
    browser, url: str, ids: dict[str, str], table: Table, n_visitors: int, pid: int
) -> None:
    for name, address in (
        ("Overview", "view=overview"), ("Run", f"view=run&id={ids['usual']}"),
        ("Workloads", "view=workloads"),
    ):  # fmt: skip
        for _ in range(WARM_VISITS):  # exclude what each process reads once
            page = await (await browser.new_context()).new_page()
            await visit(page, f"{url}?{address}")
            await page.context.close()
        before = rss_mb(pid)
        pages = [await (await browser.new_context()).new_page() for _ in range(n_visitors)]
        for page in pages:
            await visit(page, f"{url}?{address}")
        await asyncio.sleep(1)
        each = (rss_mb(pid) - before) / n_visitors
        table.line(f"{name}: server memory a visitor", [each], "MB", VISITOR_MB, "visitor")
        for page in pages:
            await page.context.close()

        seen = await asyncio.gather(*(visitor.visit(url, address) for _ in range(n_visitors)))
        for what, times in zip(
            ("page sent", "first screen sent", "all of it sent"),
            zip(*seen, strict=True),
            strict=True,
        ):
            label = f"{name}: {n_visitors} at once, {what}"
            table.line(label, [max(times)], "s", CROWD_S, "crowd")
    context = await browser.new_context()
    pages = [await context.new_page() for _ in range(n_visitors)]
    address = f"{url}?view=run&id={ids['usual']}"
    seen = await asyncio.gather(*(visit(page, address, timeout_s=120) for page in pages))
    worst = [max(one[1] for one in seen)] if all(seen) else []
    label = f"Run: {n_visitors} tabs of one browser here, usable"
    table.line(label, worst, "s", CROWD_S, "crowd")
    await context.close()


async def measure(args: argparse.Namespace, url: str, pid: int, ids: dict[str, str]) -> None:
    from playwright.async_api import async_playwright

    outside: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking",
                  "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"],
        )  # fmt: skip
        context = await browser.new_context(viewport={"width": 1300, "height": 900})
        await context.add_init_script(WATCH)
        context.on(
            "request",
            lambda r: None if "127.0.0.1" in r.url or r.url.startswith(("data:", "blob:"))
            else outside.append(r.url),
        )  # fmt: skip
        table = Table()
        if not args.crowd:
            await views(context, url, ids, table, args.repeats, pid)
            await zoom_and_brush(context, url, ids, table, args.repeats)
            await tables(context, url, table, args.repeats)
        await context.close()
        await crowd(browser, url, ids, table, args.visitors, pid)
        await browser.close()
    print(f"{'Requests to the outside':44s} {len(outside):8d} {'':8s} {0:8d} {0:8d}")
    for address in sorted(set(outside)):
        print(f"    {address}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000, help="Runs in the store.")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="Tasks of the largest run.")
    parser.add_argument("--rows", type=int, default=40, help="Workloads of the experiment.")
    parser.add_argument("--visitors", type=int, default=20, help="Visitors at once.")
    parser.add_argument("--num-procs", type=int, nargs="+", default=[1, 2],
                        help="Processes of the server; with the first all is measured, with "
                        "others visitors at once only.")  # fmt: skip
    parser.add_argument("--crowd", action="store_true", help="Only the visitors at once.")
    parser.add_argument("--repeats", type=int, default=5, help="Visits of a page.")
    parser.add_argument("--quick", action="store_true", help="A small store and few visits.")
    parser.add_argument("--store", type=Path, help="Make the store here, or use what is here.")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.tasks, args.rows = min(args.runs, 1500), min(args.tasks, 100_000), 10
        args.visitors, args.repeats = 5, 2
    with tempfile.TemporaryDirectory() as folder:
        path = args.store or Path(folder) / "store"
        known = path.parent / f"{path.name}.txt"
        if not path.exists():
            began = time.perf_counter()
            ids = make_store(path, args.runs, args.tasks, args.rows)
            known.write_text("\n".join(f"{name} {value}" for name, value in ids.items()))
            print(f"store made in {time.perf_counter() - began:.0f} s")
        ids = dict(line.split(maxsplit=1) for line in known.read_text().splitlines())
        busy = ", ".join(f"{load:.1f}" for load in os.getloadavg())
        print(f"{ids['n']} runs, {args.tasks} tasks in one, {os.cpu_count()} cores, load {busy}")
        for num_procs in args.num_procs:
            print(f"--num-procs {num_procs}")
            server, url = serve(path, num_procs)
            try:
                asyncio.run(measure(args, url, server.pid, ids))
            finally:
                server.terminate()
                server.wait(10)
            args.crowd = True


if __name__ == "__main__":
    main()
