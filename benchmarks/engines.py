"""Compare the engines on workloads: ``python benchmarks/engines.py [--write-docs]``.

Measures each workload in Dask, Frisky and Dask's threads, in turn, on a local cluster of 2 workers
of 1 thread. Prints the time of each engine relative to Dask with intervals, where Frisky saves it,
and what `whatif --scheduler 0.1` predicts from a run in Dask. Needs a quiet machine, the extra
`frisky`, and a checkout. About 17 minutes.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402

import benchkit  # noqa: E402
from benchkit.analysis.compare.explain import explain  # noqa: E402
from benchkit.errors import BenchkitError  # noqa: E402
from benchkit.formatting import format_quantity  # noqa: E402
from benchkit.measure.discovery import collect  # noqa: E402
from benchkit.measure.engines import engine_named  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402

WORKLOADS = (
    "array.dot_product[data=uncompressible]",
    "array.ols",
    "array.percentile_topk",
    "array.svd_compressed",
    "array.tall_skinny_qr",
    "array.vorticity[data=uncompressible]",
    "df.drop_duplicates[split_out=8]",
    "df.repartition_uneven",
    "df.rolling",
    "df.value_counts[split_out=8]",
    "h2o.q1",
    "h2o.q5",
    "h2o.q7",
    "join.join_big_small[method=tasks]",
    "parquet.write_wide",
    "rechunk.heal_oversplit[method=tasks]",
    "sched.fan_in_out",
    "sched.graph_submit[megabytes=10]",
    "sched.tree",
    "shuffle.plain[method=tasks]",
    "tpch.q03",
    "xarray.climatic_mean[data=uncompressible]",
    "xarray.quadratic_mean[result_as=arrays]",
    "zarr.sum_residuals",
)
ENGINES = ("frisky", "threads")
TABLES = {
    "engines": ("workload", "Dask", "in tasks", "Frisky", "saved", "predicted", "threads"),
}
#: Kinds of seconds in an explanation -> in the table.
SAVED = {"idle before the first task": "before", "idle between tasks": "between",
         "idle after the last task": "after", "transfer": "transfers"}  # fmt: skip


def write_environments(folder: Path) -> None:
    """Write an environment of this interpreter for each engine."""
    cluster = "cluster: {n_workers: 2, threads_per_worker: 1, memory_limit: 1 GiB}"
    for engine in ("dask", *ENGINES):
        text = f"description: engine {engine}\nengine: {engine}\n{cluster}\n"
        (folder / f"engine-{engine}.yaml").write_text(text)


def saved(baseline: list[benchkit.Run], contender: list[benchkit.Run]) -> str:
    """Return where the engine saves seconds: around tasks, in transfers, or in tasks."""
    parts = explain(baseline, contender).parts
    kinds = parts["activity"].map(SAVED).fillna("in tasks")
    seconds = -parts["seconds"].groupby(kinds).sum()
    largest = seconds[seconds.abs() >= 0.1 * seconds.abs().sum()].sort_values(ascending=False)
    return ", ".join(f"{value:+.2f} s {kind}" for kind, value in largest.items())


def predicted(runs: list[benchkit.Run]) -> tuple[float, float, float] | None:
    """Return the duration with a scheduler ten times faster, and its interval; None: refused.

    Relative to the duration of the run; of several runs the one in the middle.
    """
    found = []
    for run in runs:
        try:
            (each,) = run.whatif(scheduler=0.1).predictions
        except BenchkitError as error:
            print(f"{run.workload}: {error}", file=sys.stderr)
        else:
            duration = run.metrics["duration"]
            found.append((each.seconds / duration, each.low / duration, each.high / duration))
    return sorted(found)[len(found) // 2] if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="runs of each workload and engine")
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS, help="only these")
    parser.add_argument("--store", help="store of the runs; default: a temporary one")
    parser.add_argument("--write-docs", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="engines-"))
    write_environments(folder)
    store = benchkit.Store(options.store or folder / "store")
    report = benchkit.ab(
        [f"engine-{engine}" for engine in ("dask", *ENGINES)], *options.workloads,
        repeats=options.repeats, null=False, metrics=["duration"], store=store,
        environment_folders=[folder],
    )  # fmt: skip
    for line in report.warnings:
        print(line, file=sys.stderr)
    runs = store.runs()
    ok = runs[runs["outcome"] == "ok"]
    reasons = runs[runs["outcome"] != "ok"].groupby(["workload", "engine"])["error"].first()
    found = report.frame.set_index(["workload", "contender"])
    rows, errors, overlaps = [], [], []
    for workload, measured in ok.groupby("workload"):
        opened = {
            engine: [store.open(run_id) for run_id in each["id"]]
            for engine, each in measured.groupby("engine")
        }
        own = measured[measured["engine"] == "dask"].median(numeric_only=True)
        share = own["compute_time"] / own["n_threads"] / own["duration"]
        cells = [f"`{workload}`", format_quantity(own["duration"], "s"), f"{share:.0%}"]
        for engine in ENGINES:
            key = workload, f"engine-{engine}"
            row = found.loc[key] if key in found.index else None
            if row is None or not row["n_contender"]:
                reason = str(reasons.get((workload, engine), "not measured"))
                cells.append(reason.removeprefix(f"engine {engine} has ").partition(", which")[0])
                cells += ["", ""] if engine == "frisky" else []
                continue
            cells.append(f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})")
            if engine == "frisky":
                text = "refused"
                if (prediction := predicted(opened["dask"])) is not None:
                    ratio, low, high = prediction
                    text = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
                    errors.append(abs(np.log(ratio / row["ratio"])))
                    overlaps.append(low <= row["high"] and row["low"] <= high)
                cells += [saved(opened["dask"], opened[engine]), text]
        rows.append(cells)
    rows.sort(key=lambda cells: cells[3])
    error = np.exp(np.median(errors)) - 1
    variants = collect(HERE.parent / "workloads").variants()
    n_run = {e: sum(not engine_named(e).refusal(each) for each in variants) for e in ENGINES}
    below = (
        f'Time relative to Dask with its 95 % interval, {options.repeats} runs each; "in tasks" '
        'is the share of the threads\' time in Dask that tasks computed; "predicted" is '
        f"`whatif --scheduler 0.1` of the runs in Dask: {error:.0%} from Frisky (median), and the "
        f"intervals overlap in {sum(overlaps)} of {len(overlaps)} workloads. "
        f"Of the {len(variants)} variants that benchkit ships, {n_run['frisky']} run in Frisky and "
        f"{n_run['threads']} in the local schedulers; the others are refused by name."
    )
    show_table(__file__, "engines", TABLES["engines"], rows, write=options.write_docs, below=below)


if __name__ == "__main__":
    main()
