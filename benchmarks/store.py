"""Measure the store: ``python benchmarks/store.py [--folder DIR] [--writers N ...] [--quick]``.

Prints absolute numbers and ratios, asserts nothing: on a shared machine milliseconds vary by a
factor of two between repeats, ratios hardly. Needs a checkout, for the tests' synthetic runs.
"""

import argparse
import json
import multiprocessing
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import xarray as xr  # noqa: E402
from validation.large_index import fill_index  # noqa: E402
from validation.synthetic_runs import make_run  # noqa: E402

from benchkit.measure.run_ids import new_id  # noqa: E402
from benchkit.store.runfile import encode_tree  # noqa: E402
from benchkit.store.store import Store  # noqa: E402

COLUMNS = [
    "workload",
    "started",
    "environment",
    "outcome",
    "duration",
    "memory_peak",
    "compute_time",
    "transfer_time",
]


def median_ms(work: Callable[[], Any], repeats: int = 7) -> float:
    """Return the median time of a call in ms, after one call to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def row(what: str, value: str, note: str = "") -> None:
    print(f"{what:<58} {value:>12}  {note}", flush=True)


def renamed(run: xr.DataTree) -> xr.DataTree:
    """Return a copy of the run with a new id."""
    run_id = new_id()
    copy = run.copy()
    record = json.loads(run.attrs["record"]) | {"id": run_id}
    copy.attrs = {**run.attrs, "id": run_id, "record": json.dumps(record)}
    return copy


def add_whole(path: Path, run: xr.DataTree, data: bytes) -> Callable[[], None]:
    """Return a function that adds a run to a store, encoding included."""
    store = Store(path)
    return lambda: store.add(renamed(run))


def add_encoded(path: Path, run: xr.DataTree, data: bytes) -> Callable[[], None]:
    """Return a function that does the two durable writes of an add."""
    store, record = Store(path), json.loads(run.attrs["record"])

    def add() -> None:
        run_id = new_id()
        store.files.create(f"runs/2026-08/{run_id}.nc", data)
        store.index.add(record | {"id": run_id})

    return add


def add_to_sqlite(path: Path, run: xr.DataTree, data: bytes) -> Callable[[], None]:
    """Return a function that inserts an encoded run into a database, durably."""
    database = sqlite3.connect(path / "runs.db", timeout=60, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, record TEXT, run BLOB)")
    record = run.attrs["record"]
    return lambda: database.execute("INSERT INTO runs VALUES (?, ?, ?)", (new_id(), record, data))


#: Ways to add a run; the first is what a user waits for.
WAYS = {
    "whole add": add_whole,
    "both durable writes, without encoding": add_encoded,
    "SQLite in WAL mode, encoded before": add_to_sqlite,
}


def write(way: str, path: Path, n_runs: int, ready: Any, latencies: Any) -> None:
    run = make_run(n_samples=60, n_workers=4, n_tasks=500)
    add = WAYS[way](path, run, encode_tree(run))
    times = []
    ready.wait()
    for _ in range(n_runs):
        start = time.perf_counter()
        add()
        times.append(time.perf_counter() - start)
    latencies.put(times)


def add_rate(way: str, folder: Path, n_writers: int, n_runs: int) -> tuple[float, np.ndarray]:
    """Return adds per second of several processes, and the time of each add in ms."""
    context = multiprocessing.get_context("fork")
    ready, latencies = context.Barrier(n_writers + 1), context.Queue()
    path = folder / "adds"
    Store(path).create()
    arguments = (way, path, max(1, n_runs // n_writers), ready, latencies)
    writers = [context.Process(target=write, args=arguments) for _ in range(n_writers)]
    for writer in writers:
        writer.start()
    ready.wait()
    start = time.perf_counter()
    times = np.concatenate([latencies.get() for _ in writers]) * 1e3
    rate = len(times) / (time.perf_counter() - start)
    for writer in writers:
        writer.join()
    if way == "whole add" and len(Store(path)) != len(times):
        raise SystemExit(f"{len(times)} runs were added, {len(Store(path))} are in the store")
    shutil.rmtree(path)
    return rate, times


def adds(folder: Path, n_writers: int, n_runs: int, rounds: int = 3) -> None:
    """Print adds/s of each way, and its ratio to SQLite; the ways take turns in each round."""
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    times: dict[str, list[np.ndarray]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            rate, latencies = add_rate(way, folder, n_writers, n_runs)
            rates[way].append(rate)
            times[way].append(latencies)
    base = np.array(rates["SQLite in WAL mode, encoded before"])
    for way in WAYS:
        median, late = np.percentile(np.concatenate(times[way]), [50, 99])
        ratio = statistics.median(np.array(rates[way]) / base)
        note = f"{ratio:.2f} x SQLite, median {median:.1f} ms, p99 {late:.0f} ms an add"
        row(f"adds/s, {n_writers} writers, {way}", f"{statistics.median(rates[way]):.0f}/s", note)


def one_run(folder: Path) -> None:
    run = make_run(n_samples=300, n_workers=4, n_tasks=5000)
    store = Store(folder / "one")
    run_id = store.add(run)
    (path,) = store.path.glob("runs/*/*.nc")
    ours = median_ms(lambda: encode_tree(run))
    theirs = median_ms(lambda: run.to_netcdf(folder / "x.nc", engine="h5netcdf"), 3)
    size = path.stat().st_size / 1000
    row("encode a run of 5 000 tasks", f"{ours:.1f} ms", f"{size:.0f} kB")
    row("  by DataTree.to_netcdf, h5netcdf", f"{theirs:.1f} ms", f"{theirs / ours:.1f} x")
    opened = median_ms(lambda: store.open(run_id))
    row("open a run", f"{opened:.1f} ms")
    for engine in ("netcdf4", "h5netcdf"):
        try:
            other = median_ms(lambda engine=engine: xr.open_datatree(path, engine=engine).close())
        except (ImportError, ValueError):
            continue
        row(f"  by xarray's engine {engine}", f"{other:.1f} ms", f"{other / opened:.1f} x")


def opens(folder: Path, n_runs: int) -> None:
    """Print CPU times to read a large index as multiples of SQLite's, interleaved."""
    store = fill_index(folder / f"index-{n_runs}", n_runs)
    frame = store.runs(columns=["id", *COLUMNS])
    database = sqlite3.connect(folder / f"index-{n_runs}.db")
    database.execute("PRAGMA journal_mode=WAL")
    frame.to_sql("runs", database, index=False, chunksize=100_000)
    database.execute("CREATE INDEX by_workload ON runs (workload)")
    del frame
    names = ", ".join(COLUMNS)
    some = "WHERE workload = 'array.work_3'"
    latest = "SELECT id FROM runs ORDER BY started DESC LIMIT 1"
    paths = sorted(store.path.glob("index/*.parquet"))
    prefix = store.resolve("latest")[:13]

    def bare() -> pd.DataFrame:
        tables = [pq.read_table(path, columns=COLUMNS, memory_map=True) for path in paths]
        return pa.concat_tables(tables).to_pandas()

    def query(text: str) -> Callable[[], Any]:
        return lambda: pd.read_sql_query(text, database)

    size = sum(path.stat().st_size for path in paths) / 1e6
    row(f"index of {n_runs} runs", f"{size:.0f} MB")
    for what, ours, theirs in (
        ("8 columns", lambda: store.runs(columns=COLUMNS), query(f"SELECT {names} FROM runs")),
        ("8 columns by bare Parquet", bare, query(f"SELECT {names} FROM runs")),
        ("8 columns of one workload of 100",
         lambda: store.runs("array.work_3", columns=COLUMNS),
         query(f"SELECT {names} FROM runs {some}")),
        ("count", lambda: len(store), query("SELECT count(*) FROM runs")),
        ("latest", lambda: store.resolve("latest"), query(latest)),
        ("beginning of an id", lambda: store.resolve(prefix),
         query(f"SELECT id FROM runs WHERE id >= '{prefix}' AND id < '{prefix}~'")),
    ):  # fmt: skip
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(3 if n_runs > 500_000 else 5):
            for work, spent in zip((ours, theirs), times, strict=True):
                start = time.process_time()
                work()
                spent.append(time.process_time() - start)
        mine, other = (min(spent) * 1e3 for spent in times)
        note = f"median {statistics.median(times[0]) * 1e3:.1f} ms; "
        note += f"SQLite {other:.1f} ms, {other / max(mine, 1e-3):.1f} x"
        row(f"  {what}, CPU", f"{mine:.1f} ms", note)
    database.close()
    shutil.rmtree(store.path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--writers", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--runs", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        one_run(folder)
        for n_writers in options.writers:
            adds(folder, n_writers, 320 // share, rounds=1 if options.quick else 3)
        for n_runs in options.runs:
            opens(folder, n_runs // share)


if __name__ == "__main__":
    main()
