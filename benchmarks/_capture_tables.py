"""Tables of what arms cost beside the bare arm of the same round."""

from __future__ import annotations

import statistics

import numpy as np
from scipy import stats

__all__ = ["bound", "table"]


def table(title: str, seconds: dict[str, list[float]]) -> None:
    """Print medians a task, and differences to the bare arm of the same round with quartiles.

    The last column is the difference of the least of all rounds: what neighbours on the machine add
    to an arm is never less than nothing.
    """
    bare = seconds["bare"]
    print(f"\n{title} ({len(bare)} rounds)")
    print(
        f"{'arm':<24} {'median':>10} {'more than bare':>16} {'quartiles':>20} {'ratio':>8} "
        f"{'of the least':>13}"
    )
    for name, values in seconds.items():
        more = [(a - b) * 1e6 for a, b in zip(values, bare, strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        ratio = statistics.median(a / b for a, b in zip(values, bare, strict=True))
        print(
            f"{name:<24} {statistics.median(values) * 1e6:>7.1f} µs {middle:>13.2f} µs "
            f"{low:>8.2f} .. {high:.2f} µs {ratio:>8.3f} "
            f"{(min(values) - min(bare)) * 1e6:>10.2f} µs",
            flush=True,
        )


def bound(title: str, seconds: dict[str, list[float]]) -> None:
    """Print medians of a run, and its ratio to the bare arm with the interval of a paired t-test.

    The ratio is the geometric mean over rounds; the bound is the upper end of the two-sided 95 %
    interval of the mean logarithm.
    """
    bare = np.asarray(seconds["bare"])
    print(f"\n{title} ({len(bare)} rounds)")
    print(f"{'arm':<24} {'median':>10} {'more than bare':>16} {'95 % interval':>22}")
    for name, values in seconds.items():
        logs = np.log(np.asarray(values) / bare)
        mean, error = logs.mean(), logs.std(ddof=1) / np.sqrt(len(logs))
        reach = stats.t.ppf(0.975, len(logs) - 1) * error
        low, middle, high = (100 * np.expm1(value) for value in (mean - reach, mean, mean + reach))
        print(
            f"{name:<24} {np.median(values):>8.2f} s {middle:>14.2f} % "
            f"{low:>10.2f} .. {high:.2f} %",
            flush=True,
        )
