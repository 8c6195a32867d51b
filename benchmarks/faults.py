"""Measure what faults lose: ``python benchmarks/faults.py [--times N] [FAULT ...]``.

Prints results, asserts nothing. What happens: `validation/cluster_faults.py`. (Faults of a store:
`store_faults.py`, of commands: `command_faults.py`.)
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from validation.cluster_faults import FAULTS, compare, try_once


def main() -> None:
    """Print the table of faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {fault.__name__: fault for fault in FAULTS}
    parser.add_argument("fault", nargs="*", choices=[*names, []], help="by default all")
    parser.add_argument("--times", type=int, default=10)
    given = parser.parse_args()
    print(
        f"{'fault':<16} {'times':>5} {'expected outcome':>24} {'tasks ended':>12} "
        f"{'kept':>6} {'lost':>5} {'lost beyond a drain':>20} {'oldest lost':>12}"
    )
    for name in given.fault or names:
        expected, *rule = FAULTS[names[name]]
        results = [compare(try_once(names[name]), *rule) for _ in range(given.times)]
        n_expected = sum(result["outcome"] == expected for result in results)
        print(
            f"{name:<16} {len(results):>5} {n_expected:>10} of {len(results)} {expected:<10} "
            f"{statistics.mean(result['ended'] for result in results):>10.0f} "
            f"{statistics.mean(result['kept'] for result in results):>8.0f} "
            f"{statistics.mean(result['missing'] for result in results):>5.1f} "
            f"{sum(result['beyond'] for result in results):>18} "
            f"{max(result['oldest'] for result in results):>10.2f} s",
            flush=True,
        )
        wrong = {result["outcome"] for result in results} - {expected}
        if wrong:
            print(f"    other outcomes: {', '.join(sorted(wrong))}")
        if any(result["unequal"] for result in results):
            print("    rows and counts of groups differ")
        for line in sorted({line for result in results for line in result["errors"]}):
            print(f"    capture error: {line}")


if __name__ == "__main__":
    main()
