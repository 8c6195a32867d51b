"""Check names that a user gives: of filters, tags, parameters and workloads."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from benchkit.errors import UsageError, did_you_mean
from benchkit.store.index.arrow import encode_texts
from benchkit.store.index.index_reader import IndexReader
from benchkit.values import decode_json

__all__ = ["check_names", "warn_of_unknown_workloads"]


def check_names(table: pa.Table, filters: Mapping[str, Any], fields: Collection[str]) -> None:
    """Check that each filter is a field, or a tag or parameter of at least one run."""
    if not table.num_rows:
        return
    others = [name for name in filters if name not in fields]
    for columns, names, noun in (
        (("tags", "params"), others, "field, tag or parameter"),
        (("tags",), _names(filters, "tags"), "tag"),
        (("params",), _names(filters, "params"), "parameter"),
    ):
        keys = {key for column in columns for key in _keys(table[column])} if names else set()
        for name in names:
            if name not in keys:
                known = [*fields, *keys] if names is others else keys
                shown = ", ".join(sorted(keys)[:8]) or "none"
                hint = did_you_mean(name, known, f"{noun.rpartition(' ')[2]}s here: {shown}")
                raise UsageError(f"{name!r} is not a {noun} of these runs: {hint}")


def _names(filters: Mapping[str, Any], column: str) -> list[str]:
    wanted = filters.get(column)
    return list(wanted) if isinstance(wanted, Mapping) else []


def _keys(column: pa.ChunkedArray) -> set[str]:
    return {key for text in encode_texts(column)[1] for key in decode_json(text)}


def warn_of_unknown_workloads(index: IndexReader, patterns: Sequence[str]) -> None:
    """Warn of names and globs that match no workload and are near to one that exists."""
    table = index.select({"workload"}, lambda table: (table, None, {"workload"}))
    names = set(encode_texts(table["workload"])[1])
    bases = {name.partition("[")[0] for name in names}
    known = sorted(names | bases | {f"{base.partition('.')[0]}.*" for base in bases})
    for pattern in patterns:
        hint = did_you_mean(pattern, known, "")
        if hint and pattern not in known:
            warnings.warn(f"no run of {pattern!r}: {hint}", stacklevel=4)
