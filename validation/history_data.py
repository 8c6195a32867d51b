"""Synthetic store of many nights, for the tests and the benchmark of the dashboard.

All nights hold index records only, except the last two, which hold whole runs. The changes are
always the same: one workload gets slower, one gets faster, one fails in the last night, one is new;
all other variation is noise.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchkit.analysis.regression.regression import regression_id
from benchkit.measure.run_ids import new_id
from benchkit.store.schema import METRICS
from benchkit.store.store import Store

LAST = pd.Timestamp("2026-11-20T02:00:00")
SLOWER, FASTER, FAILING, NEW = (
    "array.vorticity[data=thin]",
    "shuffle.by_key[method=p2p]",
    "frame.join_big[factor=0.1]",
    "xarray.anom_mean",
)
_NAMES = ("array.basic_sum[kind=slow-thin]", "frame.groupby", "rechunk.swap_axes", "sched.tasks")
#: Number of nights before the last one at which each change happens.
SLOWER_SINCE, FASTER_SINCE, NEW_SINCE, PACKAGES_EVERY = 3, 40, 4, 14


def fill(
    path: str | Path,
    whole: xr.DataTree,
    *,
    n_nights: int = 90,
    n_more: int = 0,
    environments: tuple[str, ...] = ("main", "release"),
    hosts: tuple[str, ...] = ("bench-1",),
    never_ok: str = "",
) -> Store:
    """Make a store of nights; runs of the last two are copies of `whole` under other names.

    The workload `never_ok` runs in the last two nights only, and fails.
    """
    rng = np.random.default_rng(1)
    store = Store(path)
    store.create()
    names = [*_NAMES, *(f"more.work_{i:02d}" for i in range(n_more)), SLOWER, FASTER, FAILING, NEW]
    base = {name: float(rng.uniform(2, 60)) for name in names}
    noise = {name: float(rng.uniform(0.008, 0.03)) for name in names}
    indexed: list[dict[str, Any]] = []
    for night in range(n_nights):
        ago = n_nights - 1 - night
        when = LAST - pd.Timedelta(days=ago)
        for host in hosts:
            for environment in environments:
                for place, name in enumerate(names):
                    if name == NEW and ago >= NEW_SINCE:
                        continue
                    facts = _facts(name, environment, host, when, ago, place)
                    level = base[name] * _step(name, environment, ago)
                    values = level * rng.lognormal(0, noise[name], 6)
                    if name == "frame.groupby" and ago == 20:
                        facts |= {"outcome": "timeout", "error": "no answer within 300 s"}
                    facts |= {
                        "duration": values[0],
                        "memory_peak": 2**30 * values[1] / level * 3,
                        "memory_mean": 2**30 * values[2] / level * 2,
                        "compute_time": values[3] * 2.5,
                        "transfer_time": values[4] * 0.4,
                        "network_bytes": 2**28 * values[5] / level,
                        "n_tasks": 1234.0,
                    }
                    if facts["outcome"] != "ok":
                        facts = {k: v for k, v in facts.items() if k not in METRICS}
                    if ago < 2 and host == hosts[0]:
                        _add(store, facts, whole)
                    else:
                        indexed.append(facts)
        if never_ok and ago < 2:
            facts = _facts(never_ok, environments[0], hosts[0], when, ago, len(names))
            _add(store, facts | {"outcome": "failed", "error": "ValueError: never"}, whole)
    _ledger(store, environments, hosts[0], base, n_nights)
    store.index.add_many(indexed)
    store.compact()
    return store


def _step(name: str, environment: str, ago: int) -> float:
    if name == SLOWER and environment == "main" and ago < SLOWER_SINCE:
        return 1.14
    return 0.82 if name == FASTER and ago < FASTER_SINCE else 1.0


def _facts(
    name: str, environment: str, host: str, when: pd.Timestamp, ago: int, place: int
) -> dict[str, Any]:
    build = (ago + (0 if environment == "main" else 3)) // PACKAGES_EVERY
    fails = name == FAILING and ago == 0 and environment == "main"
    started = when + pd.Timedelta(minutes=3 * place)
    return {
        "id": new_id(),
        "workload": name,
        "category": name.partition(".")[0],
        "owner": "array team" if name == SLOWER else "",
        "params": "{}",
        "version": 1,
        "source_hash": "5f2c9e",
        "environment": environment,
        "tags": json.dumps({"night": when.isoformat()}),
        "started": f"{started.isoformat()}.000000+00:00",
        "outcome": "failed" if fails else "ok",
        **({"error": "ValueError: chunks do not add up to the shape"} if fails else {}),
        "capture": "full",
        "scale": 1.0,
        "host": host,
        "cluster": "distributed.LocalCluster",
        "n_workers": 2,
        "n_threads": 2,
        "memory_limit": 2**32,
        "python": "3.11.7",
        "dask": f"2026.{8 - build}.0",
        "distributed": f"2026.{8 - build}.0",
        "git_commit": f"{build:040x}",
        "packages_hash": f"{environment}-{build}",
        "extra_metrics": "{}",
    }


def _add(store: Store, facts: dict[str, Any], whole: xr.DataTree) -> None:
    tree = whole.copy(deep=False)
    # The copied run may have been disturbed.
    record = {**json.loads(whole.attrs["record"]), "quality": "{}", **facts}
    metrics = {name for name in METRICS if name in record}
    if facts["outcome"] != "ok":
        record = {name: value for name, value in record.items() if name not in metrics}
    tree.attrs = {**whole.attrs, **{k: v for k, v in facts.items() if k not in METRICS}}
    tree.attrs["record"] = json.dumps(record)
    for name in METRICS:
        if name in facts and name in tree:
            tree[name] = tree[name] * 0 + facts[name]
    store.add(tree)


def _ledger(
    store: Store, environments: tuple[str, ...], host: str, base: dict[str, float], n_nights: int
) -> None:
    """Add what judging the nights finds: one workload slower in one environment, one faster."""
    facts = {"explanation": "82 % of it is transfer in the group sum."}
    slower = {"ratio": 1.14, "low": 1.11, "high": 1.17, "facts": facts}
    _add_event(store, "opened", SLOWER, environments[0], host, base[SLOWER], SLOWER_SINCE, slower)
    for environment in environments if n_nights > FASTER_SINCE else ():
        faster = {"ratio": 0.82, "low": 0.80, "high": 0.84}
        level = base[FASTER]
        _add_event(store, "improved", FASTER, environment, host, level, FASTER_SINCE, faster)


def _add_event(
    store: Store,
    kind: str,
    workload: str,
    environment: str,
    host: str,
    level: float,
    ago: int,
    change: dict[str, Any],
) -> None:
    """Add a change that is detected in its third night."""
    about = {
        "workload": workload, "environment": environment, "host": host, "scale": 1.0,
        "capture": "full", "metric": "duration",
    }  # fmt: skip
    night, seen = (
        (LAST - pd.Timedelta(days=days)).isoformat() for days in (ago - 1, ago - SLOWER_SINCE)
    )
    store.add_event(
        kind, regression=regression_id(about, seen), **about, night=night, seen=seen,
        before=level, after=level * change["ratio"], cause="code", reason="", **change,
    )  # fmt: skip
