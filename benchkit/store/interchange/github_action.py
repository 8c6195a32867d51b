"""Read the history of github-action-benchmark: `data.js`, or the file of `external-data-json-path`.

The time of a run is that of its commit, as in asv; when it was measured is a tag. Jobs of a matrix
measure a commit at once, under one name: each is a run. A value in a unit of time, or per second,
becomes the duration; another is a metric with the name of its benchmark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from benchkit.store.interchange.coiled import parse_time, workload_of_test
from benchkit.store.interchange.result_record import result_record

#: Unit -> seconds.
_SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "microseconds": 1e-6,
    "ns": 1e-9, "nsec": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip
#: Unit of repetitions: the duration is the inverse of the value.
_PER_SECOND = ("iter/sec", "ops/sec")
#: Tools of which a larger value is better.
_BIGGER = ("customBiggerIsBetter", "benchmarkjs")
_ROUNDS = re.compile(r"rounds: (\d+)")


def github_action_records(
    content: Mapping[str, Any], host: str | None, problems: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Return the records of a history; a value that is no number is a problem."""
    for suite, entries in content["entries"].items():
        for entry in entries:
            commit, measured = entry["commit"], entry.get("date")
            when = parse_time(commit.get("timestamp"))
            if measured is not None:
                measured = datetime.fromtimestamp(measured / 1000, timezone.utc)
            if when is None and measured is None:
                raise ValueError(f"commit {commit.get('id')}: has neither timestamp nor date")
            at = measured.isoformat(timespec="seconds") if measured else None
            for bench in entry["benches"]:
                metric, value, unit = _metric(bench)
                if value is None:
                    problems[f"{bench['name']}: {bench.get('value')!r} is no value: skipped"] += 1
                    continue
                path, _, test = str(bench["name"]).partition("::")
                rounds = _ROUNDS.search(str(bench.get("extra") or ""))
                yield result_record(
                    "github-action-benchmark",
                    workload_of_test(path, test) if test else str(bench["name"]),
                    when or measured,
                    {},
                    {metric: value},
                    units=unit,
                    better="higher" if entry.get("tool") in _BIGGER else "lower",
                    n_samples=int(rounds[1]) if rounds else None,
                    tags={"measured": at, "range": bench.get("range"), "tool": entry.get("tool")},
                    environment=suite,
                    host=host,
                    git_commit=commit.get("id"),
                    repetition=entry.get("date"),
                )


def _metric(bench: Mapping[str, Any]) -> tuple[str, float | None, str]:
    """Return the name of the metric, its value and its unit."""
    value, unit = bench.get("value"), str(bench.get("unit") or "1")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "", None, unit
    per = unit.lower().partition("/")[0]  # Go, Rust: ns/op, ns/iter
    if unit.lower() in _PER_SECOND:
        return "duration", 1 / value if value else None, "s"
    if per in _SECONDS:
        return "duration", value * _SECONDS[per], "s"
    return re.sub(r"\W+", "_", str(bench["name"])).strip("_").lower(), float(value), unit
