"""Read `docs/data/dask-history.parquet`: releases relative to the control, and as nights."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchkit.measure.run_ids import derived_id
from benchkit.store.interchange.coiled import run_tree
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

DATA = Path(__file__).parents[2] / "docs" / "data" / "dask-history.parquet"
#: The release that is measured in each block, so that blocks can be compared.
CONTROL = "2024.8.2"
#: Blocks with a longer pause between them were measured on machines that may differ.
PAUSE = pd.Timedelta("1h")
#: Ending of a release that was measured with pyarrow 12.
PYARROW_12 = "-pyarrow12"
#: P2P shuffles before 2023.7.1 fail with pyarrow 13 and newer (dask/distributed#8009); the control
#: needs 14. A release that is measured with both versions joins the two groups.
RELEASES = (
    f"2023.4.1{PYARROW_12} 2023.5.1{PYARROW_12} 2023.6.1{PYARROW_12} 2023.7.1{PYARROW_12} 2023.7.1 "
    "2023.8.1 2023.9.3 2023.10.1 2023.11.0 2023.12.1 2024.1.1 2024.2.1 "
    "2024.3.1 2024.4.2 2024.5.2 2024.6.2 2024.7.1 2024.8.1 2024.8.2 2024.9.1 2024.10.0 2024.11.2 "
    "2024.12.1 2025.1.0 2025.2.0 2025.3.1 2025.4.1 2025.5.1 2025.7.0 2025.9.1 2025.10.0 2025.11.0 "
    "2025.12.0 2026.1.3 2026.3.0 2026.6.0 2026.7.1 2026.8.0"
).split()
#: Fields of a run that are the same for all and that a history needs.
_FIELDS = {
    "category": "history", "params": "{}", "version": 1, "capture": "full", "scale": 1.0,
    "host": "history", "cluster": "dask.distributed.LocalCluster", "n_workers": 2, "n_threads": 2,
}  # fmt: skip


def relative(data: pd.DataFrame, metric: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return the logarithm of each value relative to the control of its block, and its variance.

    The table has a row per workload and block, and a column per release; the variance of a row is
    twice that of the control between the blocks of a session, since machines of other sessions
    cancel out. Values that other programs disturbed are left out.
    """
    runs = data[(data["outcome"] == "ok") & (data[metric] > 0) & ~disturbed(data, metric)]
    values = np.log(
        runs.pivot_table(
            index=["workload", "experiment"], columns="release", values=metric, aggfunc="median"
        )
    )
    begin = pd.to_datetime(runs.groupby("experiment")["started"].min(), utc=True).sort_values()
    session = (begin.diff() > PAUSE).cumsum()
    control = values[CONTROL].dropna()
    names, blocks = (control.index.get_level_values(level) for level in (0, 1))
    parts = control.groupby([names, session.reindex(blocks).to_numpy()])
    squares = (control - parts.transform("mean")).pow(2).groupby(names).sum()
    variance = 2 * squares / (parts.count() - 1).groupby(level=0).sum().replace(0, np.nan)
    variance = variance.fillna(variance.median())
    return values.sub(values[CONTROL], axis=0).drop(columns=CONTROL), variance


def disturbed(data: pd.DataFrame, metric: str) -> pd.Series:
    """Return which runs have a value of a metric that other programs disturbed."""
    return pd.Series(
        [json.loads(text or "{}").get(metric) == "disturbed" for text in data["quality"]],
        index=data.index,
        dtype=bool,
    )


def suite(data: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the geometric mean over all workloads of the ratio to the control, by release.

    A workload's ratio is the mean over its blocks; a workload that a release lacks is left out of
    this release. The interval is that of the mean of these workloads, from the noise of their runs.
    Columns: ratio, low, high, n (workloads).
    """
    table, variance = relative(data, metric)
    rows = {}
    for release in sorted(table, key=lambda name: (night_of(name), -len(name))):
        each = table[release].groupby("workload").agg(["mean", "count"]).query("count > 0")
        mean = each["mean"].mean()
        half = 1.96 * np.sqrt((variance.reindex(each.index) / each["count"]).sum()) / len(each)
        rows[release] = [*np.exp([mean, mean - half, mean + half]), len(each)]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["ratio", "low", "high", "n"])


def night_of(release: str) -> str:
    """Return the day that stands for a release, such as 2024-08-03 for 2024.8.2."""
    year, month, patch = release.removesuffix(PYARROW_12).split(".")
    return f"{year}-{int(month):02}-{int(patch) + 1:02}T00:00:00"


def night_store(data: pd.DataFrame, folder: Path) -> Store:
    """Return a store in which each release is a night, measured with the control.

    A run of the control belongs to the nights of all releases of its block.
    """
    store = Store(folder)
    store.create()
    store.add_many(run_tree(record) for record in _records(data))
    return store


def _records(data: pd.DataFrame) -> Iterator[dict]:
    metrics = [name for name in data if name in METRICS]
    data = data.assign(**{m: data[m].mask(disturbed(data, m)) for m in metrics})
    for experiment, block in data.groupby("experiment", sort=False):
        releases = [name for name in block["release"].unique() if name != CONTROL]
        for row in block.to_dict("records"):
            is_control = row["release"] == CONTROL
            for release in releases if is_control else [row["release"]]:
                if release.endswith(PYARROW_12) and night_of(release) >= "2023-07":
                    continue  # measured without it, too
                night = night_of(release)
                name = json.dumps([experiment, row["workload"], row["release"], release])
                yield {
                    **_FIELDS,
                    "id": derived_id(pd.Timestamp(night, tz="UTC").timestamp(), name),
                    "workload": row["workload"],
                    "environment": "control" if is_control else "dask",
                    "dask": row["release"].removesuffix(PYARROW_12),
                    "distributed": row["release"].removesuffix(PYARROW_12),
                    "tags": json.dumps({"night": night, "release": release}),
                    "started": f"{night}.000000+00:00",
                    "outcome": row["outcome"],
                    **({"error": row["error"]} if isinstance(row["error"], str) else {}),
                    **{m: float(row[m]) for m in metrics if pd.notna(row[m])},
                }
