"""Judge the history of Dask: ``python benchmarks/dask_history_page.py [--write-docs]``.

Puts the runs of `docs/data/dask-history.parquet` into a store in which each release is a night,
judges it as nightly runs are judged, and prints the tables of the page. With ``--store`` the store
is kept: `benchkit nightly --no-measure --control control --publish site --store FOLDER` writes its
site. Needs no measurement.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import benchkit  # noqa: E402
from benchkit.formatting import format_change, format_quantity  # noqa: E402
from benchkit.store.schema import METRICS  # noqa: E402
from validation.dask_history.history import (  # noqa: E402
    CONTROL,
    DATA,
    PYARROW_12,
    RELEASES,
    night_store,
    relative,
    suite,
)
from validation.docs_tables import show_table  # noqa: E402

JUDGED = ("duration", "cpu_time", "memory_peak", "scheduler_cpu_time", "client_cpu_time")
SUITE = ("duration", "cpu_time", "memory_peak")
TABLES = {
    "years": ("release", "time", "CPU of the workers", "memory", "workloads"),
    "workloads": (
        "workload", "2023-1", "2023-2", "2024-1", "2024-2", "2025-1", "2025-2", "2026-1", "2026-2",
    ),
    "changes": ("workload", "metric", "since", "change", "before and after"),
}  # fmt: skip
#: Changes smaller than this are not listed.
MIN_CHANGE = 0.10


def judged(data: pd.DataFrame, folder: Path) -> list[dict]:
    """Return the changes of the history, for the worse and the better, as nights are judged."""
    store = night_store(data, folder)
    night = benchkit.nightly(
        store=store, environments=["dask"], control="control", metrics=JUDGED, measure=False
    )
    for line in night.failures:
        print(line, file=sys.stderr)
    return [event for event in store.events() if event["kind"] in ("opened", "improved")]


def permuted(data: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the history with its releases in another order: a lasting change is then chance."""
    names = [name for name in data["release"].unique() if name != CONTROL]
    names = [name for name in names if not name.endswith(PYARROW_12)]
    others = np.random.default_rng(seed).permutation(names)
    chosen = data[~data["release"].str.endswith(PYARROW_12)]
    return chosen.replace({"release": dict(zip(names, others, strict=True))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="table of runs")
    parser.add_argument("--permutations", type=int, default=0, help="orders that must show nothing")
    parser.add_argument("--store", type=Path, help="keep the store of the nights here")
    parser.add_argument("--write-docs", action="store_true", help="write the tables into the page")
    options = parser.parse_args()
    if not options.data.exists():
        parser.error(f"--data {options.data}: no such file; `dask_history.py` writes it")
    data = pd.read_parquet(options.data)
    write = options.write_docs
    show_table(__file__, "years", TABLES["years"], _years(data), write=write, below=_about(data))
    rows, below = _workloads(data)
    show_table(__file__, "workloads", TABLES["workloads"], rows, write=write, below=below)
    folder = Path(tempfile.mkdtemp(prefix="dask-history-"))
    changes = judged(data, options.store or folder / "store")
    rows = [_change(event) for event in _largest_first(changes)] or [["none", "", "", "", ""]]
    counts = Counter(event["kind"] for event in changes)
    below = (
        f"{counts['opened']} lasting changes for the worse and {counts['improved']} for the "
        f"better, of all sizes, in {data['workload'].nunique()} workloads and {len(JUDGED)} "
        f"metrics; listed are those of {MIN_CHANGE:.0%} and more."
    )
    by_chance = []
    for seed in range(options.permutations):
        by_chance.append(len(judged(permuted(data, seed), folder / str(seed))))
        print(f"order {seed}: {by_chance[-1]} changes", flush=True)
    if by_chance:
        below += (
            f" With the releases in {len(by_chance)} random orders, "
            f"{np.mean(by_chance):.1f} changes were found on average."
        )
    show_table(__file__, "changes", TABLES["changes"], rows, write=write, below=below)


def _years(data: pd.DataFrame) -> list[list[str]]:
    tables = {metric: suite(data, metric) for metric in SUITE}
    rows = []
    for release in tables["duration"].index:
        cells = [release.replace(PYARROW_12, ", pyarrow 12")]
        for table in tables.values():
            row = table.loc[release]
            cells.append(f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})")
        rows.append([*cells, f"{tables['duration'].loc[release, 'n']:.0f}"])
    return rows


def _workloads(data: pd.DataFrame) -> tuple[list[list[str]], str]:
    """Return the time of each workload by half-year, the slowest in the last one first."""
    table, variance = relative(data, "duration")
    names = TABLES["workloads"][1:]
    halves = table.columns.map(lambda name: f"{name[:4]}-{1 + (int(name.split('.')[1]) > 6)}")
    by_half = table.T.groupby(halves).mean().T.groupby("workload").mean()
    by_half = by_half.reindex(columns=names)
    order = by_half.ffill(axis=1)[names[-1]].sort_values(ascending=False).index
    rows = [
        [f"`{name}`", *(f"{np.exp(v):.2f}" if np.isfinite(v) else "" for v in by_half.loc[name])]
        for name in order
    ]
    error = np.exp(1.96 * np.sqrt(variance.median())) - 1
    return rows, (
        f"Time relative to {CONTROL}, means over the releases of half a year. A single run of the "
        f"median workload is within {error:.0%}. Empty: not measured, or failed."
    )


def _about(data: pd.DataFrame) -> str:
    hours = data.loc[data["outcome"] == "ok", "duration"].sum() / 3600
    ok = (data["outcome"] == "ok").sum()
    passes = data[data["release"] != CONTROL].groupby("release")["experiment"].nunique()
    low, high = passes.min(), passes.max()
    times = f"{low} to {high} times" if high > low else f"{low} times" if low > 1 else "once"
    return (
        f"Relative to {CONTROL}: geometric mean over the workloads, with the 95 % interval of the "
        f"noise of their runs. {len(passes)} of {len(RELEASES) - 1} releases are measured, "
        f"each workload {times} in each: {len(data)} runs, {ok} ok, {hours:.1f} hours within "
        "the clock."
    )


def _largest_first(events: list[dict]) -> list[dict]:
    large = [each for each in events if abs(np.log(each.get("ratio") or 1)) >= np.log1p(MIN_CHANGE)]
    return sorted(large, key=lambda each: -abs(np.log(each["ratio"])))


def _change(event: dict) -> list[str]:
    metric = METRICS[event["metric"]]
    size = format_change(event["ratio"])
    if event.get("low") and event.get("high"):
        size += f" ({format_change(event['low'])} to {format_change(event['high'])})"
    levels = " to ".join(format_quantity(event[side], metric.units) for side in ("before", "after"))
    return [f"`{event['workload']}`", metric.long_name, _release(event["night"]), size, levels]


def _release(night: str) -> str:
    """Return the release of a night, see `night_of`."""
    day = pd.Timestamp(night)
    return f"{day.year}.{day.month}.{day.day - 1}"


if __name__ == "__main__":
    main()
