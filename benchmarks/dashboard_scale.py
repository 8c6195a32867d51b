"""Measure the first page of the dashboard and ``list runs`` on large stores.

    python benchmarks/dashboard_scale.py
    python benchmarks/dashboard_scale.py --quick
    python benchmarks/dashboard_scale.py --long

Stores: 100,000 runs, a million runs, and a million nightly runs of two years (1,370 a night). They
have an index only, and are kept in the folder of ``--stores`` if it is given. Prints JSON: wall
time of three visits with a browser, each in a new page, CPU time and peak memory of the server
after each, CPU time and peak memory of the commands, and the goals. Needs Debian's chromium; takes
two minutes and the time to make the stores; asserts nothing. ``--write-docs`` writes the table into
docs/guides/dashboard.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from validation.dashboard_server import READY, running_dashboard  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402
from validation.large_index import fill_index  # noqa: E402

#: Name -> columns of a table.
TABLES = {
    "stores": (
        "store", "first page", "server CPU", "second and third page",
        "server memory after three pages",
    )
}  # fmt: skip
#: Name of a store -> number of runs, runs per night, goals for seconds of the first page and for MB
#: of the server.
STORES: dict[str, tuple[int, int, float, float]] = {
    "100,000 runs": (100_000, 0, 1.0, 400),
    "a million runs of experiments": (1_000_000, 0, 2.0, 800),
    "a million nightly runs": (1_000_000, 1370, 2.0, 800),
}
#: Goal for the peak memory of ``list runs``, in MB.
LIST_MB = 500
#: With more runs, ``list runs --json`` takes minutes, and is measured with ``--long`` only.
MAX_JSON_RUNS = 100_000
VISITS = 3
TIMEOUT_MS = 120_000


def visit(store: Path) -> list[dict[str, float]]:
    """Return the costs of each of several visits to a new server."""
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))))
    costs = []
    with running_dashboard(store) as (url, server), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(VISITS):
            page = browser.new_page()
            cpu, begin = server_cpu_s(server), time.perf_counter()
            page.goto(url, timeout=TIMEOUT_MS)
            page.wait_for_function(READY, timeout=TIMEOUT_MS)
            wall = time.perf_counter() - begin
            costs.append(
                {
                    "wall_s": round(wall, 2),
                    "server_cpu_s": round(server_cpu_s(server) - cpu, 2),
                    "server_peak_MB": round(peak_mb(server.pid)),
                }
            )
            page.close()
        browser.close()
    return costs


def server_cpu_s(server: psutil.Process) -> float:
    """Return the CPU seconds of a server and its children."""
    family = [server, *server.children(recursive=True)]
    return float(sum(sum(member.cpu_times()[:2]) for member in family))


def peak_mb(pid: int) -> float:
    """Return the highest memory (RSS) of a process so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError("VmHWM is missing: not Linux")


def listed(*options: str, store: Path) -> dict[str, float]:
    """Return CPU time and peak memory of ``list runs``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchkit", "list", "runs", *options, "--store", str(store)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, options
    return {
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_MB": round(usage.ru_maxrss * 1024 / 1e6),
    }


def measure(folder: Path, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return the costs of one store."""
    n_runs, runs_per_night, goal_s, goal_mb = STORES[name]
    n_runs = n_runs // 100 if given.quick else n_runs
    path = folder / f"{n_runs}-{runs_per_night}"
    if not path.exists():
        fill_index(path, n_runs, runs_per_night=runs_per_night)
    result: dict[str, Any] = {
        "runs": n_runs,
        "first page": {"goal": {"wall_s": goal_s, "server_peak_MB": goal_mb}},
    }
    result["first page"]["visits"] = visit(path)
    result["list runs"] = {"goal": {"peak_MB": LIST_MB}, **listed(store=path)}
    if n_runs <= MAX_JSON_RUNS or given.long:
        json_costs = listed("--json", "--all", store=path)
        result["list runs --json --all"] = {"goal": {"peak_MB": LIST_MB}, **json_costs}
    return result


def main() -> None:
    """Print the costs of all stores as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", type=Path, help="folder for stores, which are used again")
    parser.add_argument("--quick", action="store_true", help="one hundredth of the runs")
    parser.add_argument("--long", action="store_true", help="a million runs as JSON, too")
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    if given.quick and given.write_docs:
        parser.error("--write-docs needs a whole measurement: omit --quick")
    with tempfile.TemporaryDirectory() as folder:
        results = {}
        for name in STORES:
            print(f"measuring {name} ...", file=sys.stderr)
            results[name] = measure(given.stores or Path(folder), name, given)
    print(json.dumps(results, indent=1))
    rows = []
    for name, result in results.items():
        first, *others = result["first page"]["visits"]
        waits = dict.fromkeys(f"{visit['wall_s']:.1f} s" for visit in others)
        rows.append([
            name, f"{first['wall_s']:.2g} s", f"{first['server_cpu_s']:.2g} s", ", ".join(waits),
            f"{others[-1]['server_peak_MB']:.0f} MB",
        ])  # fmt: skip
    show_table(__file__, "stores", TABLES["stores"], rows, write=given.write_docs)


if __name__ == "__main__":
    main()
