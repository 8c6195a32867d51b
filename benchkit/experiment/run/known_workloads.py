"""Duration and noise of workloads, as measured elsewhere or in this store.

A folder of workloads may contain ``facts.json``: the output of `benchkit list noise --json` after
``benchkit ab baseline --null-only``. Values from the store are preferred.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchkit.analysis.run.noise import run_noise
from benchkit.errors import UsageError
from benchkit.store.store import Store

#: Name of the file.
FILE = "facts.json"


@dataclass(frozen=True)
class KnownWorkload:
    """Duration and noise of one variant."""

    duration: float  # Median wall time in seconds
    noise: float  # Coefficient of variation of one run; NaN if unknown
    n_runs: int  # Number of runs


def noise_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the noise of each variant in its newest set of comparable runs."""
    # returned: A row per variant, sorted by name: `workload`, `n_runs`, `duration` (s), `noise`,
    # and the columns `needed_*` of `run_noise`: runs per arm that detect a change.
    table = run_noise(runs).drop_duplicates("workload").sort_values("workload")
    columns = ["workload", "n_runs", "level", "noise"]
    needed = [name for name in table if str(name).startswith("needed_")]
    return table[[*columns, *needed]].rename(columns={"level": "duration"}).reset_index(drop=True)


def load_known(folders: Iterable[Path], scale: float = 1.0) -> dict[str, KnownWorkload]:
    """Read the files `facts.json` in folders of workloads."""
    workloads: dict[str, KnownWorkload] = {}
    for folder in reversed(list(folders)) if scale == 1 else ():
        path = Path(folder) / FILE
        if not path.is_file():
            continue
        try:
            for row in json.loads(path.read_text(encoding="utf-8")):
                noise = math.nan if row["noise"] is None else float(row["noise"])
                workloads[str(row["workload"])] = KnownWorkload(
                    float(row["duration"]), noise, row["n_runs"]
                )
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{path}: not the output of `benchkit list noise --json` "
                f"({type(error).__name__}: {error})"
            ) from None
    return workloads


def known_noise(
    store: Store, names: Iterable[str], shipped: Mapping[str, KnownWorkload]
) -> dict[str, float]:
    """Return the noise of variants: from the store, otherwise as shipped."""
    names = set(names)
    noise = {name: workload.noise for name, workload in shipped.items()}
    if len(store):
        runs = store.runs()
        table = noise_table(runs[runs["workload"].isin(names)]).dropna(subset=["noise"])
        noise |= dict(zip(table["workload"], table["noise"], strict=True))
    return {name: value for name, value in noise.items() if name in names and math.isfinite(value)}
