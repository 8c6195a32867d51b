"""Print the simulated figures of statistics.md and nights.md in docs/explanation.

Options: ``[--only PART] [--reports 50]``. Parts: rows (share of false rows by kind of noise),
functions (which function of a task group is named), nights (shares of thread-seconds and of
processor time on nights). Asserts nothing. Needs a checkout, for the simulated noise of the tests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
from validation import simulated_noise as noise  # noqa: E402
from validation.docs_tables import show_table  # noqa: E402
from validation.nights.windows import HISTORY, NIGHTS, WITHIN  # noqa: E402
from validation.simulated_groups import frame_arms  # noqa: E402

from benchkit.analysis.compare.frames import find_frame  # noqa: E402
from benchkit.analysis.regression.lasting_changes import find_lasting_changes  # noqa: E402
from benchkit.analysis.effects import compare  # noqa: E402

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
#: Runs a side, and whether there is a null arm.
SIZES = ((3, False), (3, True), (4, False), (5, False), (5, True), (10, False))


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
                a, null, b, _, changed = noise.report(rng, size, **options)
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
    parts = {"functions": print_functions, "nights": print_nights}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["rows", *parts], help="one part")
    parser.add_argument("--reports", type=int, default=50, help="reports of each kind")
    parser.add_argument("--runs", type=int, help="rows: only this number of runs a side")
    parser.add_argument("--kind", default="", help="rows: only noise with this text in its title")
    parser.add_argument("--seed", type=int, default=0, help="rows: other reports")
    parser.add_argument("--write-docs", action="store_true", help="write the table of rows")
    chosen = parser.parse_args()
    if chosen.only in (None, "rows"):
        rows = rows_of_reports(chosen.reports, chosen.runs, chosen.kind, chosen.seed)
        show_table(__file__, "rows", TABLES["rows"], rows, write=chosen.write_docs)
    for name, part in parts.items():
        if chosen.only in (None, name):
            part(chosen.reports)


if __name__ == "__main__":
    main()
