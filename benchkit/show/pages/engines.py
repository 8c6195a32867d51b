"""Queries by Dask and by other engines on the same data, by scale."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from benchkit.formatting import MISSING, counted, format_change, format_seconds, run_limits
from benchkit.show.pages.page import Cell, Row, Section, Table, Text

#: Fields that are equal where data and threads are.
_SAME = ("host", "n_threads", "memory_limit", "scale")
_DASK = "dask"
#: Workloads of queries, of Dask and of other engines.
_NAMES = (
    re.compile(r"tpch\.(?P<query>q\d\d)"),
    re.compile(r"engines\.tpch\[engine=(?P<engine>\w+),query=(?P<query>q\d\d)\]"),
    re.compile(r"engines\.tpch_(?P<engine>spark)\[query=(?P<query>q\d\d)\]"),
)


def engines(runs: pd.DataFrame) -> list[Section]:
    """Return a table of the ok runs of queries for each machine and scale; none without a pair."""
    note = (
        "Median wall time of each query, and its change against Dask on the same data. An engine "
        "of one process has as many threads as the cluster, and no memory limit."
    )
    sections = [
        Section(
            f"How far is Dask from other engines at scale {scale:g} "
            f"({counted(int(threads), 'thread')} on {host})?",
            _table(rows),
            note,
        )
        for (host, threads, _, scale), rows in _queries(runs).groupby([*_SAME])
    ]
    return [section for section in sections if section.has_content]


def _queries(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the ok runs of queries with the columns ``engine`` and ``query``."""
    names = {str(name): _parts(str(name)) for name in runs["workload"].unique()}
    named = runs["workload"].map({name: parts for name, parts in names.items() if parts})
    kept = runs[named.notna() & (runs["outcome"] == "ok")]
    parts = pd.DataFrame(named[kept.index].tolist(), kept.index, ["engine", "query"])
    return kept.join(parts)


def _parts(workload: str) -> tuple[str, str] | None:
    """Return engine and query of a workload, None for other workloads."""
    for pattern in _NAMES:
        found = pattern.fullmatch(workload)
        if found:
            return found.groupdict().get("engine", _DASK), found["query"]
    return None


def _table(rows: pd.DataFrame) -> Table:
    """Return the queries that Dask and another engine ran, and the mean of all of them."""
    times = rows.groupby(["query", "engine"])["duration"].median().unstack()
    others = [name for name in times if name != _DASK]
    if _DASK not in times or not others:
        return Table([], [])
    times = times[times[_DASK].notna() & times[others].notna().any(axis=1)]
    counts = {query: _count(part) for query, part in rows.groupby("query")}
    lines: list[list[Cell]] = [
        [query, format_seconds(row[_DASK]), *(_against(row, name) for name in others),
         counts[query]]
        for query, row in times.iterrows()
    ]  # fmt: skip
    if len(lines) > 1:
        means = [math.exp(np.log(times[name] / times[_DASK]).mean()) for name in others]
        mean = f"{len(lines)} queries, geometric mean"
        lines.append([mean, "", *(format_change(ratio) for ratio in means), ""])
    return Table(["query", _DASK, *others, "runs"], [Row(line) for line in lines])


def _against(times: Mapping[str, Any], engine: str) -> Cell:
    if math.isnan(times[engine]):
        return MISSING
    change = format_change(times[engine] / times[_DASK])
    return Text(format_seconds(times[engine]), small=change)


def _count(runs: pd.DataFrame) -> str:
    n_disturbed = sum("disturbed" in run_limits(run) for run in runs.to_dict("records"))
    return counted(len(runs), "run") + (f", {n_disturbed} disturbed" if n_disturbed else "")
