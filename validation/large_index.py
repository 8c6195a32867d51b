"""An index of many synthetic runs, without their files: a million rows in seconds.

Same columns and values as `validation.synthetic_runs.make_record`, built by NumPy.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchkit.measure.run_ids import derived_id
from benchkit.store.arrow import SCHEMA
from benchkit.store.index import write_segments
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

#: Time between runs.
STEP_S = 60
FIRST = np.datetime64("2024-01-01T00:00:00", "us")
N_WORKLOADS = 100


def index_table(n_runs: int, first: int = 0, *, runs_per_night: int = 0) -> pa.Table:
    """Return the rows `first` to ``first + n_runs`` of the index, oldest first.

    With `runs_per_night` all runs belong to nights: half as many workloads in two environments,
    with 3 % of noise.
    """
    number = np.arange(first, first + n_runs)
    started = FIRST + (number * STEP_S).astype("timedelta64[s]")

    def text(template: str, values: np.ndarray) -> pa.Array:
        codes, indices = np.unique(values, return_inverse=True)
        names = pa.array([template.format(int(code)) for code in codes], pa.string())
        return pa.DictionaryArray.from_arrays(indices.astype(np.int32), names).cast(pa.string())

    families = pa.array(np.array(["array", "frame", "shuffle"])[number % 3])
    columns: dict[str, pa.Array] = {
        "id": ids_of(started, number),
        "workload": pa.array(
            [f"{a}.work_{b}" for a, b in zip(families, number % N_WORKLOADS, strict=True)]
        ),
        "category": families,
        "environment": text("env-{}", number % 7),
        "experiment": text("experiment-{:026d}", number // 500),
        "arm": text("env-{}", number % 7),
        "block": pa.array(number % 5),
        "order": pa.array(number % 7),
        "tags": text('{{"variant": "{}"}}', number % 2),
        "started": pa.array(started).cast(pa.timestamp("us", tz="UTC")),
        "outcome": pa.array(np.where(number % 50 == 0, "failed", "ok")),
        "source_hash": text("{:032x}", number % N_WORKLOADS),
        "git_commit": text("{:040x}", number // 500),
        "packages_hash": text("{:016x}", number // 1000),
        "digest": pa.array([f"{n * 2654435761 % 2**64:064x}" for n in number.tolist()]),
    }
    same = {
        "params": "{}", "version": 1, "capture": "full", "scale": 1.0, "seed": 0,
        "host": "bench-1", "cluster": "distributed.LocalCluster", "n_workers": 2, "n_threads": 2,
        "memory_limit": 2**31, "python": "3.11.7", "dask": "2026.8.0", "distributed": "2026.8.0",
        "extra_metrics": "{}", "biggest_group": "sum-aggregate-0", "biggest_group_share": 0.5,
    }  # fmt: skip
    rng = np.random.default_rng(first)
    if runs_per_night:
        columns |= _nightly_columns(number, runs_per_night)
    for field in SCHEMA:
        if field.name in METRICS:
            columns[field.name] = pa.array(rng.lognormal(2, 0.03 if runs_per_night else 1, n_runs))
        elif field.name not in columns:
            columns[field.name] = pa.repeat(pa.scalar(same.get(field.name), field.type), n_runs)
    return pa.table({name: columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names})


def _nightly_columns(number: np.ndarray, runs_per_night: int) -> dict[str, pa.Array]:
    night, place = number // runs_per_night, number % runs_per_night
    starts = FIRST + night.astype("timedelta64[D]")
    started = starts + (place * 30).astype("timedelta64[s]")
    names = [f'{{"night": "{start}"}}' for start in starts.astype("datetime64[s]")]
    texts = {
        "id": ids_of(started, number),
        "workload": pa.array([f"array.work_{n}" for n in (place // 2).tolist()]),
        "category": pa.repeat("array", len(number)),
        "environment": pa.array(np.array(["main", "release"])[place % 2]),
        "experiment": pa.array([f"experiment-{n:026d}" for n in night.tolist()]),
        "tags": pa.array(names),
        "started": pa.array(started).cast(pa.timestamp("us", tz="UTC")),
        "source_hash": pa.array([f"{n:032x}" for n in (place // 2).tolist()]),
    }
    return {**texts, "arm": texts["environment"]}


def ids_of(started: np.ndarray, number: np.ndarray) -> pa.Array:
    """Return ids of version 7; the time is that of `started`, the rest follows from `number`."""
    moments = started.astype("datetime64[ms]").astype(np.int64) / 1000
    return pa.array(map(derived_id, moments.tolist(), map(str, number.tolist())), pa.string())


def fill_index(path: Path, n_runs: int, part: int = 250_000, *, runs_per_night: int = 0) -> Store:
    """Return a new store whose index lists `n_runs` runs, with a segment for each part."""
    store = Store(path)
    store.create()
    for first in range(0, n_runs, part):
        rows = index_table(min(part, n_runs - first), first, runs_per_night=runs_per_night)
        write_segments(store.files, rows)
    return store
