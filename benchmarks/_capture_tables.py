"""Tables that compare the cost of each arm with the bare arm of the same round."""

from __future__ import annotations

import statistics

import numpy as np
from scipy import stats

__all__ = ["bound", "interval", "table"]


def table(title: str, seconds: dict[str, list[float]]) -> None:
    """Print medians per task and differences to the bare arm of the same round, 95 % intervals.

    The interval is that of the Hodges-Lehmann estimate, as in `bound`. The last column is the
    difference between the minima over all rounds: other processes on the machine can only add time.
    """
    bare = seconds["bare"]
    print(f"\n{title} ({len(bare)} rounds)")
    print(
        f"{'arm':<20} {'median':>10} {'minus bare':>16} {'estimate, 95 % interval':>28} "
        f"{'ratio':>7} {'of minima':>13}"
    )
    for name, values in seconds.items():
        more = [(a - b) * 1e6 for a, b in zip(values, bare, strict=True)]
        estimate, low, high = hodges_lehmann(np.asarray(more))
        text = f"{estimate:.2f} ({low:.2f} .. {high:.2f}) µs"
        ratio = statistics.median(a / b for a, b in zip(values, bare, strict=True))
        print(
            f"{name:<20} {statistics.median(values) * 1e6:>7.1f} µs "
            f"{statistics.median(more):>13.2f} µs {text:>28} {ratio:>7.3f} "
            f"{(min(values) - min(bare)) * 1e6:>10.2f} µs",
            flush=True,
        )


def bound(title: str, seconds: dict[str, list[float]]) -> None:
    """Print medians of a run, and its ratio to the bare arm with two intervals.

    The first is the geometric mean over rounds with the interval of a paired t-test. The second is
    the Hodges-Lehmann estimate (the median of the means of all pairs of rounds) with the interval
    of Wilcoxon's signed-rank test: other processes sometimes double the time of a round, and such
    a round dominates a mean. The bound is the upper end of a 95 % interval.
    """
    bare = np.asarray(seconds["bare"])
    print(f"\n{title} ({len(bare)} rounds)")
    print(f"{'arm':<20} {'median':>10} {'mean':>9} {'95 % interval':>22} {'estimate':>9} {'':>22}")
    for name, values in seconds.items():
        logs = np.log(np.asarray(values) / bare)
        print(f"{name:<20} {np.median(values):>8.2f} s {interval(logs)}", flush=True)


def interval(logs: np.ndarray) -> str:
    """Return mean and Hodges-Lehmann estimate of logarithms in per cent, with their intervals."""
    mean, error = logs.mean(), logs.std(ddof=1) / np.sqrt(len(logs))
    reach = stats.t.ppf(0.975, len(logs) - 1) * error
    cells = []
    for estimate in ((mean, mean - reach, mean + reach), hodges_lehmann(logs)):
        middle, low, high = (100 * np.expm1(value) for value in estimate)
        cells.append(f"{middle:>+7.2f} % {f'{low:+.2f} .. {high:+.2f} %':>22}")
    return " ".join(cells)


def hodges_lehmann(values: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Return the median of all Walsh averages, and the interval of the signed-rank test.

    Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3.2 and 3.3, large samples.
    """
    first, second = np.triu_indices(len(values))
    walsh = np.sort((values[first] + values[second]) / 2)
    n = len(values)
    reach = stats.norm.ppf((1 + level) / 2) * np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    place = max(0, int(n * (n + 1) / 4 - reach))
    return float(np.median(walsh)), float(walsh[place]), float(walsh[-1 - place])
