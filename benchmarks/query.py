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

The cache therefore sorts the tasks of a run by prefix and duration, and compresses by LZ4:
100 million rows take 3.4 s of CPU (Zstandard: 3.7 s, unsorted: 4.2 to 4.8 s), and 0.77 of the bytes
of the tasks in the run files (Zstandard: 0.70). The goal of one second is missed on two cores. The
reason is the exact median: collecting the values and selecting from them takes 16 ns of the 34 ns,
whatever the layout, so 0.8 s on two perfectly used cores before a byte is decoded. DuckDB has no
median that uses sorted values, and a selection in benchkit instead would not be SQL.

Measured and not taken, on durations as in the benchmark (multiples of 2**-22 s, gamma-distributed):

======================================================  ============  ==========  =========
100 million rows on two cores, a table with durations    wall time    CPU         B a row
======================================================  ============  ==========  =========
a file per workload and prefix (Hive), Zstandard         1.51 s       2.49 s      1.31
… LZ4                                                    1.37 s       2.32 s      1.60
… not compressed                                         1.30 s       2.23 s      8.01
… LZ4, without nulls                                     1.33 s       2.32 s      1.59
… int32 of 2**-22 s, DELTA_BINARY_PACKED                 1.04 s       1.82 s      0.60
======================================================  ============  ==========  =========

Columns from the names of folders are constant vectors, for which DuckDB looks up the group once per
vector: 21.9 instead of 31.5 ns. Row groups of one workload and prefix are not read as constant
vectors: 29.6 ns. Files per workload and prefix are not taken because 1.4 s is still not the goal,
and a store with 100 workloads would have thousands of them, at 0.1 ms each. Integers are exact (all
103,995 durations of 318 real runs are multiples of 2**-22 s, the step of `time.time()`), but a view
that converts them has the median over float64 again, and 2 ns more.

Durations of 4 bytes in one file, float32 or DECIMAL(9, 7), take 20 to 22 ns instead of 32, so 1.0
to 1.1 s on two perfectly used cores; float32 in a file per workload and prefix takes 15 ns (DuckDB
2.0.1, one thread, lowest of nine on a loaded machine). Not taken: float32 holds only durations up
to 4 s exactly, the decimals end at 100 s and can overflow in products, and either misses the goal
without thousands of files.

Earlier, without sorting (37 to 42 ns): ENUM in the view costs 40 ns; integers instead of text save
2 ns (8 ns in a single file, by perfect hashing). A database of DuckDB instead of Parquet saves 2 ns
with text and 16 ns with ENUM, but each batch of runs has its own ENUM, and their union is text
again.
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
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
import xarray as xr  # noqa: E402
from validation.synthetic_runs import make_run  # noqa: E402

from benchkit.store.query import TableCache, query  # noqa: E402
from benchkit.store.runfile import encode_tree  # noqa: E402
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
    stop = _clock_values(np.sort(random.uniform(0, 100, n_tasks)))
    duration = _clock_values(random.gamma(2.0, 0.01, n_tasks))
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


def _clock_values(seconds: np.ndarray) -> np.ndarray:
    """Return differences of two times of `time.time()`: float64 in 2026 has steps of 2**-22 s."""
    return np.round(seconds * 2**22) / 2**22


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
