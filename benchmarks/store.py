"""Measure the store: ``python benchmarks/store.py [--folder DIR] [--writers N] [--quick]``.

Prints absolute numbers and ratios, asserts nothing: on a shared machine milliseconds vary by a
factor of two between repeats, ratios hardly. Needs a checkout, for the tests' synthetic runs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

import numpy as np  # noqa: E402
import xarray as xr  # noqa: E402
from helpers.synthetic_runs import make_record, make_run  # noqa: E402

from benchkit.measure.run_ids import new_id  # noqa: E402
from benchkit.store.runfile.writer import encode_tree  # noqa: E402
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


def write(path: Path, n_runs: int, encode: bool, ready: Any, latencies: Any) -> None:
    run = make_run(n_samples=60, n_workers=4, n_tasks=500)
    store, times = Store(path), []
    data = encode_tree(run)
    store.create()
    ready.wait()
    for _ in range(n_runs):
        start = time.perf_counter()
        if encode:
            store.add(renamed(run))
        else:
            # `add` without the encoding, which uses CPU on the measuring side: the two durable
            # writes only.
            run_id = new_id()
            store.files.create(f"runs/2026-08/{run_id}.nc", data)
            store.catalogue.add(json.loads(run.attrs["record"]) | {"id": run_id})
        times.append(time.perf_counter() - start)
    latencies.put(times)


def adds(folder: Path, n_writers: int, n_runs: int, encode: bool) -> float:
    context = multiprocessing.get_context("fork")
    ready, latencies = context.Barrier(n_writers + 1), context.Queue()
    path = folder / f"adds-{n_writers}-{encode}"
    writers = [
        context.Process(target=write, args=(path, n_runs, encode, ready, latencies))
        for _ in range(n_writers)
    ]
    for writer in writers:
        writer.start()
    ready.wait()
    start = time.perf_counter()
    times = np.concatenate([latencies.get() for _ in writers]) * 1e3
    rate = len(times) / (time.perf_counter() - start)
    for writer in writers:
        writer.join()
    what = "whole add" if encode else "both durable writes, without encoding"
    median, late = np.percentile(times, [50, 99])
    note = f"median {median:.1f} ms, p99 {late:.0f} ms an add"
    row(f"adds/s, {n_writers} writers, {what}", f"{rate:.0f}/s", note)
    kept = len(Store(path))
    row("  runs kept of those added", f"{kept}/{len(times)}")
    shutil.rmtree(path)
    return rate


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


def catalogue(folder: Path, n_records: int) -> None:
    rng = np.random.default_rng(0)
    store = Store(folder / f"catalogue-{n_records}")
    store.create()
    new = store.path / "index" / "new"
    new.mkdir(parents=True)
    for index in range(n_records):  # write directly: `add` would call fsync for each
        record = make_record(index, rng)
        (new / f"{record['id']}.json").write_text(json.dumps(record))
    start = time.perf_counter()
    store.compact()
    row(f"compact {n_records} records", f"{time.perf_counter() - start:.2f} s")
    size = sum(path.stat().st_size for path in store.path.rglob("*.parquet")) / 1e6
    chosen = median_ms(lambda: store.runs(columns=COLUMNS))
    row(f"runs() of {n_records} runs, 8 columns", f"{chosen:.0f} ms", f"{size:.0f} MB of Parquet")
    whole = median_ms(store.runs, 3)
    row("  all columns", f"{whole:.0f} ms", f"{whole / chosen:.1f} x")
    few = median_ms(lambda: store.runs("array.*", outcome="ok", variant="A", columns=COLUMNS))
    row("  8 columns, by workload, outcome and tag", f"{few:.0f} ms")
    store.mark("bankruptcy", workload="shuffle.*", where={"variant": "B"}, before="2024-06-01")
    store.mark("rename", from_="frame.work_1", to="frame.join")
    marked = median_ms(lambda: store.runs(columns=COLUMNS))
    row("  8 columns, with two marks", f"{marked:.0f} ms", f"{marked / chosen:.1f} x")
    dataset = median_ms(lambda: store.dataset(columns=COLUMNS), 3)
    row("  8 columns as a Dataset", f"{dataset:.0f} ms")
    ids = median_ms(lambda: len(store))
    row("  len()", f"{ids:.0f} ms")
    for index in range(400):
        record = make_record(index, rng)
        (new / f"{record['id']}.json").write_text(json.dumps(record))
    pending = median_ms(lambda: Store(store.path).runs(columns=COLUMNS), 3)
    row("  8 columns, 400 records not yet compacted, just opened", f"{pending:.0f} ms")
    pending = median_ms(lambda: store.runs(columns=COLUMNS), 3)
    row("  8 columns, 400 records not yet compacted, again", f"{pending:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        one_run(folder)
        for encode in (True, False):
            alone = adds(folder, 1, 200 // share, encode)
            many = adds(folder, options.writers, 200 // share, encode)
            row("  many writers / one writer", f"{many / alone:.1f} x")
        for n_records in (10_000, 100_000):
            catalogue(folder, n_records // share)


if __name__ == "__main__":
    main()
