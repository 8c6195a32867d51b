"""Measure speed and errors of verdicts: ``python benchmarks/verdicts.py [--quick] [--only PART]``.

Parts: speed, intervals, reports, workloads (metrics of a workload that change together), groups
(task groups), adaptive; with ``--store DIR`` only the correlation of metrics in its runs. Prints,
asserts nothing; the tests assert a smaller version. Speed is CPU time compared with the table of
coiled/benchmarks: 10 000 resamples of the runs of each test and arm with pandas, their means, and
the share of ratios beyond 34 thresholds. Needs a checkout, for the simulated noise of the tests.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from validation import simulated_noise as noise  # noqa: E402
from validation.simulated_groups import group_report, score_groups  # noqa: E402

import benchkit  # noqa: E402
from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS  # noqa: E402
from benchkit.analysis.compare.composition import compare_groups  # noqa: E402
from benchkit.analysis.metric_names import check_metrics  # noqa: E402
from benchkit.analysis.design import LOOKS, next_step  # noqa: E402
from benchkit.analysis.effects import compare, compare_bootstrap  # noqa: E402

THRESHOLDS = np.linspace(0, 0.8, 17)


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
        ours = {
            "calibrated": cpu_s(lambda a=a, b=b: compare(a, b).table(), 20),
            "bootstrap": cpu_s(lambda a=a, b=b: compare_bootstrap(a, b), 5),
        }
        text = ", ".join(f"{k} {t * 1e3:.1f} ms ({reference / t:.0f} x)" for k, t in ours.items())
        print(f"  {n_runs:>2} runs: reference {reference:.2f} s, {text}", flush=True)
        table = resampled_table(frame)["p"].to_numpy().reshape(100, 34)
        exact = compare_bootstrap(a, b)
        apart = np.abs(table - np.concatenate([exact.less[:, ::-1], exact.more], axis=1)).max()
        print(f"           worst cell of the bootstrap against the reference: {apart:.3f}")


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
                hits = wrong = total = 0
                for _ in range(reps * (20 if n_tests == 1 else 1)):
                    for ratio in (1.0, 1.1):
                        runs = np.exp(noise.make(kind, rng, (n_tests, n_blocks, n_arms)))
                        effects = compare(
                            runs[:, :, 0],
                            ratio * runs[:, :, 1],
                            null=runs[:, :, 2] if n_arms == 3 else None,
                            blocked=kind in noise.IN_TIME,
                        )
                        if ratio == 1:
                            wrong += (effects.p < 0.05).sum()
                        else:
                            hits += ((effects.low <= ratio) & (effects.high >= ratio)).sum()
                    total += n_tests
                cells.append(f"{hits / total:.3f} / {wrong / total:.3f}")
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
                a, null, b, history, changed = noise.report(rng, n_blocks, mixed=mixed)
                for name, more in (
                    ("two arms", {}),
                    ("null arm", {"null": null}),
                    ("history", {"history": history}),
                    ("both", {"null": null, "history": history}),
                ):
                    q = compare(a, b, **more).q
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
            level = 0.05 * rng.lognormal(sigma=0.3, size=100)
            logs = noise.make(kind, rng, (100, LOOKS[-1], 2), level=level)
            changed = np.arange(100) % 10 == 0
            effect = np.log1p(rng.choice([0.05, 0.10, 0.20], 100)) * rng.choice([-1, 1], 100)
            logs[changed, :, 1] += effect[changed, None]
            a, b = np.exp(logs).transpose(2, 0, 1)
            fixed.append(
                [
                    rates(compare(a[:, :n], b[:, :n], blocked=True).q <= 0.05, changed)
                    for n in fixed_blocks
                ]
            )
            steps, n_blocks = run_adaptively(a, b)
            adaptive.append(rates(np.abs(steps) == 1, changed))
            used.append(n_blocks.mean())
        false, share = np.mean(adaptive, axis=0)
        equal = float(np.interp(share, np.mean(fixed, axis=0)[:, 1], fixed_blocks))
        print(
            f"  {kind:<12} found {share:.2f}, false {false:.3f}, {np.mean(used):.1f} blocks; "
            f"fixed {equal:.1f} blocks: {equal / np.mean(used):.2f} x fewer",
            flush=True,
        )


def run_adaptively(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pass the blocks of an experiment to `next_step` in the order of measurement."""
    measured = np.full((2, *a.shape), np.nan)
    steps, n_blocks = np.zeros(len(a), int), np.zeros(len(a), int)
    for before, look in zip((0, *LOOKS), LOOKS, strict=False):
        running = steps == 0
        measured[:, running, before:look] = np.stack([a, b])[:, running, before:look]
        n_blocks[running] = look
        steps = next_step(*measured[:, :, :look])
    return steps, n_blocks


def main() -> None:
    parts = {
        "speed": print_speed,
        "intervals": print_intervals,
        "reports": print_reports,
        "workloads": print_workloads,
        "groups": print_groups,
        "adaptive": print_adaptive,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--only", choices=parts, help="one part")
    parser.add_argument("--store", type=Path, help="print the correlation of metrics in a store")
    chosen = parser.parse_args()
    if chosen.store is not None:
        print_correlation(chosen.store)
        return
    for name, part in parts.items():
        if chosen.only in (None, name):
            part(chosen.quick)


if __name__ == "__main__":
    main()
