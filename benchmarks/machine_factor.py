"""Score the detector on series from which the machine's other series are subtracted.

The factor of a night is the median, over the other series of the machine, of their distance from
the median of their 30 nights before; it is subtracted as it is, or times a coefficient from the 90
nights before. Windows and steps are those of `benchmarks/detection.py`. Run it as::

    python benchmarks/machine_factor.py [--prefix more-] [--most 250]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from detection import HERE, ours

from validation.nights.windows import (
    HISTORY,
    NIGHTS,
    WITHIN,
    false_alarms,
    hindsight,
    hits,
    is_quiet,
)

#: Nights of the median of a series, and of the coefficient.
BEFORE, COEFFICIENT = 30, 90
#: Fewest other series of a night, and the noise that shrinks the coefficient to 0.
MIN_SERIES, NOISE = 10, 0.01


def series_with_factor(folder: Path, prefix: str) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the logarithms of each series, its factor by night and the coefficient."""
    about = pd.read_csv(folder / f"{prefix}series.csv").set_index("series")
    table = pd.read_parquet(folder / f"{prefix}values.parquet").sort_values("time", kind="stable")
    table["night"] = table["time"].dt.floor("h")
    machine = about["origin"] + "/" + about["machine"].astype(str)
    for _, own in table.groupby(table["series"].astype(str).map(machine)):
        logs = np.log(
            own.pivot_table(
                index="night", columns="series", values="value", aggfunc="last", observed=True
            )
        )
        distances = np.array([_distance(logs[name], logs.index) for name in logs]).T
        for place, name in enumerate(logs):
            measured = logs[name].notna().to_numpy()
            others = np.delete(distances, place, axis=1)[measured]
            if measured.sum() < NIGHTS or others.shape[1] < MIN_SERIES:
                continue
            enough = np.isfinite(others).sum(axis=1) >= MIN_SERIES
            factor = np.nan_to_num(np.where(enough, np.nanmedian(others, axis=1), 0.0))
            product = np.clip(np.nan_to_num(distances[measured, place]), -0.5, 0.5) * factor
            sums = [
                pd.Series(values).shift(1).rolling(COEFFICIENT, min_periods=1).sum().fillna(0)
                for values in (product, factor**2)
            ]
            coefficient = np.clip(sums[0] / (sums[1] + COEFFICIENT * NOISE**2), 0, 1.5)
            yield logs[name].to_numpy()[measured], factor, coefficient.to_numpy()


def _distance(log: pd.Series, nights: pd.Index) -> np.ndarray:
    known = log.dropna()
    before = known.shift(1).rolling(BEFORE, min_periods=10).median()
    return (known - before).reindex(nights).to_numpy()


def score(title: str, adjusted: list[np.ndarray], logs: list[np.ndarray], stride: int) -> None:
    """Print false alarms and found steps of adjusted series, in windows of the series `logs`."""
    windows = [
        values[at : at + NIGHTS]
        for values, log in zip(adjusted, logs, strict=True)
        for at in range(0, log.size - NIGHTS + 1, stride)
        if is_quiet(log[at : at + NIGHTS])
    ]
    quiet, n = np.exp(windows), len(windows)
    n_false = len(false_alarms(ours(quiet)))
    print(f"{title}: {n} windows, {n_false} false alarms, "
          f"{100 * n_false / n / (NIGHTS - HISTORY):.4f} / 100 series-nights")  # fmt: skip
    start = np.random.default_rng(5).integers(40, NIGHTS - WITHIN - 2, n)
    for size in (1.05, 1.10, 1.20):
        step = np.where(np.arange(NIGHTS) >= start[:, None], size, 1)
        delay = hits(ours(quiet * step), start, np.ones(n))[:, 0]
        print(f"  step of {size - 1:4.0%}: found {np.mean(delay <= WITHIN):.3f}, "
              f"within 3 nights {np.mean(delay <= 3):.3f}", flush=True)  # fmt: skip
    found = [
        hits(ours(np.exp(values[max(0, night - 75) : night + 35])[None]),
             np.array([min(night, 75)]), np.array([direction]), early=5)[0, 0]
        for values, log in zip(adjusted, logs, strict=True)
        for night, direction in hindsight(log)
    ]  # fmt: skip
    if found:
        print(f"  real steps: {len(found)}, found {np.mean(np.isfinite(found)):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=Path, default=HERE.parent.parent / "shared/nightly-series")
    parser.add_argument("--prefix", default="more-", help="of the names of the files")
    parser.add_argument("--stride", type=int, default=37, help="nights between windows")
    parser.add_argument("--most", type=int, default=250, help="series that are scored")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    series = list(series_with_factor(options.series, options.prefix))
    chosen = np.random.default_rng(0).permutation(len(series))[: options.most]
    logs, factors, coefficients = zip(*(series[at] for at in chosen), strict=True)
    score("as measured", list(logs), list(logs), options.stride)
    less = [log - factor for log, factor in zip(logs, factors, strict=True)]
    score("minus the factor", less, list(logs), options.stride)
    less = [y - c * f for y, f, c in zip(logs, factors, coefficients, strict=True)]
    score("minus coefficient times factor", less, list(logs), options.stride)


if __name__ == "__main__":
    main()
