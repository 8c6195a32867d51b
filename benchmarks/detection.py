"""Measure how well and fast changes are found: ``python benchmarks/detection.py [--series DIR]``.

``--only PART ...`` runs parts; each prints its CPU time. With 301 real series on two busy cores:
detector 11 s, reruns 9 s, fleet 4 s, groups 34 s (seconds and bytes per task, too), speed 2 s.

Prints false alarms, recall, delay, placement and speed, compared with simpler rules and, if they
are installed, the detectors of asv and Apache Otava: on real nightly series if a folder with
``values.parquet`` (columns series, time, value) is given, on simulated ones otherwise. Asserts
nothing. *Restless* nights are those that the fleet step calls unclear when there is no control
environment.

"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.path.append(str(HERE))  # at the end: `statistics` here must not replace the standard library's

import numpy as np  # noqa: E402
from numpy.lib.stride_tricks import sliding_window_view  # noqa: E402

from benchkit.analysis.changepoint.weekdays import without_weekdays  # noqa: E402
from benchkit.analysis.changepoints import detect_many, latest_night  # noqa: E402
from benchkit.analysis.regression.lasting_changes import (  # noqa: E402
    LASTING_NIGHTS,
    find_lasting_changes,
)
from validation.docs_tables import show_table  # noqa: E402
from validation.nights import groups  # noqa: E402
from validation.nights.machines import MACHINES, WORKLOADS, causes_of_reports  # noqa: E402
from validation.nights.reruns import follow_pieces  # noqa: E402
from validation.nights.rival_detectors import available  # noqa: E402
from validation.nights.windows import (  # noqa: E402
    HISTORY,
    NIGHTS,
    WITHIN,
    Alarms,
    false_alarms,
    hindsight,
    hits,
    is_quiet,
    quiet_windows,
    read_series,
    simulated_series,
)

#: Part -> columns of its table.
TABLES = {"reruns": ("step", "in the first night", "by the third", "by the twentieth")}
SIZES = (1.05, 1.10, 1.20, 1.50, 2.00)

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
    for n_nights in (30, 180, 700):
        values = rng.lognormal(sigma=0.02, size=(1000, n_nights))
        values[:, n_nights // 2 :] *= 1.1
        clock = time.process_time()
        latest_night(values)
        seconds = time.process_time() - clock
        print(f"  night {n_nights} of 1000 series, with the candidates: {seconds:.3f} s")
    clock = time.process_time()
    for row in values[:50, :110]:
        detect_many(row[None])
    print(f"  one series of 110 nights alone: {(time.process_time() - clock) / 50 * 1e3:.2f} ms")


def seasons(quiet: np.ndarray) -> None:
    """Print alarms and found steps with a busy weekend, and of a build that goes back and forth."""
    nights = np.arange(NIGHTS)
    times = np.datetime64("2026-03-02", "us") + nights * np.timedelta64(1, "D")
    # The season of a day is known after five weeks.
    start = np.random.default_rng(7).integers(60, NIGHTS - WITHIN - 2, len(quiet))
    since = nights - start[:, None]
    up = np.ones(len(quiet))
    n_nights = len(quiet) * (NIGHTS - HISTORY)
    print(f"seasons: {len(quiet)} quiet windows, 8 % more on two days a week")
    for title, factor in (("none", 1.0), ("weekend", np.where(nights % 7 < 2, 1.08, 1.0))):
        for way, taken in (("as it is", np.asarray), ("taken out", None)):
            adjust = taken or (lambda values: without_weekdays(values, times))
            values = quiet * factor
            n_false = len(false_alarms(ours(adjust(values))))
            found = [
                hits(ours(adjust(values * np.where(since >= 0, size, 1))), start, up)[:, 0]
                for size in SIZES[:3]
            ]
            shares = " ".join(f"{np.mean(delay <= WITHIN):.3f}" for delay in found)
            print(
                f"  {title:8} {way:9}: false alarms / 100 series-nights "
                f"{100 * n_false / n_nights:.3f}, steps of 5, 10, 20 % found {shares}",
                flush=True,
            )
    for size in SIZES[1:4]:
        values = quiet * np.where((since >= 0) & (since % 2 == 0), size, 1)
        delay = hits(ours(values), start, up)[:, 0]
        print(f"  every other night {size - 1:.0%} more: found {np.mean(delay <= WITHIN):.3f}")


def whole_path(quiet: np.ndarray, file: Path | None, seconds: float) -> list[list[str]]:
    """Return the shares of found steps by size; print the false regressions."""
    sizes = SIZES[:3]
    pieces = follow_pieces(quiet, sizes, HISTORY, WITHIN, file=file, seconds=seconds)
    null, *planted = ([p for p in pieces if p["size"] == size] for size in (1.0, *sizes))
    n_windows, n_false, n_suspects, n_blocks = (
        sum(piece[name] for piece in null)
        for name in ("n_windows", "n_false", "n_suspects", "n_blocks")
    )
    n_nights = max(n_windows, 1) * (NIGHTS - HISTORY)
    print(
        f"with re-runs: {n_windows} of {len(quiet)} quiet windows\n"
        f"  false regressions / 100 series-nights {100 * n_false / n_nights:.4f}, measured "
        f"again {100 * n_suspects / n_nights:.2f} with {n_blocks / max(n_suspects, 1):.1f} blocks "
        "each"
    )
    rows = []
    for size, parts in zip(sizes, planted, strict=True):
        delay = np.array([d for piece in parts for d in piece["delays"]], float)
        if delay.size:
            found = [f"{np.mean(delay <= n):.2f}".removeprefix("0") for n in (1, 3, WITHIN)]
            rows.append([f"{100 * (size - 1):.0f} %", *found])
    return rows


def several_machines(quiet: np.ndarray, n_reports: int = 40) -> None:
    """Print how alarms are called: of a slow machine, of changed code, and of neither."""
    print(f"several machines: {n_reports} x {MACHINES} machines x {WORKLOADS} workloads")
    n_nights = n_reports * MACHINES * WORKLOADS * (quiet.shape[1] - HISTORY)
    for title, reports in causes_of_reports(quiet, HISTORY, n_reports):
        counts = {"code": 0, "unclear": 0, "infrastructure": 0}
        found = planted = right = 0
        for affected, start, causes in reports:
            seen = set()
            for row, index, cause in causes:
                if affected[row] and index >= start - 5:
                    right += cause == "code" and row not in seen
                    seen.add(row)
                else:
                    counts[cause] += 1
            found += len(seen)
            planted += int(affected.sum())
        text = ", ".join(f"{cause} {100 * n / n_nights:.3f}" for cause, n in counts.items())
        print(f"  {title}: other alarms / 100 series-nights by cause: {text}")
        if planted:
            print(f"    of {planted} changed series {found} found, {right} of them called code")


def group_nights(folder: Path, stride: int) -> None:
    """Print false and found changes of shares per night of a workload."""
    print("task groups: reports per 100 nights of a workload, all groups together")
    for title, seconds, has_bytes, rng in groups.workloads_of_groups(folder, stride):
        score_shares(title, [rows / rows.sum(axis=0) for rows in seconds], rng)
        if has_bytes:
            score_per_task(seconds, rng)


def score_per_task(seconds: list[np.ndarray], rng: np.random.Generator) -> None:
    """Print false reports of seconds per task alone, and of shares with bytes per task."""
    odds = groups.odds_of([rows / rows.sum(axis=0) for rows in seconds])
    noise = [0.03 * rng.random((len(rows), 1)) for rows in seconds]
    nbytes = [np.exp(level * rng.standard_normal((len(level), NIGHTS))) for level in noise]
    rates = []
    for searched in (
        seconds,
        [np.concatenate(rows) for rows in zip(odds, nbytes, strict=True)],
        [np.concatenate(rows) for rows in zip(odds, seconds, strict=True)],
    ):
        found = find_lasting_changes(searched)
        n_false = sum(each.night >= HISTORY for changes in found for each in changes)
        rates.append(100 * n_false / len(seconds) / (NIGHTS - HISTORY))
    print(
        "    false in all, of seconds per task alone {:.3f}, of shares and bytes per task {:.3f}, "
        "of shares and seconds per task {:.3f}".format(*rates)
    )


def score_shares(
    title: str,
    workloads: list[np.ndarray],
    rng: np.random.Generator,
) -> None:
    found = find_lasting_changes(groups.odds_of(workloads))
    n_false = np.array([sum(each.night >= HISTORY for each in changes) for changes in found])
    quiet = np.array([all(is_quiet(np.log(r / (1 - r))) for r in rows) for rows in workloads])
    n_nights = NIGHTS - HISTORY
    print(
        f"  {title}: {len(workloads)} workloads, {sum(map(len, workloads))} series: false "
        f"{100 * n_false[quiet].sum() / max(quiet.sum(), 1) / n_nights:.3f} where all shares are "
        f"quiet ({quiet.mean():.0%}), {100 * n_false.sum() / len(workloads) / n_nights:.3f} in all"
    )
    start = rng.integers(40, NIGHTS - WITHIN - 2, len(workloads))
    for size in (1.1, 1.2):
        planted = [rows.copy() for rows in workloads]
        for rows, first in zip(planted, start, strict=True):
            rows[0, first:] *= size
            rows /= rows.sum(axis=0)
        found = find_lasting_changes(groups.odds_of(planted))
        within = [
            [each for each in changes if first <= each.night < first + WITHIN]
            for changes, first in zip(found, start, strict=True)
        ]
        delay = np.array(
            [h[0].night - s + 1 if h else np.inf for h, s in zip(within, start, strict=True)]
        )
        right = [h[0].row == 0 for h in within if h]
        soon = LASTING_NIGHTS + 1
        print(
            f"    group of 2 to 10 % takes {size - 1:.0%} more: found in {soon} nights "
            f"{np.mean(delay <= soon):.2f}, in {WITHIN} {np.mean(delay <= WITHIN):.2f}, "
            f"right group {np.mean(right):.2f}",
            flush=True,
        )


#: Parts in the order in which they run.
PARTS = (
    "detector", "reruns", "rules", "rivals", "fleet", "groups", "machines", "seasons", "speed",
)  # fmt: skip


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
            rows = whole_path(quiet, args.file, args.seconds)
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
            group_nights(args.series, args.stride)
        elif part == "machines":
            several_machines(quiet_windows(series, args.stride))
        elif part == "seasons":
            seasons(quiet_windows(series, args.stride))
        elif part == "speed":
            speed()
        print(f"({part}: {time.process_time() - clock:.0f} s of CPU)\n", flush=True)


if __name__ == "__main__":
    main()
