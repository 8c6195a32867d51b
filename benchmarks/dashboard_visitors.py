"""Measure visitors who click through the pages of the dashboard at the same time.

    python benchmarks/dashboard_visitors.py
    python benchmarks/dashboard_visitors.py --store FOLDER   # reuse or make the store

Serves the store of `dashboard.py` with one process. A click requests a page and waits for all of
its content; the visitor then reads for a random time, and clicks again. Three situations are
measured: a single visitor, five visitors who read, and five visitors who click again at once.
Visitors have no browser (see `visitor.py`), so that the server has a core for itself: a browser
adds its own drawing time. Prints the delay of a click, the CPU time of the server and its memory;
asserts nothing. ``--write-docs`` writes the table into docs/guides/dashboard.md.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psutil
import visitor
from dashboard import SLOWER, cpu_s, make_store
from validation.dashboard_server import running_dashboard
from validation.docs_tables import show_table

#: Name -> columns of a table.
TABLES = {
    "visitors": (
        "visitors", "reading time", "clicks", "median", "95 %", "CPU of a click", "use of a core",
        "memory",
    )
}  # fmt: skip

#: Mean number of seconds between the content of a page and the next click.
READING_S = 5.0
#: Seconds between two readings of the server's memory.
MEMORY_INTERVAL_S = 0.2
#: Panel discards the session of a closed page after 15 s; it looks every 17 s.
SESSIONS_DISCARDED_S = 40


def pages(ids: dict[str, str]) -> dict[str, str]:
    """Return the title and the address of each page that visitors open."""
    return {
        "Overview": "view=overview",
        "History": f"view=history&workload={quote(SLOWER)}",
        "Runs": "view=runs",
        "Run": f"view=run&id={ids['usual']}",
        "Run, tasks": f"view=run&id={ids['usual']}&tab=tasks",
        "Compare": f"view=compare&experiment={ids['experiment']}",
        "Workload": f"view=workloads&name={quote(SLOWER)}",
        "Environments": "view=environments",
    }


async def click_through(
    url: str, addresses: list[str], n_clicks: int, reading_s: float, seed: int
) -> list[tuple[float, float]]:
    """Visit random pages; return the seconds until the first and until all content of each."""
    rng = random.Random(seed)
    times = []
    for _ in range(n_clicks):
        pause_s = rng.uniform(0, 2 * reading_s)
        _, first_s, all_s = await visitor.visit(url, rng.choice(addresses), stay_s=pause_s)
        times.append((first_s, all_s))
    return times


@contextmanager
def highest_memory(server: psutil.Process) -> Iterator[list[int]]:
    """Yield a list of the server's resident bytes, which grows until the context ends."""
    readings = [server.memory_info().rss]

    async def read() -> None:
        while True:
            await asyncio.sleep(MEMORY_INTERVAL_S)
            readings.append(server.memory_info().rss)

    task = asyncio.ensure_future(read())
    try:
        yield readings
    finally:
        task.cancel()


async def measure(
    url: str, addresses: list[str], server: psutil.Process,
    *, n_visitors: int, n_clicks: int, reading_s: float,
) -> list[str]:  # fmt: skip
    """Return the measurements of visitors who click `n_clicks` times in total."""
    began, cpu_before = time.perf_counter(), cpu_s(server)
    with highest_memory(server) as rss:
        visits = await asyncio.gather(
            *(
                click_through(url, addresses, n_clicks // n_visitors, reading_s, seed)
                for seed in range(n_visitors)
            )
        )
    wall_s, used_s = time.perf_counter() - began, cpu_s(server) - cpu_before
    times = np.concatenate([np.array(clicks) for clicks in visits])
    (first, most_first), (full, most_full) = np.quantile(times, [0.5, 0.95], axis=0).T
    reading = f"{reading_s:g} s on average" if reading_s else "none"
    before = f"memory before {rss[0] / 2**20:.0f} MiB"
    print(f"{n_visitors} visitors, reading time {reading}: first content after {first:.2f} s, "
          f"95 % {most_first:.2f} s; {before}", flush=True)  # fmt: skip
    return [
        str(n_visitors), reading, str(len(times)), f"{full:.2f} s", f"{most_full:.2f} s",
        f"{used_s / len(times):.2f} s", f"{100 * used_s / wall_s:.0f} %",
        f"{max(rss) / 2**20:.0f} MiB",
    ]  # fmt: skip


async def measure_all(
    args: argparse.Namespace, url: str, server: psutil.Process, ids: dict[str, str]
) -> list[list[str]]:
    """Print the CPU time of each page; return the rows of the three situations."""
    addresses = pages(ids)
    for title, address in addresses.items():
        for _ in range(2):  # fills the caches
            await visitor.visit(url, address)
        before = cpu_s(server)
        for _ in range(3):
            await visitor.visit(url, address)
        print(f"{title:36s} {(cpu_s(server) - before) / 3:8.2f} s of server CPU per visit")
    rows = [
        await measure(
            url, list(addresses.values()), server,
            n_visitors=n_visitors, n_clicks=args.clicks, reading_s=reading_s,
        )
        for n_visitors, reading_s in ((1, 0.0), (args.visitors, READING_S), (args.visitors, 0.0))
    ]  # fmt: skip
    await asyncio.sleep(SESSIONS_DISCARDED_S)
    print(f"memory without visitors {server.memory_info().rss / 2**20:.0f} MiB")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000, help="Runs in the store.")
    parser.add_argument("--visitors", type=int, default=5, help="Simultaneous visitors.")
    parser.add_argument("--clicks", type=int, default=60, help="Clicks of all visitors together.")
    parser.add_argument("--store", type=Path, help="Folder of the store, reused if it exists.")
    parser.add_argument("--write-docs", action="store_true", help="Write the table into the page.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.store or Path(folder) / "store"
        ids_file = path.parent / f"{path.name}.txt"
        if not path.exists():
            ids = make_store(path, args.runs, n_tasks=1000, n_rows=40)
            ids_file.write_text("\n".join(f"{name} {value}" for name, value in ids.items()))
        ids = dict(line.split(maxsplit=1) for line in ids_file.read_text().splitlines())
        load = ", ".join(f"{mean:.1f}" for mean in os.getloadavg())
        print(f"{ids['n']} runs, {os.cpu_count()} cores, load {load}")
        with running_dashboard(path) as (url, server):
            rows = asyncio.run(measure_all(args, url, server, ids))
        show_table(__file__, "visitors", TABLES["visitors"], rows, write=args.write_docs)


if __name__ == "__main__":
    main()
