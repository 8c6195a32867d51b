"""Compare the engines on workloads: ``python benchmarks/engines.py [--write-docs]``.

Measures each workload in Dask, Frisky and Dask's threads, in turn, on a local cluster of 2 workers
of 1 thread. Prints the time of each engine relative to Dask, with intervals. Needs a quiet machine,
the extra `frisky`, and a checkout. About 15 minutes.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import benchkit  # noqa: E402
from benchkit.formatting import format_quantity  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402

WORKLOADS = (
    "array.dot_product[data=uncompressible]",
    "array.fancy_index[indices=sorted]",
    "array.ols",
    "array.percentile_topk",
    "array.svd_compressed",
    "array.tall_skinny_qr",
    "array.vorticity[data=uncompressible]",
    "csv.basic",
    "df.filter",
    "df.merge_asof",
    "df.repartition_uneven",
    "df.rolling",
    "df.value_counts[split_out=8]",
    "h2o.q1",
    "h2o.q5",
    "join.join_big_small[method=tasks]",
    "parquet.write_wide",
    "sched.fan_in_out",
    "sched.graph_submit[megabytes=10]",
    "sched.tree",
    "shuffle.plain[method=tasks]",
    "tpch.q01",
    "tpch.q03",
    "xarray.quadratic_mean[result_as=arrays]",
    "zarr.sum_residuals",
)
ENGINES = ("frisky", "threads")
COLUMNS = ("workload", "Dask", "in tasks", "Frisky", "threads")


def write_environments(folder: Path) -> None:
    """Write an environment of this interpreter for each engine."""
    cluster = "cluster: {n_workers: 2, threads_per_worker: 1, memory_limit: 1 GiB}"
    for engine in ("dask", *ENGINES):
        text = f"description: engine {engine}\nengine: {engine}\n{cluster}\n"
        (folder / f"engine-{engine}.yaml").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of each workload and engine")
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS, help="only these")
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="engines-"))
    write_environments(folder)
    store = benchkit.Store(folder / "store")
    report = benchkit.ab(
        [f"engine-{engine}" for engine in ("dask", *ENGINES)], *options.workloads,
        repeats=options.repeats, null=False, metrics=["duration"], store=store,
        environment_folders=[folder],
    )  # fmt: skip
    runs = store.runs()
    ok = runs[runs["outcome"] == "ok"]
    in_dask = ok[ok["engine"] == "dask"].groupby("workload")[
        ["duration", "compute_time", "n_threads"]
    ].median()  # fmt: skip
    found = report.frame.set_index(["workload", "contender"])
    reasons = runs[runs["outcome"] != "ok"].groupby(["workload", "environment"])["error"].first()
    rows = []
    for workload, own in in_dask.iterrows():
        share = own["compute_time"] / own["n_threads"] / own["duration"]
        cells = [f"`{workload}`", format_quantity(own["duration"], "s"), f"{share:.0%}"]
        for engine in ENGINES:
            key = workload, f"engine-{engine}"
            row = found.loc[key] if key in found.index else None
            if row is not None and row["n_contender"]:
                cells.append(f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})")
            else:
                cells.append(str(reasons.get(key, "not measured"))[:60])
        rows.append(cells)
    rows.sort(key=lambda cells: cells[3])
    below = (
        'Time relative to Dask with its 95 % interval; "in tasks" is the share of the threads\' '
        "time in Dask that tasks computed."
    )
    show_table(__file__, "engines", COLUMNS, rows, write=options.write_docs, below=below)
    for line in report.warnings:
        print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
