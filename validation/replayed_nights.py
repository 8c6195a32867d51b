"""Months of nights with real noise and with changes planted at places that a test knows.

The noise comes from the nightly suites of public projects where the folder of their series exists
next to the checkout; elsewhere it is heavy-tailed and seeded. Quiet stretches are selected with
hindsight before anything is planted, as in the detector's protocol.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view

from validation.synthetic_runs import make_run

SERIES = Path(__file__).parents[2] / "shared" / "nightly-series"
N_NIGHTS, N_WORKLOADS = 104, 9
FIRST = pd.Timestamp("2026-03-01T02:00", tz="UTC")
TIP, CONTROL = "tip", "control"


@dataclass
class Plan:
    """Planted changes: factors on the tip by workload and metric, and other events by night."""

    factors: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)
    machine: np.ndarray = field(default_factory=lambda: np.ones(N_NIGHTS))
    failing: dict[int, range] = field(default_factory=dict)
    new_version: dict[int, int] = field(default_factory=dict)

    def step(self, workload: int, metric: str, first: int, ratio: float, last: int = N_NIGHTS):
        factor = self.factors.setdefault((workload, metric), np.ones(N_NIGHTS))
        factor[first:last] *= ratio


def quiet_noise(n_series: int, seed: int = 0) -> np.ndarray:
    """Return noise of nightly series as factors around 1, shape (series, nights)."""
    rng = np.random.default_rng(seed)
    if not SERIES.exists():
        return np.exp(0.01 * rng.standard_t(4, (n_series, N_NIGHTS)))
    table = pd.read_parquet(SERIES / "values.parquet").sort_values(["series", "time"])
    windows = []
    for _, values in table.groupby("series", observed=True)["value"]:
        logs = np.log(values.to_numpy(float))
        for start in range(0, len(logs) - N_NIGHTS, N_NIGHTS):
            window = logs[start : start + N_NIGHTS] - np.median(logs[start : start + N_NIGHTS])
            if _is_quiet(window):
                windows.append(np.exp(window))
    order = rng.permutation(len(windows))[:n_series]
    return np.array([windows[index] for index in order])


def _is_quiet(window: np.ndarray) -> bool:
    """Return whether the noise is usual, and no 15-night level or 4 nights in a row deviate."""
    noise = 1.4826 * np.median(np.abs(window))
    if not 0.001 < noise < 0.02:
        return False
    levels = np.median(sliding_window_view(window, 15), axis=-1)
    moves = np.abs(levels[15:] - levels[:-15]).max()
    off = np.convolve(np.abs(window) > max(0.03, 3 * noise), np.ones(4), "valid").max()
    return bool(moves < max(0.02, 1.2 * noise) and off < 4)


def nights(plan: Plan) -> Iterator[tuple[pd.Timestamp, list[Any]]]:
    """Yield each night and its runs: every workload once at the tip and once in the control."""
    metrics = ("duration", "memory_peak")
    noise = quiet_noise(2 * len(metrics) * N_WORKLOADS)
    noise = noise.reshape(2, len(metrics), N_WORKLOADS, N_NIGHTS)
    for night in range(N_NIGHTS):
        moment = FIRST + pd.Timedelta(days=night)
        runs = []
        for index, environment in enumerate((TIP, CONTROL)):
            for workload in range(N_WORKLOADS):
                facts: dict[str, Any] = {"outcome": "ok", "version": 1}
                for row, metric in enumerate(metrics):
                    base = 10.0 * (1 + workload) if metric == "duration" else 1e9
                    value = base * noise[index, row, workload, night]
                    if metric == "duration":
                        value *= plan.machine[night]
                    if environment == TIP and (workload, metric) in plan.factors:
                        value *= plan.factors[workload, metric][night]
                    facts[metric] = float(value)
                if environment == TIP and night in plan.failing.get(workload, ()):
                    facts |= {"outcome": "failed", "error": "ValueError: planted", "duration": None}
                if workload in plan.new_version and night >= plan.new_version[workload]:
                    facts["version"] = 2
                build = night if environment == TIP else 0
                dask = f"2026.3.0+{build}.g{zlib.crc32(str(build).encode()):08x}"
                packages = {"dask": dask, "distributed": dask}
                runs.append(
                    make_run(
                        f"planted.w{workload:02d}",
                        groups=False,
                        environment=environment,
                        started=moment.isoformat(),
                        tags={"night": moment.tz_localize(None).isoformat()},
                        packages_hash=dask,
                        dask=dask,
                        attrs={"packages": json.dumps(packages)},
                        **facts,
                    )
                )
        yield moment, runs
