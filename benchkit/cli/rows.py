"""The rows that commands print: read from a store, and written as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from benchkit.store.schema import RECORD_FIELDS
from benchkit.table import Table
from benchkit.values import decode_json, json_safe

if TYPE_CHECKING:
    import pandas as pd

    from benchkit.store.store import Store

#: Fields of records that are stored as JSON text.
_JSON_FIELDS = tuple(name for name, kind in RECORD_FIELDS.items() if kind == "json")
#: Rows of JSON that are written at once.
_ROWS_PER_WRITE = 1000
#: Runs read at once, with all fields and metrics.
_RUNS_PER_PART = 20_000
#: Runs whose texts are in memory at once.
_TEXTS_PER_PART = 2000


def print_error(text: str) -> None:
    """Print an error in one line on stderr, without secrets."""
    from benchkit.measure.secrets import redact_text

    click.echo(f"error: {redact_text(text)}", err=True)


def open_store(address: str | None) -> Store:
    """Return an existing store; imports what `--help` does not need."""
    from benchkit.store.store import Store

    return Store(address, create=False)


def matching_runs(store: str | None, expression: str | None = None, **filters: Any) -> pd.DataFrame:
    """Return the runs of a store that match a selection."""
    from benchkit.measure.expression import matcher

    frame = open_store(store).runs(**filters)
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
    """Yield the record of each run as JSON text, oldest first; a million at once need 9 GB."""
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
    """Return the rows of a DataFrame; missing values are None, tags and the like objects."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [
        {k: decode_json(v) if RECORD_FIELDS.get(k) == "json" else v for k, v in row.items()}
        for row in rows
    ]


def print_json(rows: Iterable[dict[str, Any]]) -> None:
    """Print rows as one JSON array; missing values are null, JSON stored as text is decoded."""
    print_json_texts(map(_json_text, rows))


def print_json_texts(texts: Iterable[str]) -> None:
    """Print JSON texts as one JSON array."""
    pieces = _json_pieces(texts)
    while part := "".join(islice(pieces, _ROWS_PER_WRITE)):
        click.echo(part, nl=False)
    click.echo()


def print_rows(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows as JSON or as a table."""
    print_json(rows) if as_json else click.echo(Table(rows).to_text())


def as_json_text(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as the text that `print_json` prints."""
    return "".join(_json_pieces(map(_json_text, rows)))


def _json_pieces(texts: Iterable[str]) -> Iterator[str]:
    """Yield the text of a JSON array in pieces, one for each element and one for the end."""
    start = "[\n "
    for text in texts:
        yield start + text.replace("\n", "\n ")
        start = ",\n "
    yield "[]" if start == "[\n " else "\n]"


def _json_text(row: dict[str, Any]) -> str:
    row = {
        name: json.loads(value) if name in _JSON_FIELDS and isinstance(value, str) else value
        for name, value in row.items()
    }
    return json.dumps(json_safe(row), default=str, indent=1)
