"""Workload times, noise and growth: ``python benchmarks/catalogue.py PART``.

``facts``: rewrites workloads/facts.json from stores in which the workloads were measured::

    benchkit ab baseline --null-only -n 5 -k profile:ci --store noise
    taskset -c 0 benchkit run -e baseline -k profile:ci --store grown
    taskset -c 0,1 benchkit run -e four-workers -k profile:ci --store grown
    python benchmarks/catalogue.py facts --noise noise --grown grown

A larger cluster also needs more cores: on a machine with two, the small cluster gets one of them.

``table``: prints the catalogue with those facts as Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from benchkit.analysis.stats.power import runs_needed  # noqa: E402
from benchkit.errors import BenchkitError, NotEnoughRuns  # noqa: E402
from benchkit.experiment.run.known_workloads import FILE, noise_table  # noqa: E402
from benchkit.measure.discovery import collect  # noqa: E402
from benchkit.store.store import Store  # noqa: E402

WORKLOADS = HERE.parent / "workloads"
#: The environment with twice the workers and four times the memory.
GROWN = "four-workers"
#: Mark workloads with more noise than this: they can detect large changes only.
NOISY = 0.15
_TITLES = ("workload", "what it does", "takes", "noise", "runs to see 5 %", "four times the data")
_HEAD = """# The workloads

What each does in a sentence, how long it takes on 2 workers with 1 thread and 1 GiB each, how much
one run differs from the next (coefficient of variation), how many runs a side see a change of 5 %
four times in five, and how many times as long it takes on 4 workers with 2 GiB each: four times
the memory for twice the threads. One that differs by more than 15 % is marked: it shows large
changes only. Where there is nothing, it was not measured: what is not in the profile `ci`. Written
by `python benchmarks/catalogue.py table`; the docstrings say how each scales and how its answer is
checked.
"""
#: Upper limit of a factor that cannot be distinguished from 2 with one run per side.
TWICE = 2.1


def known_rows() -> dict[str, dict[str, Any]]:
    """Return the rows of facts.json by variant; an empty dict if the file does not exist."""
    path = WORKLOADS / FILE
    if not path.exists():
        return {}
    return {row["workload"]: row for row in json.loads(path.read_text(encoding="utf-8"))}


def facts(noise: str | None, grown: str | None) -> list[dict[str, Any]]:
    """Return the rows of facts.json: the present ones, updated from the stores.

    Facts of an older version of a workload are dropped.
    """
    versions = {
        variant.name: variant.workload.version for variant in collect([WORKLOADS]).variants()
    }
    rows = {name: row for name, row in known_rows().items() if versions.get(name) == row["version"]}
    if noise:
        runs = Store(noise, create=False).runs()
        runs = runs[(runs["scale"] == 1) & (runs["workload"].map(versions) == runs["version"])]
        for row in noise_table(runs).to_dict("records"):
            value = row["noise"]
            rows.setdefault(row["workload"], {}).update(
                workload=row["workload"],
                version=versions[row["workload"]],
                n_runs=int(row["n_runs"]),
                duration=round(row["duration"], 3),
                noise=round(value, 4) if math.isfinite(value) else None,
            )
    if grown:
        runs = Store(grown, create=False).runs(outcome="ok")
        runs = runs[runs["workload"].map(versions) == runs["version"]]
        middle = runs.groupby(["workload", "environment"])["duration"].median().unstack()
        if GROWN not in middle or "baseline" not in middle:
            raise NotEnoughRuns(f"{grown}: needs runs of the environments baseline and {GROWN}")
        ratio = (middle[GROWN] / middle["baseline"]).dropna()
        for name, value in ratio.items():
            if name in rows:
                rows[name]["grown"] = round(value, 2)
    return [rows[name] for name in sorted(rows)]


def table() -> Iterable[str]:
    """Yield the lines of the catalogue as Markdown."""
    known = known_rows()
    variants = sorted(collect([WORKLOADS]).variants(), key=lambda v: (v.workload.category, v.name))
    yield _HEAD
    grown = [row["grown"] for row in known.values() if "grown" in row]
    if grown:
        yield (
            f"Of {len(grown)} that were given four times the data, "
            f"{sum(factor <= TWICE for factor in grown)} took at most {TWICE:g} times as long. A "
            "run a side, or the middle one of three, on one machine: workers share its disk and "
            "its memory, however many they are. Data that recipes make come in steps of 1, 2, 5: "
            "four times as much can be five times.\n"
        )
        slower = {name: row["grown"] for name, row in known.items() if row.get("grown", 0) > TWICE}
        named = [
            f"`{name}` ({factor:.1f} x)"
            for name, factor in sorted(slower.items(), key=lambda item: -item[1])
        ]
        if named:
            yield f"Longer: {', '.join(named)}.\n"
    for category, members in groupby(variants, key=lambda variant: variant.workload.category):
        yield f"## {category}\n"
        yield f"| {' | '.join(_TITLES)} |"
        yield "|---" * len(_TITLES) + "|"
        for variant in members:
            row = known.get(variant.name, {})
            noise = row.get("noise")
            what = variant.workload.description.partition("\n")[0].replace("|", "\\|")
            cells = [
                f"`{variant.name}`",
                what,
                f"{row['duration']:.1f} s" if row else "",
                "" if noise is None else _noise(noise),
                "" if noise is None else _runs(noise),
                f"{row['grown']:.1f} x" if "grown" in row else "",
            ]
            yield f"| {' | '.join(cells)} |"
        yield ""


def _noise(noise: float) -> str:
    return f"{noise:.1%} (noisy)" if noise > NOISY else f"{noise:.1%}"


def _runs(noise: float) -> str:
    needed = int(runs_needed(0.05, noise))
    return str(needed) if needed > 0 else "over 1000"


def main() -> None:
    """Print one part of the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["facts", "table"])
    parser.add_argument("--noise", metavar="STORE", help="runs of one environment, five or more")
    parser.add_argument("--grown", metavar="STORE", help=f"runs of baseline and of {GROWN}")
    given = parser.parse_args()
    if given.part == "facts":
        try:
            rows = facts(given.noise, given.grown)
        except BenchkitError as error:
            sys.exit(f"error: {error}")
        (WORKLOADS / FILE).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    else:
        print("\n".join(table()).rstrip())


if __name__ == "__main__":
    main()
