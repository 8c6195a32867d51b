"""Workloads whose task groups are nightly series.

A workload is a benchmark with the series of its parameters, measured on the same nights of one
machine (`families`), series of different benchmarks on the same nights of one machine (`same
nights`), or series of the machine from any nights (`mixed`: unlike task groups, which always are of
the same nights). Groups have random shares of the run.

Where unrelated groups drift by up to 3 % each, the level of a share does change, by the criterion
of quiet windows: a report is then not wrong about the share.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchkit.analysis.compare.composition import MIN_SHARE
from validation.nights.windows import NIGHTS, is_quiet

MIN_GROUPS, MAX_GROUPS = 4, 12


def workloads_of_groups(
    folder: Path, stride: int
) -> Iterator[tuple[str, list[np.ndarray], bool, np.random.Generator]]:
    """Yield title, seconds of the groups of each workload, and whether bytes are searched, too."""
    for title, prefix, same_nights, half in (
        ("families, chosen on", "more-", True, 0),
        ("families, other half", "more-", True, 1),
        ("same nights", "more-", None, None),
        ("same nights, other series", "", None, None),
        ("mixed, chosen on", "more-", False, 0),
        ("mixed, other half", "more-", False, 1),
        ("mixed, other series", "", False, None),
    ):
        if not (folder / f"{prefix}values.parquet").exists():
            continue
        rng = np.random.default_rng(1)
        if same_nights is None:
            logs = _same_nights(folder, prefix, rng)
        else:
            windows = _windows(folder, prefix, stride, same_nights)
            if half is not None:
                windows = {k: rows for k, rows in windows.items() if _half(k, same_nights) == half}
            logs = (
                [w for ws in windows.values() for w in ws] if same_nights else _mixed(windows, rng)
            )
        yield title, [_seconds(log, rng) for log in logs], same_nights is not None, rng


def _half(key: str, same_nights: bool) -> int:
    origin, machine, name = key.split("/", 2)
    text = str((origin, machine, name)) if same_nights else name
    return zlib.crc32(text.encode()) % 2


def _same_nights(folder: Path, prefix: str, rng: np.random.Generator) -> list[np.ndarray]:
    """Return 500 workloads whose groups are different benchmarks on the same nights."""
    about = pd.read_csv(folder / f"{prefix}series.csv").set_index("series")
    table = pd.read_parquet(folder / f"{prefix}values.parquet")
    table["series"] = table["series"].astype(str)
    machine = about["origin"] + "/" + about["machine"].astype(str)
    benchmark = about["benchmark"].str.replace(r"[(@].*", "", regex=True)
    machines = [
        np.log(own.pivot_table(index="time", columns="series", values="value", aggfunc="last"))
        for _, own in table.groupby(table["series"].map(machine))
    ]
    machines = [nights for nights in machines if nights.shape[1] >= 2 * MAX_GROUPS]
    weight = np.array([nights.shape[1] for nights in machines], float)
    logs: list[np.ndarray] = []
    while len(logs) < 500:
        nights = machines[rng.choice(len(machines), p=weight / weight.sum())]
        names = pd.Series(rng.permutation(nights.columns))
        names = names[~benchmark[names].duplicated().to_numpy()]
        together = nights[names[: rng.integers(MIN_GROUPS, MAX_GROUPS + 1)]].dropna()
        if len(together) < NIGHTS:
            continue
        first = rng.integers(len(together) - NIGHTS + 1)
        window = together.to_numpy()[first : first + NIGHTS].T
        window = window[[is_quiet(row) for row in window]]
        if len(window) >= MIN_GROUPS:
            logs.append(window - np.median(window, axis=1, keepdims=True))
    return logs


def _windows(
    folder: Path, prefix: str, stride: int, same_nights: bool
) -> dict[str, list[np.ndarray]]:
    """Return windows of logarithms with quiet rows: by family, or one row each by series."""
    about = pd.read_csv(folder / f"{prefix}series.csv").set_index("series")
    table = pd.read_parquet(folder / f"{prefix}values.parquet").sort_values("time", kind="stable")
    series = {
        str(name): group.drop_duplicates("time").set_index("time")["value"]
        for name, group in table.groupby("series", observed=True)
    }
    family = about["benchmark"].str.replace(r"[(@].*", "", regex=True)
    family = about["origin"] + "/" + about["machine"] + "/" + family
    if not same_nights:
        family = about["origin"] + "/" + about["machine"] + "/" + about.index.to_series()
    windows: dict[str, list[np.ndarray]] = {}
    for name, members in family.groupby(family):
        together = pd.concat(
            [series[m] for m in members.index if m in series], axis=1, join="inner"
        )
        values = together.to_numpy(float).T
        if same_nights and len(values) < MIN_GROUPS:
            continue
        for at in range(0, values.shape[1] - NIGHTS + 1, stride):
            window = np.log(values[:, at : at + NIGHTS])
            window = window[[bool(np.isfinite(row).all()) and is_quiet(row) for row in window]]
            if len(window) >= (MIN_GROUPS if same_nights else 1):
                window -= np.median(window, axis=1, keepdims=True)
                windows.setdefault(str(name), []).append(window)
    return windows


def _mixed(windows: dict[str, list[np.ndarray]], rng: np.random.Generator) -> list[np.ndarray]:
    """Return 500 workloads of windows of one machine."""
    machines: dict[str, list[np.ndarray]] = {}
    for name, rows in windows.items():
        machines.setdefault("/".join(name.split("/")[:2]), []).extend(rows)
    machines = {name: rows for name, rows in machines.items() if len(rows) >= 50}
    names = list(machines)
    weight = np.array([len(machines[name]) for name in names], float)
    logs = []
    for _ in range(500):
        rows = machines[names[rng.choice(len(names), p=weight / weight.sum())]]
        size = int(rng.integers(MIN_GROUPS, MAX_GROUPS + 1))
        logs.append(np.concatenate([rows[i] for i in rng.choice(len(rows), size, replace=False)]))
    return logs


def _seconds(log: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return seconds of groups with the given noise; the first has 2 to 10 % of the run."""
    weight = rng.dirichlet(np.full(len(log), 0.8)) + 0.003
    weight[0] = rng.uniform(0.02, 0.10) / 0.9 * weight[1:].sum()
    seconds = weight[:, None] * np.exp(log)
    large = np.median(seconds / seconds.sum(axis=0), axis=1) >= MIN_SHARE
    large[0] = True
    return seconds[large]


def odds_of(workloads: list[np.ndarray]) -> list[np.ndarray]:
    return [shares / (1 - shares) for shares in workloads]
