"""Measure three and a half years of Dask: ``python benchmarks/dask_history.py [--hours 2]``.

A release of each month since April 2023, with all other packages fixed, and 25 workloads. Blocks of
three releases contain the control release, so that blocks can be compared. The script goes on where
it stopped: it measures the releases with the fewest runs first, and adds each block to
``docs/data/dask-history.parquet`` when it is complete. Needs a quiet machine and a checkout.
"""

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import benchkit  # noqa: E402
from benchkit.errors import NotEnoughRuns  # noqa: E402
from validation.dask_history.history import CONTROL, DATA, RELEASES, disturbed  # noqa: E402

CLUSTER = "{n_workers: 2, threads_per_worker: 1, memory_limit: 1 GiB}"
#: All releases work with these: a difference between two is one of dask and distributed.
PACKAGES = (
    "asciitree==1.0.0 click==8.5.1 cloudpickle==3.0.0 fasteners==0.20 fsspec==2024.6.1 "
    "importlib-metadata==10.2.0 jinja2==3.1.6 locket==1.0.0 lz4==4.3.3 markupsafe==3.0.4 "
    "msgpack==1.0.8 numcodecs==0.12.1 numpy==1.26.4 packaging==26.4 pandas==2.0.3 partd==1.4.2 "
    "psutil==6.0.0 pyarrow==16.1.0 pyyaml==6.0.4 scipy==1.13.1 sortedcontainers==2.4.0 "
    "tblib==3.2.2 toolz==0.12.1 tornado==6.4.1 urllib3==2.8.0 xarray==2024.7.0 zarr==2.18.2 "
    "zict==3.0.0"
).split()
WORKLOADS = (
    "array.dot_product[data=uncompressible]",
    "array.ols",
    "array.svd_compressed",
    "array.vorticity[data=uncompressible]",
    "csv.to_parquet",
    "df.repartition_uneven",
    "df.rolling",
    "df.value_counts[split_out=8]",
    "futures.memory_efficient",
    "h2o.q5",
    "join.join_big_small[method=tasks]",
    "join.set_index[factor=0.15,data=lazy]",
    "parquet.write_wide",
    "rechunk.heal_oversplit[method=tasks]",
    "rechunk.tiles_to_rows[chunks=small,method=p2p-disk]",
    "sched.fan_in_out",
    "sched.graph_submit[megabytes=10]",
    "sched.order[graph=overlap]",
    "sched.task_throughput[n=1000]",
    "sched.tree",
    "shuffle.plain[method=p2p]",
    "spill.bandwidth[objects=few-large,data=numpy]",
    "tpch.q03",
    "xarray.quadratic_mean[result_as=arrays]",
    "zarr.sum_residuals",
)
#: Facts of a run that are kept, besides its metrics.
FACTS = ["experiment", "workload", "started", "outcome", "quality", "error", "biggest_group"]
RELEASES_PER_BLOCK = 3
#: How often the workloads of a block are measured again of which other programs disturbed a run.
MAX_REPEATS = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="start no block after this time")
    parser.add_argument("--store", default="dask-history-store", help="store of the runs")
    arms = [release for release in RELEASES if release != CONTROL]
    parser.add_argument("--releases", nargs="+", default=arms, choices=arms, help="only these",
                        metavar="RELEASE")  # fmt: skip
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS, help="only these")
    parser.add_argument("--data", type=Path, default=DATA, help="table to extend")
    return parser.parse_args()


def environment(release: str, folder: Path) -> str:
    """Write the environment of a release; return its name."""
    name = f"dask-{release}"
    version, _, is_old = release.partition("-")
    packages = [f"dask[array,dataframe]=={version}", f"distributed=={version}", *PACKAGES]
    if is_old:
        packages = [each for each in packages if not each.startswith("pyarrow")]
        packages.append("pyarrow==12.0.1")
    lines = [f"description: Dask {release}", 'python: "3.11"', f"cluster: {CLUSTER}", "packages:"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text("\n".join([*lines, *(f"- {p}" for p in packages), ""]))
    return name


def known(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=["release", *FACTS])


def next_block(data: pd.DataFrame, releases: list[str]) -> list[str]:
    """Return adjacent releases with the fewest runs: every third block first, then the others.

    The blocks of each pass begin at another release, so that each border is inside of a block.
    """
    arms = [release for release in releases if release != CONTROL]
    counts = data.groupby(["release", "workload"])["experiment"].nunique().groupby("release").min()
    n_done = min(int(counts.get(arm, 0)) for arm in arms)
    shift = n_done % RELEASES_PER_BLOCK
    starts = [*([0] if shift else []), *range(shift, len(arms), RELEASES_PER_BLOCK)]
    blocks = [arms[begin:end] for begin, end in pairwise([*starts, len(arms)])]
    spread = [*blocks[::3], *blocks[1::3], *blocks[2::3]]
    return next(block for block in spread if counts.get(block[0], 0) <= n_done)


def measure_block(releases: list[str], options: argparse.Namespace) -> pd.DataFrame:
    """Measure each workload once in each release and in the control; return a row per run."""
    folder = Path(f"{options.store}-environments")
    names = [environment(release, folder) for release in [CONTROL, *releases]]
    store = benchkit.Store(options.store)
    begin = pd.Timestamp.now("UTC")
    workloads = list(options.workloads)
    for _ in range(1 + MAX_REPEATS):
        since = pd.Timestamp.now("UTC")
        try:
            benchkit.ab(
                names, *workloads, repeats=1, null=False, store=store, environment_folders=[folder]
            )
        except NotEnoughRuns as error:
            print(error, file=sys.stderr)
        runs = store.runs(since=since)
        workloads = runs.loc[disturbed(runs, "duration"), "workload"].unique().tolist()
        if not workloads:
            break
        print(f"disturbed, measured again: {', '.join(workloads)}", flush=True)
    runs = store.runs(since=begin)
    metrics = [name for name in runs if runs[name].dtype == float and runs[name].notna().any()]
    rows = runs[FACTS].join(runs[metrics].astype("float32"))  # the file must be small
    rows.insert(0, "release", runs["environment"].str.removeprefix("dask-"))
    return rows


def main() -> int:
    options = arguments()
    end = time.monotonic() + options.hours * 3600
    data = known(options.data)
    while time.monotonic() < end:
        block = next_block(data, list(options.releases))
        print(f"{time.strftime('%H:%M')} {', '.join(block)} and {CONTROL}", flush=True)
        data = pd.concat([data, measure_block(block, options)], ignore_index=True)
        options.data.parent.mkdir(parents=True, exist_ok=True)
        data.to_parquet(options.data, compression="zstd", index=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
