"""Small synthetic runs that follow the schema, for tests and benchmarks of the store.

No cluster and no clock: the same arguments give the same run, except for its id.
"""

import json
import zlib
from typing import Any

import numpy as np
import xarray as xr

from benchkit.measure.run_ids import new_id
from benchkit.store.schema import ACTIVITIES, COORDINATES, GROUPS, METRICS, RECORD_FIELDS

STARTED = "2026-08-01T02:00:00.000000+00:00"


def make_run(
    workload: str = "array.basic_sum[chunks=thin]",
    *,
    groups: bool = True,
    n_samples: int = 20,
    n_workers: int = 2,
    n_tasks: int = 60,
    seed: int = 0,
    tags: dict[str, Any] | None = None,
    attrs: dict[str, Any] | None = None,
    **facts: Any,
) -> xr.DataTree:
    """Return a run. `facts` are fields of the record or metrics; `attrs` are added as they are."""
    base_name, _, brackets = workload.partition("[")
    params = facts.pop("params", None) or dict(
        pair.split("=") for pair in brackets.rstrip("]").split(",") if pair
    )
    record: dict[str, Any] = {
        "id": new_id(),
        "workload": workload,
        "category": base_name.partition(".")[0],
        "params": json.dumps(params),
        "version": 1,
        "source_hash": "5f2c9e",
        "environment": "main",
        "tags": json.dumps(tags or {}),
        "started": STARTED,
        "outcome": "ok",
        "capture": "full",
        "scale": 1.0,
        "seed": seed,
        "host": "bench-1",
        "cluster": "distributed.LocalCluster",
        "n_workers": n_workers,
        "n_threads": n_workers,
        "memory_limit": n_workers * 2**30,
        "python": "3.11.7",
        "dask": "2026.8.0",
        "distributed": "2026.8.0",
        "extra_metrics": "{}",
    }
    if groups:
        record |= {"duration": 10.0 + seed, "memory_peak": 1.5e9, "n_tasks": float(n_tasks)}
        record |= {"biggest_group": "sum-aggregate-0", "biggest_group_share": 0.5}
    record |= facts
    record = {name: value for name, value in record.items() if value is not None}
    metrics = {name: record[name] for name in record if name in METRICS}

    root = xr.Dataset({name: ((), value, METRICS[name].attrs) for name, value in metrics.items()})
    root.attrs = {name: value for name, value in record.items() if name in RECORD_FIELDS}
    root.attrs |= {"benchkit_format": 1, "record": json.dumps(record), "source": "def f(): ..."}
    root.attrs |= {"clock_on": 1785549600.0, "clock_off": 1785549610.0, "capture_errors": "[]"}
    root.attrs |= attrs or {}
    if not groups:
        return xr.DataTree(root)
    datasets = _groups(n_samples, n_workers, n_tasks, np.random.default_rng(seed))
    return xr.DataTree.from_dict({"/": root, **{f"/{name}": ds for name, ds in datasets.items()}})


def _groups(
    n_samples: int, n_workers: int, n_tasks: int, rng: np.random.Generator
) -> dict[str, xr.Dataset]:
    keys = zlib.compress("\n".join(f"('sum', {i})" for i in range(n_tasks)).encode())
    other_sizes = {dim: 4 for vs in GROUPS.values() for variable in vs for dim in variable.dims}
    sizes = other_sizes | {
        "time": n_samples,
        "worker": n_workers,
        "task_group": 3,
        "action": len(ACTIVITIES),
        "metric": 4,
        "task": n_tasks,
        "edge": other_sizes["node"] - 1,
        "event": n_tasks // 2,
        "byte": len(keys),
        "sample": 10 * n_samples,
        "error": 0,  # as in most runs
        "pair": n_workers**2,
        "incomplete_report": 0,
        "frame": 5,
        "span": 1,
        "line": 0,
    }
    texts = {
        "task_group": [f"sum-aggregate-{i}" for i in range(3)],
        "action": list(ACTIVITIES),
        "dependencies": ["[]"] * 3,
        "options": ["{}"] * 4,
    }

    def values(name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if name.endswith("_blob"):
            return np.frombuffer(keys, np.uint8)
        if dtype == "str":
            return np.array(texts.get(name, [f"{name} {i}" for i in range(shape[0])]), object)
        if dtype.startswith("f"):
            series = np.cumsum(rng.random(shape), axis=0)
            series[:1] = np.nan  # no values before the first heartbeat
            return series.astype(dtype)
        numbers = rng.integers(0, 3, shape).astype(dtype)
        if name == "n_dependencies":  # each node of the graph but the first depends on the first
            return (np.arange(shape[0]) > 0).astype(dtype)
        return np.zeros_like(numbers) if name == "dependency" else numbers

    datasets = {}
    for group, variables in GROUPS.items():
        dims = {dim for variable in variables for dim in variable.dims}
        datasets[group] = xr.Dataset(
            {
                v.name: (
                    v.dims,
                    values(v.name, v.dtype, tuple(sizes[dim] for dim in v.dims)),
                    v.attrs,
                )
                for v in variables
            },
            {
                v.name: (
                    dim,
                    np.arange(sizes[dim]) * 0.5
                    if v.name == "time"
                    else values(v.name, v.dtype, (sizes[dim],)),
                    v.attrs,
                )
                for dim in dims & set(COORDINATES)
                for v in COORDINATES[dim]
            },
        )
    return datasets


def make_record(index: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return a record with all metrics, as in the index of a store with years of nightly runs."""
    workload = f"{('array', 'frame', 'shuffle')[index % 3]}.work_{index % 100}"
    moment = np.datetime64("2024-01-01T00:00:00.000000") + np.timedelta64(index * 300, "s")
    record = dict(
        make_run(
            workload,
            groups=False,
            started=f"{moment}+00:00",
            environment=f"env-{index % 7}",
            tags={"variant": "AB"[index % 2]},
            outcome="failed" if index % 50 == 0 else "ok",
            source_hash=f"{index % 100:x}" * 8,
            git_commit=f"{index // 500:040x}",
            packages_hash=f"{index // 1000:016x}",
        ).attrs
    )
    fields = {str(name): value for name, value in record.items() if name in RECORD_FIELDS}
    return fields | dict(zip(METRICS, rng.lognormal(2, 1, len(METRICS)).tolist(), strict=True))
