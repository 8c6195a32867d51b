"""Measure speed and errors of verdicts: ``python benchmarks/verdicts.py [--quick] [--only PART]``.

Parts: speed, intervals, reports, workloads (metrics of a workload that change together), work (rows
of CPU seconds as well as duration and memory), groups (task groups), adaptive, resumed (by hand,
until decided); rows (share of false rows by kind of noise; ``--write-docs`` writes them), functions
(which function of a task group is named) and nights (shares of thread-seconds and of processor
time) with ``--reports N``; with ``--store DIR`` only the correlation of metrics in its runs.
Prints, asserts nothing; the tests assert a smaller version. Speed is CPU time compared with
the table of coiled/benchmarks: 10 000 resamples of the runs of each test and arm with pandas, their
means, and the share of ratios beyond 34 thresholds.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from validation import simulated_noise as noise  # noqa: E402
from validation.simulated_groups import frame_arms, group_report, score_groups  # noqa: E402

import benchkit  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402
from validation.nights.windows import HISTORY, NIGHTS, WITHIN  # noqa: E402
from benchkit.analysis.compare.run_groups import find_frame  # noqa: E402
from benchkit.analysis.regression.lasting_changes import find_lasting_changes  # noqa: E402
from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS  # noqa: E402
from benchkit.analysis.compare.composition import compare_groups  # noqa: E402
from benchkit.analysis.metric_names import check_metrics  # noqa: E402
from benchkit.analysis.effects import compare  # noqa: E402
from benchkit.analysis.stats.equal_load import at_equal_load  # noqa: E402

THRESHOLDS = np.linspace(0, 0.8, 17)
#: Part -> columns of its table.
TABLES = {
    "rows": (
        "runs a side", "log-normal", "one run in ten 50 % slower", "three in ten 25 % slower",
        "several kinds",
    )
}  # fmt: skip
#: Title of a column -> options of `report`.
KINDS = {
    "log-normal": {"mixed": False},
    "one run in ten 50 % slower": {"kind": "outliers", "mixed": False},
    "three in ten 25 % slower": {"kind": "bimodal", "mixed": False},
    "several kinds": {"mixed": True},
}
#: Noise of CPU seconds within a block, at load 13 on 2 cores: .035 of the workers, .065 of the
#: scheduler (`python benchmarks/planted.py work`); that of the duration was .2.
CPU_NOISE = 0.05
#: Power of the load with which CPU seconds rise on a busy machine: .1 to .3 of the workers, .3
#: to .7 of the scheduler, at load 11 (`python benchmarks/planted.py work`).
FOLLOWS = 0.3
#: Runs a side, and whether there is a null arm.
SIZES = ((3, False), (3, True), (4, False), (5, False), (5, True), (10, False))


def resampled_table(runs: pd.DataFrame, n_resamples: int = 10_000) -> pd.DataFrame:
    """Return the reference's table: a row per test and threshold, 17 in each direction."""

    def means(arm: pd.DataFrame) -> pd.DataFrame:
        drawn = arm[["value"]].sample(frac=n_resamples, replace=True)
        drawn["resample"] = np.arange(len(drawn)) // len(arm)
        return drawn.groupby("resample").mean()

    drawn = runs.groupby(["test", "arm"])[["value"]].apply(means).reset_index()
    wide = drawn.pivot(index=["test", "resample"], columns="arm", values="value")
    change = (wide["B"] / wide["A"] - 1).rename("change").reset_index()

    def shares(group: pd.DataFrame) -> pd.DataFrame:
        column = group["change"].to_numpy()[:, None]
        x = np.concatenate([-THRESHOLDS[::-1], THRESHOLDS])
        beyond = np.concatenate([column < x[:17], column > x[17:]], axis=1)
        return pd.DataFrame({"x": x, "p": beyond.sum(axis=0) / len(group)})

    return change.groupby("test")[["change"]].apply(shares).reset_index()


def cpu_s(work: Callable[[], Any], repeats: int) -> float:
    """Return the minimum CPU time of a call in seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def print_speed(quick: bool) -> None:
    print("speed: 100 tests, runs a side, CPU time")
    for n_runs in (5,) if quick else (3, 5, 7, 10):
        rng = np.random.default_rng(n_runs)
        a, b = (10 * np.exp(noise.make("lognormal", rng, (100, n_runs, 2)))).transpose(2, 0, 1)
        frame = pd.DataFrame(
            [
                (i, arm, v)
                for arm, rows in (("A", a), ("B", b))
                for i, r in enumerate(rows)
                for v in r
            ],
            columns=["test", "arm", "value"],
        )
        reference = cpu_s(lambda frame=frame: resampled_table(frame), 1 if quick else 3)
        ours = cpu_s(lambda a=a, b=b: compare(a, b).table(), 20)
        text = f"calibrated {ours * 1e3:.1f} ms ({reference / ours:.0f} x)"
        print(f"  {n_runs:>2} runs: reference {reference:.2f} s, {text}", flush=True)


def print_intervals(quick: bool) -> None:
    print("intervals: coverage of 95 % / false positives at 5 %, at 3, 5, 10 blocks")
    reps = 10 if quick else 60
    for n_tests, n_arms in ((100, 2), (100, 3), (1, 2)):
        null = "with a null arm" if n_arms == 3 else "two arms"
        print(f"  {n_tests} test{'s' * (n_tests > 1)} a report, {null}")
        for kind in (*noise.INDEPENDENT, "rare_outliers", *noise.IN_TIME):
            cells = []
            for n_blocks in (3, 5, 10):
                rng = np.random.default_rng(n_blocks)
                reports = reps * (20 if n_tests == 1 else 1)
                held, wrong, total = noise.cover_and_reject(
                    rng, kind, n_blocks, n_tests=n_tests, n_arms=n_arms, reports=reports
                )
                cells.append(f"{held / total:.3f} / {wrong / total:.3f}")
            print(f"    {kind:<16}" + "   ".join(cells), flush=True)


def rates(called: np.ndarray, changed: np.ndarray) -> tuple[float, float]:
    """Return the share of called rows that are false, and of changed rows that are called."""
    false = (called & ~changed).sum() / max(called.sum(), 1)
    return float(false), float((called & changed).sum() / max(changed.sum(), 1))


def print_reports(quick: bool) -> None:
    print("reports: 700 rows, 70 changed by 5, 10 or 20 %: false discoveries / changes found")
    for mixed in (False, True):
        print("  log-normal noise" if not mixed else "  four rows in ten of another kind of noise")
        for n_blocks in (3, 5, 10):
            rng = np.random.default_rng(n_blocks)
            by_method: dict[str, list[tuple[float, float]]] = {}
            for _ in range(5 if quick else 40):
                a, null, b, changed = noise.report(rng, n_blocks, mixed=mixed)
                for name, third in (("two arms", None), ("null arm", null)):
                    q = compare(a, b, null=third).q
                    by_method.setdefault(name, []).append(rates(q <= 0.05, changed))
            means = {name: np.mean(pairs, axis=0) for name, pairs in by_method.items()}
            text = "   ".join(f"{name} {f:.3f} / {t:.2f}" for name, (f, t) in means.items())
            print(f"    {n_blocks:>2} blocks: {text}", flush=True)


def print_workloads(quick: bool) -> None:
    print("workloads: 100 x 7 metrics, 15 % change: false discoveries / found, together and alone")
    cases = [(c, 0.15, b) for c in (0.0, 0.4, 0.8) for b in (False, True)]
    for correlation, share, blocked in [*cases, (0.4, 0.0, False)]:
        cells = []
        for n_blocks in (3, 5, 10):
            rng = np.random.default_rng(n_blocks)
            pairs = []
            for _ in range(5 if quick else 40):
                a, null, b, changed, workload, metric = noise.workload_report(
                    rng, n_blocks, correlation=correlation, share=share, blocked=blocked
                )
                effects = compare(
                    a, b, null=null, family=metric, workload=workload, blocked=blocked
                )
                pairs.append(
                    (*rates(effects.q <= 0.05, changed), *rates(effects.own_q <= 0.05, changed))
                )
            means = np.mean(pairs, axis=0)
            cells.append("{:.3f} / {:.2f} (alone {:.3f} / {:.2f})".format(*means))
        order = "blocks" if blocked else "no blocks"
        changes = "" if share else ", nothing changed"
        print(f"  correlation {correlation}, {order}{changes}: " + "   ".join(cells), flush=True)


def work_at_equal_load(
    a: np.ndarray, null: np.ndarray, b: np.ndarray, wait_share: np.ndarray
) -> list[np.ndarray]:
    """Return the arms of a `work_report` with CPU seconds as a comparison tests them."""
    arms = {"baseline": a.copy(), "null": null.copy(), "contender": b.copy()}
    for number in range(wait_share.shape[1]):
        load = dict(zip(arms, wait_share[:, number], strict=True))
        for row in range(6 * number + 3, 6 * number + 6):
            work = at_equal_load({arm: rows[row] for arm, rows in arms.items()}, load)
            for arm, rows in arms.items():
                rows[row] = work[arm]
    return list(arms.values())


def print_work(quick: bool) -> None:
    print("work: 15 % of workloads change by 10 %, 5 blocks; false / duration, memory, work found")
    for machine, wall, follows in (("quiet", 0.05, 0.0), ("busy", 0.5, FOLLOWS)):
        for n_workloads, reports in ((1, 600), (5, 120), (20, 40), (100, 10)):
            share = 0.5 if n_workloads == 1 else 0.15
            cells = []
            for title, n_metrics in (("without rows of work", 3), ("with", 6)):
                rng = np.random.default_rng(n_workloads)
                false, found, total = [], np.zeros(3), np.zeros(3)
                for _ in range(reports // (5 if quick else 1)):
                    a, null, b, waits, changed, workload, metric = noise.work_report(
                        rng, 5, n_workloads, wall=wall, cpu=CPU_NOISE, follows=follows, share=share
                    )
                    if follows:
                        a, null, b = work_at_equal_load(a, null, b, waits)
                    rows = metric < n_metrics
                    effects = compare(
                        a[rows], b[rows], null=null[rows], blocked=True, family=metric[rows],
                        workload=workload[rows],
                    )  # fmt: skip
                    called, truth = effects.changed, changed[rows]
                    false.append(rates(called, truth)[0])
                    kind = np.array([0, 1, 1, 2, 2, 2])[metric[rows]]
                    found += np.bincount(kind, called & truth, 3)
                    total += np.bincount(kind, truth, 3)
                shares = " ".join(f"{x:.2f}" for x in found / np.maximum(total, 1))
                cells.append(f"{title} {np.mean(false):.3f} / {shares}")
            print(f"  {machine}, {n_workloads:>3} workloads: {'; '.join(cells)}", flush=True)


def print_groups(quick: bool) -> None:
    print("groups: 20 workloads, 15 % with a group of 2 to 10 % of the run that is 10 % slower")
    for spread in (0.02, 0.04):
        for n_blocks in (3, 5, 10):
            rng = np.random.default_rng(n_blocks)
            scores, false = [], []
            for _ in range(5 if quick else 40):
                groups, planted = group_report(rng, n_blocks, noise=spread)
                score = score_groups(compare_groups(groups, blocked=True), planted)
                scores.append((*score, len(planted)))
                false.append(score[1] / max(score[0], 1))
            _, _, found, right, named, n_planted = np.sum(scores, axis=0)
            print(
                f"  noise of a group {spread:.0%}, {n_blocks:>2} blocks: found "
                f"{found / n_planted:.2f}, false {np.mean(false):.3f}, right group first "
                f"{right / max(named, 1):.2f}",
                flush=True,
            )


def print_correlation(folder: Path) -> None:
    """Print the correlation of metrics from run to run in a store."""
    runs = benchkit.Store(folder, create=False).runs()
    runs = runs[runs["outcome"] == "ok"]
    names = [name for name in check_metrics(["all"]) if name in runs]
    logs = np.log(runs[names].where(runs[names] > 0).astype(float))
    keys = [runs[name].fillna("") for name in ("workload", "experiment", "arm", "environment")]
    n_runs = logs.groupby(keys)["duration"].transform("size")
    residuals = (logs - logs.groupby(keys).transform("mean"))[n_runs >= 2]
    residuals = residuals / residuals.groupby([key[n_runs >= 2] for key in keys]).transform("std")
    residuals = residuals.loc[:, residuals.notna().sum() >= 10]
    matrix = residuals.corr(min_periods=10)
    usual = [name for name in DEFAULT_METRICS if name in matrix]
    for title, chosen in (("default metrics", usual), ("all metrics", list(matrix))):
        values = matrix.loc[chosen, chosen].to_numpy()
        between = values[np.triu_indices(len(chosen), 1)]
        mean = np.nanmean(between) if np.isfinite(between).any() else np.nan
        print(f"{title}, {len(residuals)} runs: mean correlation {mean:.2f}")
    print(matrix.round(2).to_string())


def print_adaptive(quick: bool) -> None:
    print("adaptive: 100 tests, 10 changed, blocks per test; fixed plan with the same recall")
    for kind in ("lognormal", "slow_blocks", "drift"):
        rng = np.random.default_rng(0)
        fixed_blocks = np.array([3, 5, 7, 10, 12, 15, 20])
        fixed, adaptive, used = [], [], []
        for _ in range(5 if quick else 40):
            changed = np.arange(100) % 10 == 0
            a, b, _ = noise.changed_experiment(kind, rng, changed)
            fixed.append(
                [
                    rates(compare(a[:, :n], b[:, :n], blocked=True).q <= 0.05, changed)
                    for n in fixed_blocks
                ]
            )
            steps, n_blocks = noise.run_adaptively(a, b)
            adaptive.append(rates(np.abs(steps) == 1, changed))
            used.append(n_blocks.mean())
        false, share = np.mean(adaptive, axis=0)
        equal = float(np.interp(share, np.mean(fixed, axis=0)[:, 1], fixed_blocks))
        print(
            f"  {kind:<12} found {share:.2f}, false {false:.3f}, {np.mean(used):.1f} blocks; "
            f"fixed {equal:.1f} blocks: {equal / np.mean(used):.2f} x fewer",
            flush=True,
        )


def print_resumed(quick: bool) -> None:
    print("resumed: 5 blocks more by hand until a row is decided, at most 20; noise 5 %, null arm")
    for n_tests, n_reports in ((1, 1000), (100, 20)):
        rng = np.random.default_rng(n_tests)
        n_blocks, called = [], {"first": [], "any": [], "last": []}
        changed = np.arange(n_tests) % 10 == 9
        for _ in range(n_reports // (5 if quick else 1)):
            logs = noise.make("lognormal", rng, (n_tests, 20, 3), level=0.05)
            logs[changed, :, 1] += np.log(1.05)
            a, b, null = np.exp(logs).transpose(2, 0, 1)
            at_any, open_rows = np.zeros(n_tests, bool), np.ones(n_tests, bool)
            for n in (5, 10, 15, 20):
                effects = compare(a[:, :n], b[:, :n], null=null[:, :n], blocked=True)
                called["first"] += [effects.changed] if n == 5 else []
                decided = open_rows & (effects.verdict != "undecided")
                at_any |= decided & effects.changed
                open_rows &= ~decided
                n_blocks += [n] * int(decided.sum())
            called["any"].append(at_any)
            called["last"].append(effects.changed)
        texts = []
        for name, masks in called.items():
            listed = np.array(masks)
            false = listed[:, ~changed].mean()
            share = (listed & ~changed).sum() / max(listed.sum(), 1)
            found = listed[:, changed].mean() if changed.any() else np.nan
            texts.append(f"{name} look {false:.3f} / {share:.3f} / {found:.2f}")
        print(
            f"  {n_tests} rows, unchanged rows called / false of those called / +5 % found: "
            f"{'; '.join(texts)}; blocks until decided {np.mean(n_blocks):.1f}",
            flush=True,
        )


def rows_of_reports(
    n_reports: int, n_runs: int | None, kind: str, seed: int
) -> Iterator[list[str]]:
    """Yield the shares of false rows among those listed, and of changes that are listed."""
    print(f"rows: 700, a tenth changed by 5, 10 or 20 %, {n_reports} reports: false / found")
    for size, has_null in SIZES:
        if n_runs not in (None, size):
            continue
        cells = []
        for column, options in KINDS.items():
            if kind not in column:
                cells.append("")
                continue
            rng = np.random.default_rng([size, has_null, *([seed] if seed else [])])
            rates = []
            for _ in range(n_reports):
                a, null, b, changed = noise.report(rng, size, **options)
                listed = compare(a, b, null=null if has_null else None).changed
                false = (listed & ~changed).sum() / max(listed.sum(), 1)
                rates.append((false, (listed & changed).sum() / max(changed.sum(), 1)))
            false, found = np.mean(rates, axis=0)
            error = np.std(rates, axis=0)[0] / np.sqrt(n_reports)
            cells.append(f"{false:.2f} / {found:.2f}".replace("0.", "."))
            print(f"{size}, {column}: false {false:.3f} ± {error:.3f}", flush=True)
        yield [f"{size}, with a null arm" if has_null else str(size), *cells]


def print_functions(n_reports: int) -> None:
    """Print how often a function is named, where all take longer and where one does."""
    n_groups = 4 * n_reports
    print(f"functions: share of {n_groups} groups in which one is named")
    rng = np.random.default_rng(4)
    for n_runs in (2, 3, 5, 10):
        named = [
            np.mean([
                find_frame(frame_arms(rng, 1.0, n_runs, total=total), 1) is not None
                for _ in range(n_groups)
            ])
            for total in (30, 100, 1000, 10_000)
        ]  # fmt: skip
        text = ", ".join(f"{share:.3f}" for share in named)
        print(f"  all take longer, {n_runs} runs of an arm, 30 to 10 000 samples: {text}")
    for total in (100, 300, 1000):
        right, wrong, n_large = 0, 0, 0
        while n_large < n_groups:
            arms = frame_arms(rng, 1.5, 5, total=total)
            before = arms["baseline"]
            if np.mean([run.counts[SLOWER] / run.total for run in before]) < LARGE_SHARE:
                continue
            n_large += 1
            row = find_frame(arms, 1)
            right += row is not None and row["function"] == SLOWER[0]
            wrong += row is not None and row["function"] != SLOWER[0]
        print(
            f"  one with at least {LARGE_SHARE:.0%} of {total} samples takes 50 % longer, 5 runs: "
            f"it is named {right / n_groups:.2f}, another one {wrong / n_groups:.2f}",
            flush=True,
        )


#: Function that `frame_arms` makes slower, and its smallest share of the samples.
SLOWER, LARGE_SHARE = ("leaf3", "lib.py"), 0.10


def print_nights(n_reports: int) -> None:
    """Print how often a change of a group is found by shares, with and without processor time."""
    n_workloads = 8 * n_reports
    print(
        f"nights: {n_workloads} workloads, a group of 2 to 10 % of the run; noise of a group 10 % "
        "of thread-seconds, 4 % of processor time"
    )
    for size in (1.0, 1.1, 1.2):
        rng = np.random.default_rng(6)
        start = rng.integers(40, NIGHTS - WITHIN - 2, n_workloads)
        odds = [np.stack(_odds(rng, size, first)) for first in start]
        for title, rows in (
            ("thread-seconds", [both[0] for both in odds]),
            ("and processor time", [np.concatenate(both) for both in odds]),
        ):
            found = find_lasting_changes(rows)
            if size == 1:
                n_false = sum(each.night >= HISTORY for changes in found for each in changes)
                rate = 100 * n_false / n_workloads / (NIGHTS - HISTORY)
                print(f"  {title}: false reports per 100 nights of a workload {rate:.3f}")
                continue
            hits = [
                [each for each in changes if first <= each.night < first + WITHIN]
                for changes, first in zip(found, start, strict=True)
            ]
            n_groups = [len(both[0]) for both in odds]
            right = [h[0].row % n == 0 for h, n in zip(hits, n_groups, strict=True) if h]
            print(
                f"  {title}, {size - 1:.0%} more: found within {WITHIN} nights "
                f"{np.mean([bool(h) for h in hits]):.2f}, right group {np.mean(right or 0):.2f}",
                flush=True,
            )


def _odds(rng: np.random.Generator, size: float, first: int) -> list[np.ndarray]:
    """Return the odds of the groups of a workload, of thread-seconds and of processor time."""
    n_groups = int(rng.integers(4, 13))
    weight = rng.dirichlet(np.full(n_groups, 0.8)) + 0.003
    weight[0] = rng.uniform(0.02, 0.10) / 0.9 * weight[1:].sum()
    result = []
    for level in (0.10, 0.04):
        seconds = weight[:, None] * np.exp(level * rng.standard_normal((n_groups, NIGHTS)))
        seconds[0, first:] *= size
        result.append(seconds / (seconds.sum(axis=0) - seconds))
    return result


def main() -> None:
    parts = {
        "speed": print_speed,
        "intervals": print_intervals,
        "reports": print_reports,
        "workloads": print_workloads,
        "work": print_work,
        "groups": print_groups,
        "adaptive": print_adaptive,
        "resumed": print_resumed,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    simulated = {"functions": print_functions, "nights": print_nights}
    parser.add_argument("--only", choices=[*parts, "rows", *simulated], help="one part")
    parser.add_argument("--reports", type=int, default=50, help="rows, functions, nights: reports")
    parser.add_argument("--runs", type=int, help="rows: only this number of runs a side")
    parser.add_argument("--kind", default="", help="rows: only noise with this text in its title")
    parser.add_argument("--seed", type=int, default=0, help="rows: other reports")
    parser.add_argument("--write-docs", action="store_true", help="write the table of rows")
    parser.add_argument("--store", type=Path, help="print the correlation of metrics in a store")
    chosen = parser.parse_args()
    if chosen.write_docs and (chosen.quick or chosen.runs or chosen.kind):
        parser.error("--write-docs needs a whole measurement: omit --quick, --runs and --kind")
    if chosen.store is not None:
        print_correlation(chosen.store)
        return
    for name, part in parts.items():
        if chosen.only in (None, name):
            part(chosen.quick)
    reports = 5 if chosen.quick else chosen.reports
    if chosen.only in (None, "rows"):
        rows = rows_of_reports(reports, chosen.runs, chosen.kind, chosen.seed)
        show_table(__file__, "rows", TABLES["rows"], rows, write=chosen.write_docs)
    for name, part in simulated.items():
        if chosen.only in (None, name):
            part(reports)


if __name__ == "__main__":
    main()
