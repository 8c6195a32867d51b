"""Read the JSON files of pytest-benchmark, and of pytest-codspeed in walltime mode.

The entry of pytest-benchmark is kept without its list of values, so that an export writes it again.
CodSpeed's files have neither a time nor a commit: the time is in the name of the file, or that of
its last change.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchkit.store.interchange.coiled import parse_time, workload_of_test
from benchkit.store.interchange.result_record import result_record

#: Attribute of the run file that holds the entry.
ORIGINAL = "original_result"
_CODSPEED_FILE = re.compile(r"results_(\d{12,14})")
#: End of the name of an entry that a conftest.py derives from another, with memory in `stats`.
_MEMORY = re.compile(r"_(?:memory|mem|rss|bytes|[kmg]i?b)$", re.IGNORECASE)
_SECONDS = ("s", "sec", "second", "seconds")


def pytest_records(
    content: Mapping[str, Any], host: str | None, file: Path, problems: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Return the records of a file; entries that hold no seconds are problems."""
    if isinstance(content.get("instrument"), Mapping):
        yield from _codspeed_records(content, host, file, problems)
        return
    machine, commit = content.get("machine_info") or {}, content.get("commit_info") or {}
    started = parse_time(content.get("datetime"))
    if started is None:
        raise ValueError(f"datetime={content.get('datetime')!r} is not a time")
    names = {str(benchmark["fullname"]) for benchmark in content["benchmarks"]}
    cpu = machine.get("cpu") or {}
    for benchmark in content["benchmarks"]:
        full_name, stats = str(benchmark["fullname"]), benchmark["stats"]
        reason = _no_seconds(benchmark, names)
        if reason:
            problems[f"{full_name}: not in seconds ({reason}): skipped"] += 1
            continue
        path, _, name = full_name.partition("::")
        record = result_record(
            "pytest-benchmark",
            workload_of_test(path, name or str(benchmark["name"])),
            started,
            benchmark.get("params") or {},
            {"duration": stats["median"] if "median" in stats else stats["mean"]},
            n_samples=stats.get("rounds"),
            tags={
                **(benchmark.get("extra_info") or {}),
                "group": benchmark.get("group"),
                "options": benchmark.get("options"),
                "iterations": stats.get("iterations"),
                "cpu": cpu.get("brand_raw") or cpu.get("brand"),
                "cores": cpu.get("count"),
                "branch": commit.get("branch"),
                "tool_version": content.get("version"),
            },
            host=host or machine.get("node"),
            python=machine.get("python_version"),
            git_commit=commit.get("id"),
        )
        kept = {name: value for name, value in stats.items() if name != "data"}
        yield {**record, ORIGINAL: json.dumps({**benchmark, "stats": kept})}


def _no_seconds(benchmark: Mapping[str, Any], names: set[str]) -> str:
    """Return why the statistics of an entry are no seconds; empty if nothing says so."""
    stats = benchmark["stats"]
    unit = stats.get("unit") or (benchmark.get("extra_info") or {}).get("unit")
    if unit and str(unit).lower() not in _SECONDS:
        return f"unit {unit}"
    base, bracket, case = str(benchmark["fullname"]).partition("[")
    other = _MEMORY.sub("", base)
    if other != base and {f"{other}{bracket}{case}", other} & names:
        return f"memory of {other.rpartition('::')[2]}"
    ops, mean = stats.get("ops"), stats.get("mean")
    if ops and mean and abs(ops * mean - 1) > 0.01:  # else they differ by rounding
        return "ops is not 1 / mean"
    return ""


def _codspeed_records(
    content: Mapping[str, Any], host: str | None, file: Path, problems: Counter[str]
) -> Iterator[dict[str, Any]]:
    kind = content["instrument"].get("type")
    if kind != "walltime":
        problems[f"{file}: CodSpeed measured {kind}, not walltime: skipped"] += 1
        return
    named = _CODSPEED_FILE.match(file.stem)
    moment = int(named[1]) / 1000 if named else file.stat().st_mtime
    creator, python = content.get("creator") or {}, content.get("python") or {}
    packages = python.get("dependencies") or {}  # name -> version
    for benchmark in content["benchmarks"]:
        uri, stats = str(benchmark.get("uri") or benchmark["name"]), benchmark["stats"]
        path, _, name = uri.partition("::")
        yield result_record(
            "codspeed",
            workload_of_test(path, name or str(benchmark["name"])),
            datetime.fromtimestamp(moment, timezone.utc),
            {},
            {"duration": stats["median_ns"] / 1e9},
            n_samples=stats.get("rounds"),
            tags={
                "options": benchmark.get("config"),
                "iterations": stats.get("iter_per_round"),
                "tool_version": creator.get("version"),
            },
            host=host,
            python=(python.get("sysconfig") or {}).get("py_version"),
            dask=packages.get("dask"),
            distributed=packages.get("distributed"),
        )
