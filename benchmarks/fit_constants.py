"""Compare the tuned limits of the analysis with neighbouring values.

``python benchmarks/fit_constants.py [--rows N] [--only PART ...] [--series DIR]``. Series are made
by a seeded recipe: eleven kinds of noise (`validation/nightly_series.py`), alone and with a step.
One seed is for choosing a value, another one, `held out`, for reporting it; with ``--series`` the
quiet windows of a folder of real series are a third set (see `benchmarks/detection.py`). Of each
value the table shows false alarms per 100 series and nights, and the shares of steps of 5 and 10 %
that are found by the third and by the twentieth night. Part `candidates` shows the shares of series
whose last night proposes re-runs: without a change, after steps of 5 and 10 % on the last night,
and after 3 % for five nights. Part `reruns` draws re-runs of a change of
0, 3, 5 and 10 %, one run in ten disturbed: shares that are confirmed, and blocks until the
decision. Part `verdicts` shows, of reports of 700 rows, the share of listed rows without a change
and the share of changes that are listed. The value in use has a star.
"""

import argparse
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchkit.analysis.changepoint import candidates, rule, scan
from benchkit.analysis.changepoints import detect_many, latest_night
from benchkit.analysis.effects import compare
from benchkit.analysis.options import DETECTION, DetectionOptions
from benchkit.analysis.stats import blocked_t, confirmation, moderated_variance, relabelling
from validation.nightly_series import SHAPES
from validation.nights.windows import (
    HISTORY,
    NIGHTS,
    WITHIN,
    Alarms,
    false_alarms,
    hits,
    quiet_windows,
    read_series,
)
from validation.simulated_noise import report

PARTS = ("detector", "candidates", "reruns", "verdicts")
SIZES = (1.05, 1.10)
#: Limits of the rule of the detector, or options of it -> values that are compared.
DETECTOR = {
    "min_change": (0.02, 0.03, 0.04),
    "max_chance": (1e-4, 3e-4, 1e-3),
    "SHORT_FACTOR": (1.0, 1.5, 2.0),
    "FAR_SHARE_SHORT": (0.5, 0.6, 0.7),
    "FAR_SHARE_LONG": (0.4, 0.5, 0.6),
    "MAX_FAR_SHARE": (0.3, 0.4, 0.5),
    "REPEAT_POWER": (1.0, 1.4, 1.5),
    "AUTOCORRELATION_POWER": (0.0, 0.7, 1.0),
    "MAX_RANGE_UNITS": (4.0, 5.0, 6.0),
    "MAX_OPPOSITE_UNITS": (3.0, 4.0, 5.0),
    "MIN_NOISE": (0.003, 0.006, 0.01),
    "END_UNITS": (3.0, 4.0, 5.0),
}
#: Limits of candidates for re-runs -> values that are compared.
CANDIDATES = {
    "CANDIDATE_UNITS": (2.0, 2.5, 3.0),
    "CANDIDATE_CHANGE": (0.02, 0.025, 0.03),
    "SUM_UNITS": (4.0, 5.0, 6.0),
    "SUM_ALLOWANCE": (0.25, 0.5, 1.0),
    "SLOW_CHANGE": (0.01, 0.02, 0.03),
    "DRIFT_NIGHTS": (5, 8, 12),
}
#: Changes that candidates should have: size, and nights since the change.
RECENT = ((1.0, 1), (1.05, 1), (1.10, 1), (1.03, 5))
#: Limits of the judgement of re-runs -> values that are compared.
RERUNS = {
    "MAX_P": (0.001, 0.002, 0.005),
    "STOP_ERRORS": (1.0, 1.3, 1.5, 2.0),
    "MIN_POWER": (0.05, 0.1, 0.15, 0.2),
}
#: Limits of the statistics of a report -> their module, and values that are compared.
VERDICTS = {
    "TRIM": (blocked_t, (0.1, 0.15, 0.2)),
    "RATIO_SPREAD": (blocked_t, (0.0, 4.0, 8.0)),
    "GRID_STEP": (moderated_variance, (0.1, 0.15, 0.3)),
    "START_WEIGHT": (moderated_variance, (4.0, 8.0, 16.0)),
    "EXCESS_ERRORS": (relabelling, (0.0, 0.5, 1.0)),
    "MANY_EXCESS_ERRORS": (relabelling, (2.0, 3.0, 4.0)),
    "MANY_LISTED": (relabelling, (10, 13, 20)),
    "MIN_FALSE": (relabelling, (0.05, 0.1, 0.2)),
}
#: Runs a side, kind of noise, and whether a block shares it.
REPORTS = (
    (3, "lognormal", False),
    (3, "bimodal", False),
    (5, "bimodal", False),
    (5, "slow_blocks", True),
)


def simulated(seed: int, rows: int) -> np.ndarray:
    """Return series of all kinds of noise, shape (series, nights)."""
    rng = np.random.default_rng(seed)
    return np.concatenate([shape(rng, rows) for shape in SHAPES])


def alarms(values: np.ndarray, options: DetectionOptions) -> Alarms:
    """Return the changes that are detected in each series."""
    return [
        [(change.index, change.detected_at, change.direction) for change in changes]
        for changes in detect_many(values, options=options)
    ]


def score(values: np.ndarray, options: DetectionOptions) -> list[str]:
    """Return false alarms and found steps as columns of the table."""
    n_series = len(values)
    start = np.random.default_rng(5).integers(40, NIGHTS - WITHIN - 2, n_series)
    planted = np.arange(NIGHTS) >= start[:, None]
    n_false = len(false_alarms(alarms(values, options)))
    columns = [f"{100 * n_false / n_series / (NIGHTS - HISTORY):.3f}"]
    for size in SIZES:
        found = alarms(values * np.where(planted, size, 1), options)
        delay = hits(found, start, np.ones(n_series))[:, 0]
        columns.append(f"{np.mean(delay <= 3):.2f} {np.mean(delay <= WITHIN):.2f}")
    return columns


def detector_rows(sets: Sequence[np.ndarray]) -> Iterator[list[str]]:
    """Yield a row for each value of each limit of the detector."""
    options = {field.name for field in fields(DetectionOptions)}
    for name, values in DETECTOR.items():
        module = scan if name == "END_UNITS" else rule
        used = getattr(DETECTION if name in options else module, name)
        for value in values:
            if name in options:
                scores = [score(each, replace(DETECTION, **{name: value})) for each in sets]
            else:
                with patch.object(module, name, value):
                    scores = [score(each, DETECTION) for each in sets]
            text = f"{value:.2g}" + " *" * bool(np.isclose(value, used))
            yield [name, text, *(column for columns in scores for column in columns)]


def score_candidates(values: np.ndarray) -> list[str]:
    """Return the shares of series that are candidates after each of the recent changes."""
    columns = []
    for size, n_nights in RECENT:
        changed = np.concatenate([values[:, :-n_nights], size * values[:, -n_nights:]], axis=1)
        direction = latest_night(changed).candidate
        columns.append(f"{np.mean(direction != 0 if size == 1 else direction > 0):.3f}")
    return columns


def candidate_rows(sets: Sequence[np.ndarray]) -> Iterator[list[str]]:
    """Yield a row for each value of each limit of candidates."""
    for name, values in CANDIDATES.items():
        used = getattr(candidates, name)
        for value in values:
            with ExitStack() as stack:
                for module in (candidates, scan):
                    if hasattr(module, name):
                        stack.enter_context(patch.object(module, name, value))
                scores = [score_candidates(each) for each in sets]
            text = f"{value:.3g}" + " *" * bool(np.isclose(value, used))
            yield [name, text, *(column for columns in scores for column in columns)]


def score_reruns(seed: int, rows: int) -> list[str]:
    """Return shares of confirmed changes of 0, 3, 5 and 10 %, and blocks used."""
    looks, columns = confirmation.CONFIRMATION_LOOKS, []
    for size in (1.0, 1.03, 1.05, 1.10):
        rng = np.random.default_rng(seed)
        noise = 0.005 * 8 ** rng.random((rows, 1))
        logs = noise * rng.standard_normal((rows, 3 * looks[-1]))
        logs += np.where(rng.random(logs.shape) < 0.1, rng.exponential(0.1, logs.shape), 0)
        logs[:, 2 * looks[-1] :] += np.log(size)
        good_runs, runs = np.exp(logs[:, : 2 * looks[-1]]), np.exp(logs[:, 2 * looks[-1] :])
        good_runs = good_runs.reshape(rows, looks[-1], 2)
        confirmed, n_blocks = np.zeros(rows, bool), np.full(rows, looks[-1])
        running = np.ones(rows, bool)
        for look in looks:
            result = confirmation.judge_reruns(good_runs[:, :look], runs[:, :look], np.ones(rows))
            stops = running & result.stopped
            confirmed[stops], n_blocks[stops] = result.decision[stops] == 1, look
            running &= ~stops
        columns.append(f"{np.mean(confirmed):.4f} {np.mean(n_blocks):.1f}")
    return columns


def rerun_rows(rows: int) -> Iterator[list[str]]:
    """Yield a row for each value of each limit of the judgement of re-runs."""
    for name, values in RERUNS.items():
        used = getattr(confirmation, name)
        for value in values:
            with patch.object(confirmation, name, value):
                columns = score_reruns(1, rows) + score_reruns(2, rows)
            yield [name, f"{value:.2g}" + " *" * bool(np.isclose(value, used)), *columns]


def score_verdicts(seed: int, n_reports: int) -> list[str]:
    """Return the share of false rows among the listed ones, and of changes that are listed."""
    columns = []
    for n_runs, kind, blocked in REPORTS:
        rng = np.random.default_rng([seed, n_runs])
        rates = []
        for _ in range(n_reports):
            baseline, _, contender, changed = report(rng, n_runs, kind=kind, mixed=False)
            listed = compare(baseline, contender, blocked=blocked).changed
            n_false = (listed & ~changed).sum()
            rates.append((n_false / max(listed.sum(), 1), (listed & changed).sum() / changed.sum()))
        false, found = np.mean(rates, axis=0)
        columns.append(f"{false:.3f} {found:.2f}")
    return columns


def verdict_rows(rows: int) -> Iterator[list[str]]:
    """Yield a row for each value of each limit of the statistics of a report."""
    for name, (module, values) in VERDICTS.items():
        used = getattr(module, name)
        for value in values:
            with patch.object(module, name, value):
                columns = [*score_verdicts(1, rows // 20), *score_verdicts(2, rows // 20)]
            yield [name, f"{value:.3g}" + " *" * bool(np.isclose(value, used)), *columns]


def show(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as they come."""
    widths = [max(len(title), 9) for title in titles]
    for row in (titles, *rows):
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip(), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100, help="series of each kind of noise")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="default: all parts")
    parser.add_argument("--series", type=Path, help="folder with values.parquet: real series, too")
    args = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    parts = args.only or PARTS
    sets = [simulated(seed, args.rows) for seed in (1, 2)]
    sets += [quiet_windows(read_series(args.series), 37)] if args.series else []
    names = ("chosen on", "held out", "real")[: len(sets)]
    if "detector" in parts:
        columns = [f"{name} {column}" for name in names for column in ("false", "5 %", "10 %")]
        show(["limit".ljust(15), "value", *columns], detector_rows(sets))
    if "candidates" in parts:
        columns = [f"{name} {size}" for name in names for size in ("0 %", "5 %", "10 %", "slow")]
        show(["limit".ljust(15), "value", *columns], candidate_rows(sets))
    if "reruns" in parts:
        columns = [
            f"{name} {size} %" for name in ("chosen on", "held out") for size in (0, 3, 5, 10)
        ]
        show(["limit".ljust(15), "value", *columns], rerun_rows(20 * args.rows))
    if "verdicts" in parts:
        columns = [
            f"{name} {n_runs} {kind}"
            for name in ("chosen on", "held out")
            for n_runs, kind, _ in REPORTS
        ]
        show(["limit".ljust(18), "value", *columns], verdict_rows(args.rows))


if __name__ == "__main__":
    main()
