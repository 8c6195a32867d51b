"""Select runs: find the rows of the index that match a name, a time, a field or a tag.

Takes Arrow columns and returns masks; the filters of `Store.runs` and the marks use the same
syntax. Each distinct text is tested once, which keeps 100 000 rows fast.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from fnmatch import fnmatchcase
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from benchkit.errors import UsageError, did_you_mean
from benchkit.store.arrow import encode_texts
from benchkit.store.index import Index
from benchkit.store.schema import RECORD_FIELDS
from benchkit.values import decode_json

__all__ = [
    "check_names",
    "columns_needed",
    "matching",
    "parse_moment",
    "row_condition",
    "warn_of_unknown_workloads",
    "workload_matcher",
]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
#: Characters of a time; pandas needs the square of the length.
_MAX_TIME_LENGTH = 100
_WILDCARD, _WILDCARD_OR_BRACKET = re.compile(r"[*?]"), re.compile(r"[*?\[]")
_JSON = tuple(name for name, kind in RECORD_FIELDS.items() if kind == "json")


def parse_moment(value: Any) -> datetime:
    """Return a time in UTC."""
    now = datetime.now(timezone.utc)
    try:
        if isinstance(value, str):
            if len(value) > _MAX_TIME_LENGTH:
                raise _not_a_time(f"{value[:_MAX_TIME_LENGTH]}...")
            age = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", value.strip())
            if age:
                return now - timedelta(**{_UNITS[age[2]]: float(age[1])})
            value = pd.Timestamp(value.strip())
        if isinstance(value, timedelta):
            return now - value
        if isinstance(value, np.datetime64):
            value = pd.Timestamp(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime) and not pd.isna(value):
            moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
            return datetime.fromtimestamp(moment.timestamp(), timezone.utc)
    except (ValueError, OverflowError) as error:
        raise _not_a_time(value) from error
    raise _not_a_time(value)


def _not_a_time(value: Any) -> UsageError:
    return UsageError(
        f"{value!r} is not a time: use 2026-11-20, 2026-11-20T03:00, or an age such as 7d or 12h"
    )


def workload_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a variant's name matches a pattern."""
    if _WILDCARD.search(pattern):
        return _glob(pattern)
    return lambda name: (
        name == pattern or ("[" not in pattern and name.partition("[")[0] == pattern)
    )


def _glob(pattern: str) -> Callable[[str], bool]:
    pattern = pattern.replace("[", "[[]")
    return lambda text: fnmatchcase(text, pattern)


def columns_needed(names: Iterable[str]) -> set[str]:
    """Return the columns of the index that filters read."""
    names = set(names)
    columns = {name for name in names if name in RECORD_FIELDS}
    if names - columns:
        columns |= {*names, "tags", "params"}
    return columns


def row_condition(
    *,
    workload: str | Collection[str] | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
    marks: Iterable[Mapping[str, Any]] = (),
) -> pc.Expression | None:
    """Return a condition that all rows meet that `matching` selects, to read few row groups."""
    conditions = []
    if workload is not None:
        patterns = [workload] if isinstance(workload, str) else list(workload)
        ends = _WILDCARD
        for mark in marks:
            if mark.get("kind") == "rename" and mark.get("field", "workload") == "workload":
                patterns.append(str(mark.get("from")))
            elif mark.get("kind") == "rename" and mark.get("field") == "parameter":
                ends = _WILDCARD_OR_BRACKET
        prefixes = [ends.split(pattern)[0] for pattern in patterns]
        field = pc.field("workload")
        ranges = [(field >= prefix) & (field <= f"{prefix}\U0010ffff") for prefix in prefixes]
        conditions.append(reduce(or_, ranges) if ranges else pc.scalar(False))
    started = pc.field("started")
    if since is not None:
        conditions.append(started >= pa.scalar(since))
    if before is not None:
        conditions.append(started < pa.scalar(before))
    return reduce(and_, conditions) if conditions else None


def matching(
    table: pa.Table,
    *,
    runs: Collection[str] | None = None,
    workload: str | Collection[str] | None = None,
    since: Any = None,
    before: Any = None,
    where: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Return a mask of the rows that match all given filters."""
    # returned: (n_rows,), true for rows that match.
    keep = np.ones(table.num_rows, bool)
    if runs is not None:
        keep &= _flags(pc.is_in(table["id"], value_set=pa.array(list(runs), pa.string())))
    if workload is not None:
        patterns = [workload] if isinstance(workload, str) else list(workload)
        names = set(encode_texts(table["workload"])[1])
        tests = [
            # A variant's name may contain a star: its own name is not a glob.
            pattern.__eq__ if "[" in pattern and pattern in names else workload_matcher(pattern)
            for pattern in patterns
        ]
        keep &= _texts(table["workload"], lambda name: any(test(name) for test in tests))
    for time, compare in ((since, pc.greater_equal), (before, pc.less)):
        if time is not None:
            limit = pa.scalar(parse_moment(time), table["started"].type)
            keep &= _flags(compare(table["started"], limit))
    if not isinstance(where or {}, Mapping):
        raise UsageError(f"where={where!r}: give a dict, such as where={{'environment': 'main'}}")
    for name, wanted in (where or {}).items():
        keep &= _where(table, name, wanted)
    return keep


def _flags(mask: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(mask, False).to_numpy(), bool)


def _texts(column: pa.ChunkedArray, test: Callable[[str], bool]) -> np.ndarray:
    codes, texts = encode_texts(column)
    # The code of null is -1: the last flag.
    flags: np.ndarray = np.array([*(test(text) for text in texts), False])[codes]
    return flags


def _where(table: pa.Table, name: str, wanted: Any) -> np.ndarray:
    if name in _JSON:
        if not isinstance(wanted, Mapping):
            raise UsageError(f"{name}={wanted!r}: give a dict, such as {name}={{'key': 'value'}}")
        keep = np.ones(table.num_rows, bool)
        for key, value in wanted.items():
            keep &= _in_json(table[name], key, _test(value))
        return keep
    if name not in table.column_names:
        test = _test(wanted)
        keep = _in_json(table["tags"], name, test)
        keep |= _in_json(table["params"], name, test)
        return keep
    column = table[name]
    if pa.types.is_timestamp(column.type):
        raise UsageError(f"{name}={wanted!r}: filter times with since= and until=")
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        texts = [v if type(v) is str else _command_line_text(v) for v in _as_list(wanted)]
        if pa.types.is_string(column.type) and not _WILDCARD.search("".join(texts)):
            return _flags(pc.is_in(column, value_set=pa.array(texts, pa.string())))  # many ids
        return _texts(column, _test(wanted))
    try:
        values = [float(value) for value in _as_list(wanted)]
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}={wanted!r}: {name} is a number") from error
    return _flags(pc.is_in(column.cast(pa.float64()), value_set=pa.array(values, pa.float64())))


def _in_json(column: pa.ChunkedArray, key: str, test: Callable[[str], bool]) -> np.ndarray:
    def matches(text: str) -> bool:
        decoded = decode_json(text)
        if key not in decoded:
            return False
        value = decoded[key]  # JSON has lists only, also for tuples
        return test(_command_line_text(value)) or (
            isinstance(value, list) and test(str(tuple(value)))
        )

    return _texts(column, matches)


def _test(wanted: Any) -> Callable[[str], bool]:
    tests = [
        _glob(text) if _WILDCARD.search(text) else text.__eq__
        for text in map(_command_line_text, _as_list(wanted))
    ]
    return lambda text: any(test(text) for test in tests)


def _as_list(wanted: Any) -> list[Any]:
    collections = (list, tuple, set, frozenset, np.ndarray, pd.Series, pd.Index)
    return list(wanted) if isinstance(wanted, collections) else [wanted]


def _command_line_text(value: Any) -> str:
    """Return a tag's value as it is written on a command line."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


# -- names that a user gives -----------------------------------------------------------------------


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


def warn_of_unknown_workloads(index: Index, patterns: Sequence[str]) -> None:
    """Warn of names and globs that match no workload and are near to one that exists."""
    table = index.select({"workload"}, lambda table: (table, None, {"workload"}))
    names = set(encode_texts(table["workload"])[1])
    bases = {name.partition("[")[0] for name in names}
    known = sorted(names | bases | {f"{base.partition('.')[0]}.*" for base in bases})
    for pattern in patterns:
        hint = did_you_mean(pattern, known, "")
        if hint and pattern not in known:
            warnings.warn(f"no run of {pattern!r}: {hint}", stacklevel=4)
