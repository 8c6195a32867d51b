"""What is known of a workload before it is measured here: how long it takes, and how noisy it is.

A folder of workloads may hold ``facts.json``: what `benchkit list noise --json` printed after
``benchkit ab baseline --null-only``. What the store itself knows comes before that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchkit.analysis.run.noise import run_noise
from benchkit.errors import UsageError
from benchkit.experiment.run.experiment import Experiment

__all__ = ["FILE", "KnownWorkload", "known_noise", "noise_table", "read_facts", "load_known"]

FILE = "facts.json"


@dataclass(frozen=True)
class KnownWorkload:
    """What runs of one variant were like.

    Attributes
    ----------
    duration : float
        Their median wall time in s.
    noise : float
        Coefficient of variation of one run; NaN where it is not known.
    n_runs : int
        How many there were.
    """

    duration: float
    noise: float
    n_runs: int


def noise_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the noise of each variant in its newest set of comparable runs.

    Parameters
    ----------
    runs : DataFrame
        As `Store.runs` gives it.

    Returns
    -------
    DataFrame
        A row per variant, by name: ``workload``, ``n_runs``, ``duration`` (s), ``noise`` and the
        runs a side that see changes, as `run_noise` tells them.
    """
    table = run_noise(runs).drop_duplicates("workload").sort_values("workload")
    columns = ["workload", "n_runs", "level", "noise"]
    needed = [name for name in table if str(name).startswith("needed_")]
    return table[[*columns, *needed]].rename(columns={"level": "duration"}).reset_index(drop=True)


def read_facts(folders: Iterable[Path]) -> dict[str, KnownWorkload]:
    """Return the facts that lie beside the workloads of some folders, by variant.

    Raises
    ------
    UsageError
        A file is not what `benchkit list noise --json` prints.
    """
    facts: dict[str, KnownWorkload] = {}
    for folder in folders:
        path = Path(folder) / FILE
        if not path.is_file():
            continue
        try:
            for row in json.loads(path.read_text(encoding="utf-8")):
                noise = math.nan if row["noise"] is None else float(row["noise"])
                facts[str(row["workload"])] = KnownWorkload(
                    float(row["duration"]), noise, row["n_runs"]
                )
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{path}: not a list of facts ({type(error).__name__}: {error}); "
                "`benchkit list noise --json` prints one"
            ) from None
    return facts


def known_noise(experiment: Experiment) -> dict[str, float]:
    """Return the noise of each variant of an experiment: as its store knows it, else as shipped.

    Coefficients of variation of one run; a variant whose noise nobody knows is left out.
    """
    names = {variant.name for variant in experiment.variants}
    noise = {name: fact.noise for name, fact in load_known(experiment).items()}
    if len(experiment.store):
        runs = experiment.store.runs()
        table = noise_table(runs[runs["workload"].isin(names)]).dropna(subset=["noise"])
        noise |= dict(zip(table["workload"], table["noise"], strict=True))
    return {name: value for name, value in noise.items() if name in names and math.isfinite(value)}


def load_known(experiment: Experiment) -> dict[str, KnownWorkload]:
    """Return what lies beside the workloads of an experiment; it is of the whole size only."""
    return read_facts(experiment.folders) if experiment.scale == 1 else {}
