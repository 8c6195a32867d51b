"""Measure the build time and the size of the published site.

    python benchmarks/site.py

Builds each store in a temporary folder: a record per run, and a whole run of the last night for
each workload. Prints the build time, its share of the goal, and the size of the folder.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent.parent))

from validation.synthetic_runs import make_run

from benchkit.measure.run_ids import derived_id
from benchkit.show.site import SITE_METRICS, build_site
from benchkit.store.store import Store

LAST = pd.Timestamp("2026-11-20T02:00", tz="UTC")
#: (workloads, nights, limit of the build time in s, limit of the size in MB)
CASES = [(40, 30, 2.0, 60.0), (200, 180, 60.0, 60.0)]


def fill(store: Store, n_workloads: int, n_nights: int) -> None:
    rng = np.random.default_rng(0)
    store.create()
    records = []
    for place in range(n_workloads):
        name = f"made.w{place:03d}[kind=a]"
        levels = {metric: 10 ** rng.uniform(0, 3) for metric in SITE_METRICS}
        step = rng.integers(n_nights) if place % 10 == 0 else n_nights
        for night in range(n_nights):
            when = LAST - pd.Timedelta(days=n_nights - 1 - night)
            ratio = 1.2 if night >= step else 1.0
            values = {
                metric: float(level * ratio * rng.lognormal(0, 0.02))
                for metric, level in levels.items()
            }
            facts = {
                "id": derived_id(when.timestamp(), name), "started": when.isoformat(),
                "dask": f"2026.{night // 20}.0", "packages_hash": str(night // 20), **values,
            }  # fmt: skip
            if night == n_nights - 1:
                store.add(make_run(name, attrs={"source": "def f(scale):\n    ..."}, **facts))
            elif place + night == 0:
                template = make_run(name, **facts)
                pattern = json.loads(template.attrs["record"])
                records.append(pattern)
            else:
                records.append({**pattern, "workload": name, "category": "made", **facts})
    store.index.add_many(records)
    store.compact()


def main() -> None:
    print(f"{len(SITE_METRICS)} metrics\n")
    print("workloads x nights      runs   build s   goal s      MB   goal MB   peak memory MB")
    for n_workloads, n_nights, goal_s, goal_mb in CASES:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder) / "store")
            fill(store, n_workloads, n_nights)
            store = Store(Path(folder) / "store")
            began = time.perf_counter()
            page = build_site(store, Path(folder) / "site")
            took = time.perf_counter() - began
            size = sum(path.stat().st_size for path in page.parent.rglob("*") if path.is_file())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        words = f"{n_workloads:9d} x {n_nights:<6d} {n_workloads * n_nights:9d} {took:9.2f}"
        print(f"{words} {goal_s:8.0f} {size / 1e6:7.1f} {goal_mb:9.0f} {peak:16.0f}")


if __name__ == "__main__":
    main()
