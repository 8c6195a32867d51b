"""Measure `benchkit query`: ``python benchmarks/query.py [--runs N] [--tasks N] [--folder DIR]``.

Makes the tables of a few runs by the code of the cache and links them until there are as many runs
as wanted, so that it needs little disk. Prints the size of the tables relative to the tasks in the
run files, and the time of some queries when the files are in memory. Needs a checkout, for the
tests' synthetic runs.

Where the time of "median by prefix" goes, in ns of CPU per row on one thread (DuckDB 2.0.1, 4
million rows of gamma-distributed durations in the order of a task stream, lowest of seven):

==================================  =====
read and decode the durations         8.3
+ a median of all, without groups    24.4
+ groups of one column of text       32.3
+ groups of two columns of text      37.6
==================================  =====

The cache therefore sorts the tasks of a run by prefix and duration: 100 million rows take 3.4 s of
CPU instead of 4.2 to 4.8 s, and 3 % fewer bytes. One second would need four cores. Alternatives
measured and not taken, each next to the unsorted layout in the same process (37 to 42 ns):
LZ4 instead of Zstandard saves 1 ns, no compression 3 ns; ENUM in the view costs 40 ns; integers
instead of text save 2 ns (8 ns in a single file, by perfect hashing). A database of DuckDB instead
of Parquet saves 2 ns with text and 16 ns with ENUM, but each batch of runs has its own ENUM, and
their union is text again. float32 or whole microseconds save 5 ns and change the values.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

import numpy as np  # noqa: E402
import xarray as xr  # noqa: E402
from helpers.synthetic_runs import make_run  # noqa: E402

from benchkit.store.query.database import query  # noqa: E402
from benchkit.store.query.table_cache import TableCache  # noqa: E402
from benchkit.store.runfile.writer import encode_tree  # noqa: E402
from benchkit.store.store import Store  # noqa: E402

#: Different runs; the others are links to their tables.
N_DISTINCT = 5
QUERIES = {
    "median by prefix": "SELECT workload, prefix, median(duration) FROM tasks GROUP BY ALL",
    "number of tasks": "SELECT count(*) FROM tasks",
    "mean and count by prefix": (
        "SELECT workload, prefix, avg(duration), count(*) FROM tasks GROUP BY ALL"
    ),
    "bytes of one workload": "SELECT sum(nbytes) FROM tasks WHERE workload = 'array.work_3'",
    "median over task groups": (
        "SELECT workload, prefix, median(duration_median) FROM task_groups GROUP BY ALL"
    ),
}


def realistic_run(seed: int, n_tasks: int) -> xr.DataTree:
    """Return a run whose times and sizes compress as those of a real run."""
    tree = make_run(f"array.work_{seed % 10}", n_tasks=n_tasks, n_workers=8, seed=seed)
    random = np.random.default_rng(seed)
    stop = np.sort(random.uniform(0, 100, n_tasks))
    duration = random.gamma(2.0, 0.01, n_tasks)
    group = np.minimum(stop // 40, 2).astype("i4")
    columns = {
        "group": group,
        "worker": random.integers(0, 8, n_tasks, "i4"),
        "thread": random.integers(0, 2, n_tasks, "i4"),
        "ok": np.ones(n_tasks, "i1"),
        "nbytes": np.array([800_000, 8_000, 8])[group],
        "start": stop - duration,
        "duration": duration,
        "task_node": random.permutation(n_tasks).astype("i4"),
    }
    tasks = tree["tasks"].to_dataset()
    tree["tasks"] = xr.DataTree(tasks.assign({k: ("task", v) for k, v in columns.items()}))
    return tree


def task_bytes(tree: xr.DataTree) -> int:
    """Return the bytes of a run file that its tasks take."""
    without = tree.copy()
    del without["tasks"]
    return len(encode_tree(tree)) - len(encode_tree(without))


def fill(cache: TableCache, n_runs: int) -> None:
    """Link the tables in the cache until there are as many runs."""
    (batch,) = cache.folder.glob("batch-*")
    ids = json.loads((batch / "runs.json").read_text())["ids"]
    # Batches of fewer runs would be made anew together.
    (batch / "runs.json").write_text(json.dumps({"ids": ids * 13}))
    for number in range(1, n_runs // N_DISTINCT):
        copy = batch.with_name(f"{batch.name}-{number}")
        copy.mkdir()
        for path in batch.iterdir():
            os.link(path, copy / path.name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        os.environ["BENCHKIT_CACHE"] = folder
        store = Store(Path(folder) / "store")
        in_files = 0
        for seed in range(N_DISTINCT):
            tree = realistic_run(seed, options.tasks)
            in_files += task_bytes(tree) if seed < 3 else 0
            store.add(tree)
        cache = TableCache(store)
        begin = time.perf_counter()
        cache.update(store.ids())
        seconds = (time.perf_counter() - begin) / N_DISTINCT
        (tasks,) = cache.files("tasks")
        ratio = tasks.stat().st_size / N_DISTINCT / (in_files / 3)
        row = f"{tasks.stat().st_size / N_DISTINCT / options.tasks:.1f} B a task"
        print(f"{options.runs} runs x {options.tasks} tasks: {row}, {seconds:.2f} s to add a run")
        print(f"tables of tasks / tasks in run files: {ratio:.2f}")
        fill(cache, options.runs)
        for name, sql in QUERIES.items():
            times = []
            for _ in range(4):
                begin, cpu = time.perf_counter(), time.process_time()
                answer = query(store, sql)
                times.append((time.perf_counter() - begin, time.process_time() - cpu))
            wall, cpu = (statistics.median(column) for column in zip(*times[1:], strict=True))
            result = f"{answer.iloc[0, -1]:.6g}, {len(answer)} rows"
            print(f"{name:30} {wall:6.2f} s ({cpu:.2f} s of CPU): {result}")
        print(json.dumps({"size_ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
