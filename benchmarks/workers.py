"""Measure how costs grow with the number of workers.

    python benchmarks/workers.py
    python benchmarks/workers.py --quick

``capture``: the scheduler's state machine with workers that never answer: CPU that a full capture
adds per task, CPU of one sample after a heartbeat of each worker, CPU and bytes of one drain.
``runs``: simulated runs of pairs of tasks, ten for each worker, which the usual code builds from a
recording: CPU to build the run and to encode it, bytes of the run file, entries of transfers, CPU
to open the run, CPU and bytes of the report and of the dashboard's page of transfers.
``cluster``: a run on real workers that share this process: CPU time and wall time of the cluster's
start, of the capture's start, of two tasks per worker, and of the capture's end.

Prints CPU time, which other load on the machine changes less than wall time; asserts nothing.
``--write-docs`` writes the tables into docs/many-workers.md.
"""

import argparse
import asyncio
import gc
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import dask  # noqa: E402
import visitor  # noqa: E402
from distributed import Client, LocalCluster, Scheduler, wait  # noqa: E402

from validation.dashboard_server import running_dashboard  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402
from validation.scheduler_rig import (  # noqa: E402
    WARM_UP,
    capturing,
    fake_worker,
    run_tasks,
)

import benchkit  # noqa: E402
from benchkit.measure.capture import CapturePlugin  # noqa: E402
from benchkit.measure.run_ids import new_id  # noqa: E402
from benchkit.simulation.entrypoint import simulate_request  # noqa: E402
from benchkit.simulation.synthetic import make_graph  # noqa: E402
from benchkit.store.build.run_from_recording import run_from_recording  # noqa: E402
from benchkit.store.runfile import encode_run  # noqa: E402

#: Part -> columns of its table.
TABLES = {
    "capture": (
        "workers", "added per task", "sample after a heartbeat of each worker",
        "drain each second", "drained",
    ),
    "runs": (
        "workers", "build", "encode", "run file", "pairs with transfers", "open", "report",
        "transfers page",
    ),
    "cluster": ("workers", "cluster", "capture starts", "tasks", "capture ends"),
}  # fmt: skip
N_WORKERS = (10, 100, 300, 1000)
#: Tasks in one timed piece of work, between two samples.
PIECE = 2000
TASKS_PER_WORKER = 10
#: Configuration of workers that share a process: with the defaults a thousand take whole cores.
QUIET_WORKERS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.interval": "10s",
    "distributed.worker.memory.monitor-interval": "10s",
    "distributed.comm.timeouts.connect": "300s",
}


@contextmanager
def cpu_of(measure: Callable[[], float]) -> Iterator[list[float]]:
    """Append the CPU seconds of the code inside the block to the yielded list."""
    taken: list[float] = []
    begin = measure()
    yield taken
    taken.append(measure() - begin)


async def capture(counts: list[int], rounds: int) -> list[list[str]]:
    """Return what a full capture adds on a scheduler with workers that never answer."""
    rows = []
    for count in counts:
        with dask.config.set({"distributed.scheduler.worker-ttl": None}):
            scheduler = Scheduler(port=0, dashboard=False, validate=False)
        async with scheduler:
            states = [fake_worker(scheduler, f"tcp://127.0.0.1:{i + 1}") for i in range(count)]
            added, bare, samples, drains, sizes = [], [], [], [], []
            gc.collect()
            gc.freeze()
            for number in range(rounds):
                run_tasks(scheduler, WARM_UP, lambda: None)
                bare.append(run_tasks(scheduler, PIECE, lambda: None))
                plugin = CapturePlugin("bench")
                async with capturing(scheduler, plugin):
                    run_tasks(scheduler, WARM_UP, plugin._sample)
                    added.append(run_tasks(scheduler, PIECE, plugin._sample) - bare[-1])
                    for state in states:
                        state.last_seen = number + time.time()
                    with cpu_of(time.thread_time) as taken:
                        plugin.samples.sample_workers()
                        plugin.samples.sample_scheduler()
                    samples += taken
                    with cpu_of(time.thread_time) as taken:
                        tables = (await plugin.handle_drain(ack=0))["tables"]
                    drains += taken
                    sizes.append(sum(len(bytes(t)) for t in tables.values() if _is_bytes(t)))
            scheduler.workers.clear()
        each, more, sample, drain = (
            statistics.median(values) for values in (bare, added, samples, drains)
        )
        print(f"{count} workers: a task itself takes {1e6 * each:.0f} µs", flush=True)
        noise = statistics.median(abs(value - more) for value in added) / len(added) ** 0.5
        rows.append([
            f"{count:,}", f"{1e6 * more:.0f} µs" if more > 2 * noise else "below noise",
            f"{1e3 * sample:.1f} ms", f"{1e3 * drain:.1f} ms",
            f"{statistics.median(sizes) / 1e3:.0f} kB",
        ])  # fmt: skip
    return rows


def _is_bytes(table: Any) -> bool:
    return isinstance(table, (bytes, bytearray, memoryview))


def nothing(*inputs: Any) -> bytes:
    """Return a small result."""
    return bytes(1000)


def measure_cluster(count: int, store: Path) -> list[str]:
    """Return the CPU seconds of a capture on workers in this process; print the wall times."""
    options = {"n_workers": count, "threads_per_worker": 1, "memory_limit": 0}
    moments = [(time.process_time(), time.monotonic())]

    def note() -> None:
        moments.append((time.process_time(), time.monotonic()))

    with (
        LocalCluster(**options, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(count, timeout=600)
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        note()
        with benchkit.record(client, workload="bench.workers", store=store):
            note()
            tasks = []
            for worker, other in zip(workers, [*workers[1:], *workers[:1]], strict=True):
                with dask.annotate(workers=[worker]):
                    tasks.append(dask.delayed(nothing, pure=False)())
                with dask.annotate(workers=[other]):
                    tasks.append(dask.delayed(nothing, pure=False)(tasks[-1]))
            # One graph: the scheduler reads graphs one after another, each in several turns of the
            # event loop, which 1,000 workers share.
            futures = client.compute(tasks, optimize_graph=False)
            wait(futures)
            note()
        note()
    taken = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(moments)]
    print(f"{count} workers, wall times:", *(f"{wall:.1f} s" for _, wall in taken), flush=True)
    return [f"{count:,}", *(f"{cpu:.1f} s" for cpu, _ in taken)]


def measure_run(count: int, store: benchkit.Store, folder: Path) -> tuple[str, list[str]]:
    """Simulate one run; return its id and the cells of its row."""
    graph = make_graph("pairs", {"n": count * TASKS_PER_WORKER // 2})
    request = {
        "graph": graph.to_dict(), "shape": {"workers": count, "threads": 1}, "model": {}, "draw": 0,
        "folder": str(folder), "id": new_id(),
        "facts": {"workload": graph.name, "category": "graph", "environment": "current"},
    }  # fmt: skip
    recording = simulate_request(json.loads(json.dumps(request)))
    cells = []
    with cpu_of(time.process_time) as taken:
        tree = run_from_recording(recording)
    cells.append(f"{1e3 * taken[0]:.0f} ms")
    with cpu_of(time.process_time) as taken:
        _, _, content = encode_run(tree)
    cells += [f"{1e3 * taken[0]:.0f} ms", f"{len(content) / 1e3:.0f} kB"]
    run_id = store.add(tree)
    with cpu_of(time.process_time) as taken:
        run = store.open(run_id)
        run.tree.load()
    return run_id, [*cells, f"{run.transfers().sizes['pair']:,}", f"{1e3 * taken[0]:.0f} ms"]


def report(run_id: str, store: Path, folder: Path) -> str:
    """Return CPU and size of the report of a run."""
    target = folder / f"{run_id}.html"
    command = ["report", "run", run_id, "--store", str(store), "--output", str(target)]
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "benchkit", *command], check=True, stdout=subprocess.DEVNULL
    )
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return f"{used:.1f} s, {target.stat().st_size / 1e6:.1f} MB"


def transfers_pages(runs: list[str], store: Path) -> Iterator[str]:
    """Yield CPU of the server and bytes of the dashboard's page of transfers of each run."""
    with running_dashboard(store) as (address, server):
        url = address.rstrip("/") + "/"
        asyncio.run(visitor.visit(url, "view=runs"))  # imports everything
        for run_id in runs:
            sizes: list[int] = []
            with cpu_of(lambda: sum(server.cpu_times()[:2])) as taken:
                page = f"view=run&id={run_id}&tab=transfers"
                asyncio.run(visitor.visit(url, page, sizes=sizes))
            yield f"{taken[0]:.1f} s, {sum(sizes) / 1e6:.2f} MB"


def main() -> None:
    """Print all parts, or those that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "part", nargs="*", choices=["capture", "runs", "cluster", []], help="default: the first two"
    )
    parser.add_argument("--workers", nargs="+", type=int, default=list(N_WORKERS))
    parser.add_argument("--rounds", type=int, default=21, help="of the capture")
    parser.add_argument("--quick", action="store_true", help="10 and 20 workers, 3 rounds")
    parser.add_argument("--write-docs", action="store_true", help="write the tables into the page")
    given = parser.parse_args()
    if given.quick and given.write_docs:
        parser.error("--write-docs needs a whole measurement: omit --quick")
    if given.quick:
        given.workers, given.rounds = [10, 20], 3
    parts = given.part or ["capture", "runs"]
    logging.getLogger("distributed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=r"(?s)\s*Port \d+ is already in use")
    for part in parts:
        with tempfile.TemporaryDirectory() as name:
            if part == "capture":
                rows = asyncio.run(capture(given.workers, given.rounds))
            elif part == "runs":
                rows = all_runs(given.workers, Path(name))
            else:
                with dask.config.set(QUIET_WORKERS):
                    rows = [measure_cluster(n, Path(name) / "store") for n in given.workers]
        show_table(__file__, part, TABLES[part], rows, write=given.write_docs)


def all_runs(counts: list[int], folder: Path) -> list[list[str]]:
    """Return what each run costs after its measurement."""
    store = benchkit.Store(folder / "store")
    measure_run(counts[0], store, folder)  # imports everything
    runs = [measure_run(count, store, folder) for count in counts]
    reports = [report(run_id, folder / "store", folder) for run_id, _ in runs]
    pages = transfers_pages([run_id for run_id, _ in runs], folder / "store")
    rows = zip(counts, runs, reports, pages, strict=True)
    return [[f"{count:,}", *cells, text, page] for count, (_, cells), text, page in rows]


if __name__ == "__main__":
    main()
