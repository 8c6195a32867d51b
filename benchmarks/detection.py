"""Measure how well and fast changes are found: ``python benchmarks/detection.py [--series DIR]``.

``--only PART ...`` runs parts; each prints its CPU time. With 301 real series on two busy cores:
detector 11 s, reruns 56 s, fleet 4 s, groups 34 s (seconds and bytes per task, too), speed 2 s.

Prints false alarms, recall, delay, placement and speed, compared with simpler rules and, if they
are installed, the detectors of asv and Apache Otava: on real nightly series if a folder with
``values.parquet`` (columns series, time, value) is given, on simulated ones otherwise. Asserts
nothing. *Restless* nights are those that the fleet step calls unclear when there is no control
environment.

Protocol: windows of 110 nights; a detector gets only the nights so far; nights 0 to 29 are
history. The whole path (screen, simulated re-runs of suspects, opening) is scored on the same
windows. *Quiet* windows have no change of level of max(3 %, 1.5 sigma) between any two halves of
30 nights and no 5 nights in a row beyond max(3 %, 3 sigma): every alarm for a rise is false.
*Planted* windows are the same ones times 1.05 to 2 from a night on: found if placed no earlier
than 5 nights before that night and reported within 20 nights. *Real* steps are visible with
hindsight: the 10-90 % ranges of 25 nights on both sides do not overlap and the medians differ by
5 %. Of two in one direction within 25 nights, which share nights, the clearer one counts. Where a
step is gradual or follows scattered nights, its night is uncertain: an alarm up to 5 nights before
it counts, too. (Without these two rules .962 instead of .970 of the real steps are found; of 21
missed ones that were looked at, five had been reported one to five nights before and two were a
second label of a step that was found.)
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.path.append(str(HERE))  # at the end: `statistics` here must not replace the standard library's

import numpy as np  # noqa: E402
from _group_nights import group_nights  # noqa: E402
from _machines import several_machines  # noqa: E402
from _reruns import whole_path  # noqa: E402
from _rival_detectors import available  # noqa: E402
from numpy.lib.stride_tricks import sliding_window_view  # noqa: E402

from benchkit.analysis.changepoints import detect, detect_many, detect_nights  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402
from benchkit.experiment.nightly.detector_cache import (  # noqa: E402
    read_checkpoints,
    write_checkpoints,
)

#: Part -> columns of its table.
TABLES = {"reruns": ("step", "in the first night", "by the third", "by the twentieth")}
NIGHTS, HISTORY, WITHIN = 110, 30, 20
#: Stands for a store: only its path is used, to name the file of the cache.
STORE = SimpleNamespace(path="benchmarks/detection.py")
SIZES = (1.05, 1.10, 1.20, 1.50, 2.00)

#: One (index, night of the alarm, direction) per alarm, one list per series.
Alarms = list[list[tuple[int, int, int]]]
Detector = Callable[[np.ndarray], Alarms]


def ours(values: np.ndarray) -> Alarms:
    return [
        [(change.index, change.detected_at, change.direction) for change in changes]
        for changes in detect_many(values)
    ]


def three_above_ten(values: np.ndarray) -> Alarms:
    """Report a rise when the last three values exceed mean + 3 sd of the ten before them."""
    windows = sliding_window_view(values, 13, axis=1)
    limit = windows[:, :, :10].mean(2) + 3 * windows[:, :, :10].std(2, ddof=1)
    hit = (windows[:, :, 10:] > limit[:, :, None]).all(2)
    return _alarms(hit, offset=12, placed=2)


def far_from_mean(values: np.ndarray) -> Alarms:
    """Report a rise when the last value is five standard deviations above the mean of 100."""
    alarms = np.zeros(values.shape, bool)
    for night in range(10, values.shape[1]):
        past = values[:, max(0, night - 100) : night]
        alarms[:, night] = values[:, night] > past.mean(1) + 5 * past.std(1, ddof=1)
    return _alarms(alarms, offset=0, placed=0)


def _alarms(hit: np.ndarray, offset: int, placed: int) -> Alarms:
    return [
        [(int(n) + offset - placed, int(n) + offset, 1) for n in np.flatnonzero(row)] for row in hit
    ]


def robust(values: np.ndarray) -> float:
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


def is_quiet(log: np.ndarray) -> bool:
    centre = np.median(log)
    sigma = min(robust(log), robust(np.diff(log)) / np.sqrt(2))
    halves = np.median(sliding_window_view(log, 15), axis=1)
    shifted = np.abs(halves[15:] - halves[:-15]) >= max(np.log(1.03), 1.5 * sigma)
    away = np.abs(log - centre) > max(0.03, 3 * sigma)
    return not shifted.any() and not (np.convolve(away, np.ones(5), "valid") >= 5).any()


def hindsight(log: np.ndarray) -> list[tuple[int, int]]:
    """Return night and direction of the steps that are obvious with hindsight."""
    gaps = np.full(log.size, -np.inf)
    signs = np.zeros(log.size, int)
    for night in range(25, log.size - 25):
        before, after = log[night - 25 : night], log[night : night + 25]
        low, middle, high = np.quantile(before, (0.1, 0.5, 0.9))
        low_after, middle_after, high_after = np.quantile(after, (0.1, 0.5, 0.9))
        if abs(middle_after - middle) >= np.log(1.05):
            gaps[night] = max(low_after - high, low - high_after)
            signs[night] = np.sign(middle_after - middle)
    candidates = np.flatnonzero(gaps > 0)
    groups = np.split(candidates, np.flatnonzero(np.diff(candidates) > 3) + 1)
    best = np.array([group[gaps[group].argmax()] for group in groups if group.size], int)
    near = (signs[best, None] == signs[best]) & (np.abs(best[:, None] - best) <= 25)
    kept = best[~(near & (gaps[best] > gaps[best, None])).any(axis=1)]
    return [(int(night), int(signs[night])) for night in kept]


def read_series(folder: Path) -> list[np.ndarray]:
    import pandas as pd

    table = pd.read_parquet(folder / "values.parquet").sort_values("time", kind="stable")
    return [group["value"].to_numpy(float) for _, group in table.groupby("series", observed=True)]


def simulated_series(n: int = 150) -> list[np.ndarray]:
    """Return series with noise of 0.3 to 8 %, a third with outliers, a third with busy nights."""
    rng = np.random.default_rng(1)
    series = []
    for number in range(n):
        log = rng.normal(0, 0.003 * 25 ** rng.random(), 500)
        if number % 3 == 1:
            log += np.where(rng.random(500) < 0.05, rng.exponential(0.2, 500), 0)
        if number % 3 == 2:
            for start in np.flatnonzero(rng.random(500) < 0.02):
                log[start : start + 2] += rng.exponential(0.1, log[start : start + 2].size)
        series.append(10 * np.exp(log))
    return series


def false_alarms(found: Alarms) -> list[tuple[int, int]]:
    """Return index and night of each alarm for a rise after the history, once per place."""
    false = []
    for alarms in found:
        seen: list[int] = []
        for index, night, direction in alarms:
            if night >= HISTORY and direction > 0 and all(abs(index - s) > 7 for s in seen):
                false.append((index, night))
            seen.append(index)
    return false


def hits(
    found: Alarms, start: np.ndarray, direction: np.ndarray, before: int = 5, early: int = 0
) -> np.ndarray:
    """Return nights to detection (NaN: missed) and distance of the place in nights, per series.

    The step may be placed `before` nights before `start`, and reported `early` nights before it.
    """
    result = np.full((len(found), 2), np.nan)
    for row, alarms in enumerate(found):
        for index, night, sign in alarms:
            delay = night - start[row]
            if sign == direction[row] and index >= start[row] - before and -early <= delay < WITHIN:
                result[row] = delay + 1, index - start[row]
                break
    return result


def restless(folder: Path) -> dict[tuple[str, np.datetime64], float]:
    """Return for each machine and night the share of its series 3 noise units above the median."""
    import pandas as pd

    about = pd.read_csv(folder / "series.csv").set_index("series")
    table = pd.read_parquet(folder / "values.parquet").sort_values("time", kind="stable")
    rows = []
    for name, group in table.groupby("series", observed=True):
        past = np.log(group["value"]).shift(2).rolling(60, min_periods=10)
        spread = np.maximum((past.quantile(0.84) - past.quantile(0.16)) / 2, 0.006)
        units = (np.log(group["value"]) - past.median()) / spread
        machine = "/".join(about.loc[name, ["origin", "machine"]])
        rows.append(
            pd.DataFrame(
                {"night": group["time"].dt.floor("h"), "up": units >= 3, "machine": machine}
            )
        )
    nights = pd.concat(rows).groupby(["machine", "night"])["up"].agg(["mean", "size"])
    return nights.loc[nights["size"] >= 10, "mean"].to_dict()


def fleet(folder: Path, stride: int) -> None:
    """Print the false alarms with and without those of restless nights."""
    import pandas as pd

    share = restless(folder)
    about = pd.read_csv(folder / "series.csv").set_index("series")
    table = pd.read_parquet(folder / "values.parquet").sort_values("time", kind="stable")
    shares, means, n_windows = [], [], 0
    for name, group in table.groupby("series", observed=True):
        values, times = group["value"].to_numpy(float), list(group["time"].dt.floor("h"))
        machine = "/".join(about.loc[name, ["origin", "machine"]])
        for at in range(0, values.size - NIGHTS + 1, stride):
            window = values[at : at + NIGHTS]
            if is_quiet(np.log(window)):
                n_windows += 1
                false = false_alarms(ours(window[None]))
                for index, night in false:
                    nights = [(machine, times[at + n]) for n in range(index, night + 1)]
                    shares.append(share.get(nights[-1], 0.0))
                    means.append(np.mean([share.get(each, 0.0) for each in nights]))
    n_nights = n_windows * (NIGHTS - HISTORY)
    calm = sum(s < 0.1 for s in shares)
    print(
        f"fleet: {np.mean(np.array(list(share.values())) >= 0.1):.3f} of the nights are restless "
        f"(a tenth of the machine's series three noise units up)\n"
        f"  false alarms / 100 series-nights {100 * len(shares) / n_nights:.3f}, "
        f"on other nights {100 * calm / n_nights:.3f}, where on average over the nights of the "
        f"change less than 5 % are up {100 * sum(m < 0.05 for m in means) / n_nights:.3f}\n"
    )


def measure(
    name: str, detector: Detector, series: list[np.ndarray], stride: int, most: int = 0
) -> None:
    """Print the results of a detector; `most` limits the windows and real steps, drawn by seed."""
    logs = [np.log(values) for values in series]
    windows = list(np.log(quiet_windows(series, stride)))
    rng = np.random.default_rng(3)
    if most:
        windows = [windows[at] for at in rng.permutation(len(windows))[:most]]
    quiet = np.exp(windows)
    n_nights = len(quiet) * (NIGHTS - HISTORY)
    start = np.random.default_rng(5).integers(40, NIGHTS - WITHIN - 2, len(quiet))
    planted = np.arange(NIGHTS) >= start[:, None]

    print(f"{name}: {len(quiet)} quiet windows")
    clock = time.process_time()
    n_false = len(false_alarms(detector(quiet)))
    seconds = (time.process_time() - clock) / len(quiet) * 1000
    low, high = np.sqrt(n_false + 1) * np.array([-2, 2]) + n_false
    print(
        f"  false alarms / 100 series-nights {100 * n_false / n_nights:6.3f}   "
        f"({max(0, 100 * low / n_nights):.3f} to {100 * high / n_nights:.3f})"
    )
    for size in SIZES:
        found = hits(detector(quiet * np.where(planted, size, 1)), start, np.ones(len(quiet)))
        delay, off = found.T
        print(
            f"  step of {size - 1:4.0%}: found {np.mean(delay <= WITHIN):5.3f}, "
            f"within 3 nights {np.mean(delay <= 3):5.3f}, median {np.nanmedian(delay):.0f} nights, "
            f"within 1 night of its place {np.mean(np.abs(off[~np.isnan(off)]) <= 1):5.3f}"
        )
    cuts = [
        (log[max(0, night - 75) : night + 35], min(night, 75), direction)
        for log in logs
        for night, direction in hindsight(log)
    ]
    if most:
        cuts = [cuts[at] for at in rng.permutation(len(cuts))[:most]]
    for direction, word in ((1, "rises"), (-1, "falls")):
        steps = [(np.exp(log), night) for log, night, sign in cuts if sign == direction]
        if steps:
            delay = [
                hits(detector(values[None]), np.array([night]), np.array([direction]), early=5)[
                    0, 0
                ]
                for values, night in steps
            ]
            print(f"  real {word}: {len(steps)}, found {np.mean(~np.isnan(delay)):5.3f}")
    print(f"  CPU for 1000 series, replay of {NIGHTS} nights: {seconds:.3f} s\n", flush=True)


def quiet_windows(series: list[np.ndarray], stride: int) -> np.ndarray:
    """Return the values of all windows without a change of level, shape (windows, nights)."""
    logs = [np.log(values) for values in series]
    windows = [
        log[at : at + NIGHTS]
        for log in logs
        for at in range(0, log.size - NIGHTS + 1, stride)
        if is_quiet(log[at : at + NIGHTS])
    ]
    return np.exp(windows)


def speed() -> None:
    print("speed")
    rng = np.random.default_rng(2)
    for n_series, n_nights in ((1000, 64), (1000, 110), (1000, 365), (100, 2000)):
        values = rng.lognormal(sigma=0.02, size=(n_series, n_nights))
        values[:, n_nights // 2 :] *= 1.1
        detect_many(values)
        clock = time.process_time()
        detect_many(values)
        seconds = time.process_time() - clock
        print(
            f"  {n_series} series x {n_nights} nights, a step in each: {seconds:6.3f} s, "
            f"{1e6 * seconds / n_series / n_nights:.2f} us per series and night"
        )
    print(
        "  one more night of 1000 series, with the states of the night before (read and written):"
    )
    for n_nights in (30, 180, 700):
        values = rng.lognormal(sigma=0.02, size=(1000, n_nights))
        values[:, n_nights // 2 :] *= 1.1
        write_checkpoints(STORE, detect_nights(values[:, :-1]).checkpoints)
        clock = time.process_time()
        found = detect_nights(values, earlier=read_checkpoints(STORE))
        between = time.process_time()
        write_checkpoints(STORE, found.checkpoints)
        end = time.process_time()
        whole = detect_nights(values)
        replay = time.process_time() - end
        print(
            f"    {n_nights} nights: {between - clock:.3f} + {end - between:.3f} s, without them "
            f"{replay:.3f} s; equal: {found.changes == whole.changes}"
        )
    clock = time.process_time()
    for row in values[:50, :110]:
        detect(np.arange(110), row)
    print(f"  one series of 110 nights alone: {(time.process_time() - clock) / 50 * 1e3:.2f} ms")


#: Parts in the order in which they run.
PARTS = ("detector", "reruns", "rules", "rivals", "fleet", "groups", "machines", "speed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=Path, default=HERE.parent.parent / "shared/nightly-series")
    parser.add_argument("--stride", type=int, default=37, help="Nights between windows.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="Default: all.")
    parser.add_argument(
        "--rival-windows", type=int, default=60, help="Windows for asv and Otava, which are slow."
    )
    parser.add_argument(
        "--file", type=Path, help="Keep the pieces of `reruns` here, and continue with them."
    )
    parser.add_argument("--seconds", type=float, default=np.inf, help="Time for these pieces.")
    parser.add_argument("--write-docs", action="store_true", help="Write the table of `reruns`.")
    args = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    real = (args.series / "values.parquet").exists()
    series: list[np.ndarray] = []
    if set(args.only) - {"fleet", "groups", "speed"}:
        series = read_series(args.series) if real else simulated_series()
        print(f"{len(series)} {'real' if real else 'simulated'} series\n")
    for part in args.only:
        clock = time.process_time()
        if part == "detector":
            measure("benchkit", ours, series, args.stride)
        elif part == "reruns":
            quiet = quiet_windows(series, args.stride)
            rows = whole_path(
                quiet, SIZES[:3], HISTORY, WITHIN, file=args.file, seconds=args.seconds
            )
            show_table(__file__, "reruns", TABLES["reruns"], rows, write=args.write_docs)
        elif part == "rules":
            measure("last 3 above mean + 3 sd of 10", three_above_ten, series, args.stride)
            measure("last 1 above mean + 5 sd of 100", far_from_mean, series, args.stride)
        elif part == "rivals":
            for name, rival in available().items():
                measure("benchkit, on the windows of the rivals", ours, series, args.stride,
                        args.rival_windows)  # fmt: skip
                measure(name, rival, series, args.stride, args.rival_windows)
        elif part == "fleet" and real and (args.series / "series.csv").exists():
            fleet(args.series, args.stride)
        elif part == "groups" and real and (args.series / "series.csv").exists():
            group_nights(args.series, args.stride, is_quiet)
        elif part == "machines":
            several_machines(quiet_windows(series, args.stride), HISTORY)
        elif part == "speed":
            speed()
        print(f"({part}: {time.process_time() - clock:.0f} s of CPU)\n", flush=True)


if __name__ == "__main__":
    main()
