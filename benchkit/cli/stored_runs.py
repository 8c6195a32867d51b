"""Read the runs of a store for commands, and convert them to JSON in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from benchkit.values import decode_json, json_safe

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_records", "matching_runs", "runs_as_json"]

#: Runs read at once, with all fields and metrics.
_RUNS_PER_PART = 20_000
#: Runs whose texts are in memory at once.
_TEXTS_PER_PART = 2000


def matching_runs(store: str | None, expression: str | None = None, **filters: Any) -> pd.DataFrame:
    """Return the runs of a store that match a selection.

    Parameters
    ----------
    store : str or None
        Path of the store; None is the default store.
    expression : str, optional
        Selection as for ``-k``; tags of runs are matched as ``NAME=VALUE``.
    **filters
        Arguments of `Store.runs`.

    Returns
    -------
    DataFrame
        As from `Store.runs`, oldest first.
    """
    from benchkit.measure.expression import matcher
    from benchkit.store.store import Store

    frame = Store(store, create=False).runs(**filters)
    if expression is None or frame.empty:
        return frame
    matches = matcher(expression)
    keep = [
        matches(
            _SelectableRun(
                row.workload, SimpleNamespace(category=row.category), _tag_texts(row.tags)
            )
        )
        for row in frame[["workload", "category", "tags"]].itertuples(index=False)
    ]
    return frame[keep]


def runs_as_json(store: str | None, expression: str | None, **filters: Any) -> Iterator[str]:
    """Yield the record of each run as JSON text, oldest first; a million at once need 9 GB.

    Parameters
    ----------
    store, expression, **filters
        Arguments of `matching_runs`.

    Yields
    ------
    str
        The text of `json.dumps` with ``indent=1``.
    """
    import pyarrow as pa

    started = matching_runs(store, columns=["started"], **filters)["started"]
    starts = [*started.iloc[::_RUNS_PER_PART].drop_duplicates(), None]
    parts = [{"since": since, "until": until} for since, until in pairwise(starts)]
    if started.isna().any() or len(parts) < 2:
        parts = [{}]
    del started
    for part in parts:
        frame = matching_runs(store, expression, **{**filters, **part})
        for first in range(0, len(frame), _TEXTS_PER_PART):
            yield from _json_texts(frame.iloc[first : first + _TEXTS_PER_PART])
        del frame
        pa.default_memory_pool().release_unused()


def _json_texts(frame: pd.DataFrame) -> Iterator[str]:
    """Yield each row as JSON text; made by columns, which is faster than by rows."""
    columns = [_json_column(name, frame[name]) for name in map(str, frame.columns)]
    return ("{\n" + ",\n".join(row) + "\n}" for row in zip(*columns, strict=True))


def _json_column(name: str, values: pd.Series) -> list[str]:
    """Return the line of each value in the JSON text of its row; equal values are encoded once."""
    from benchkit.store.schema import RECORD_FIELDS

    start, is_json = f" {json.dumps(name)}: ", RECORD_FIELDS.get(name) == "json"
    encode = json.JSONEncoder(default=str, indent=1).encode

    def line(value: Any) -> str:
        value = decode_json(value) if is_json else value
        return start + encode(json_safe(value)).replace("\n", "\n ")

    if values.dtype == float:
        is_finite = (values.abs() < float("inf")).tolist()
        pairs = zip(values.tolist(), is_finite, strict=True)
        return [f"{start}{value!r}" if finite else f"{start}null" for value, finite in pairs]
    if values.dtype.kind == "M":  # the encoder is slow for other types than texts
        values = values.map(str, na_action="ignore")
    plain = values.astype(object).where(values.notna(), None).tolist()
    lines = {value: line(value) for value in set(plain)}
    return [lines[value] for value in plain]


class _SelectableRun(NamedTuple):
    """The attributes of a run that a selection reads."""

    name: str
    workload: Any
    tags: tuple[str, ...]


def _tag_texts(text: str) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in decode_json(text).items())


def as_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame; missing values are None, tags and the like objects.

    Parameters
    ----------
    frame : DataFrame
        Such as `Store.runs` returns it.

    Returns
    -------
    list of dict
        Column name -> value.
    """
    from benchkit.store.schema import RECORD_FIELDS

    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [
        {k: decode_json(v) if RECORD_FIELDS.get(k) == "json" else v for k, v in row.items()}
        for row in rows
    ]
