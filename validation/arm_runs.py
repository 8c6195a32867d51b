"""Runs of an arm with known noise and known changes."""

import numpy as np
import pandas as pd

WORKLOADS = [f"x.w{i:02}" for i in range(16)]


def arm_runs(arm="A", n=5, *, seed=0, noise=0.03, change=None, workloads=WORKLOADS, **fields):
    """Return runs of an arm with 3 % noise; `change` multiplies durations of some workloads."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "id": f"{arm}-{workload}-{block}",
            "workload": workload,
            "outcome": "ok",
            "comparable": True,
            "experiment": "e1",
            "arm": arm,
            "block": block,
            "order": block,
            "duration": (5 + i) * (change or {}).get(workload, 1.0) * rng.lognormal(sigma=noise),
            "memory_peak": 1e9 * rng.lognormal(sigma=noise),
            **fields,
        }
        for block in range(n)
        for i, workload in enumerate(workloads)
    ]
    return pd.DataFrame(rows)
