"""Convert records of the index to Arrow columns, and Arrow columns to a DataFrame.

One explicit schema, derived from the table of fields and metrics, gives records, segments and an
empty store the same types. Unknown fields, written by a newer benchkit, are kept: numbers as
float64, everything else as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.values import clean_text

if TYPE_CHECKING:
    import pandas as pd

_TYPES = {
    "str": pa.string(),
    "json": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "time": pa.timestamp("us", tz="UTC"),
}
#: Types of all columns of this release; types inferred from empty columns would differ between
#: segments.
SCHEMA = pa.schema(
    [(name, _TYPES[kind]) for name, kind in RECORD_FIELDS.items()]
    + [(name, pa.float64()) for name in METRICS]
)

#: Text columns with few distinct values: read as dictionaries, which takes a third of the time.
ENCODED = frozenset(name for name, kind in RECORD_FIELDS.items() if kind in ("str", "json")) - {
    "id",
    "digest",
    "error",
}
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def records_to_table(
    records: Sequence[dict[str, Any]], wanted: Collection[str] | None = None
) -> pa.Table:
    """Return records as a table in the types of the schema."""
    extra = sorted({name for record in records for name in record} - set(SCHEMA.names))
    fields = [*SCHEMA, *(pa.field(name, _type_of(records, name)) for name in extra)]
    if wanted is not None:
        fields = [field for field in fields if field.name in wanted]
    arrays = [_column([record.get(field.name) for record in records], field) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _type_of(records: Iterable[dict[str, Any]], name: str) -> pa.DataType:
    numbers = all(
        isinstance(value, (int, float)) and not isinstance(value, bool)
        for value in (record.get(name) for record in records)
        if value is not None
    )
    return pa.float64() if numbers else pa.string()


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    convert = _CONVERTERS[str(field.type)]
    return pa.array([None if v is None else convert(v) for v in values], type=field.type)


def _tolerant(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError):
            return None

    return converted


def _text(value: Any) -> str:
    return clean_text(value if isinstance(value, str) else json.dumps(value))


def _integer(value: Any) -> int | None:
    number = int(value)
    return number if number == float(value) and -(2**63) <= number < 2**63 else None


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _datetime(value: Any) -> datetime:
    moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))  # Python 3.10 reads no Z
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


_CONVERTERS = {
    "string": _text,
    "int64": _tolerant(_integer),
    "double": _tolerant(_finite),
    "timestamp[us, tz=UTC]": _tolerant(_datetime),
}


def unite(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several tables as one table."""
    types: dict[str, pa.DataType] = {}
    for field in (field for table in tables for field in table.schema):
        known = types.get(field.name)
        if pa.types.is_dictionary(field.type) or known == _DICTIONARY:
            types[field.name] = _DICTIONARY
        elif field.name in SCHEMA.names:
            types[field.name] = SCHEMA.field(field.name).type
        else:  # an unknown field becomes text if its type differs between tables
            types[field.name] = field.type if known in (None, field.type) else pa.string()
    ordered = [name for name in SCHEMA.names if name in types]
    ordered += sorted(set(types) - set(ordered))
    schema = pa.schema([(name, types[name]) for name in ordered])
    return pa.concat_tables([_fit(table, schema) for table in tables]).unify_dictionaries()


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def encode_texts(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Return the texts of a column as numbers."""
    # codes: (n_rows,), position of each text in `texts`; -1 for null.
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    return pc.fill_null(array.indices, -1).to_numpy(), array.dictionary.to_pylist()


def decode_texts(codes: np.ndarray, texts: Sequence[str]) -> pa.DictionaryArray:
    """Return the column of `encode_texts`, as dictionary."""
    indices = pa.array(codes.astype(np.int32, copy=False), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def without_dictionaries(table: pa.Table, text: pa.DataType | None = None) -> pa.Table:
    """Return a table with plain texts instead of dictionaries."""
    text = text or pa.string()
    fields = [
        field.with_type(text)
        if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def table_to_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a DataFrame."""
    import pandas as pd  # takes 0.3 s; commands that read no runs do not need it

    # The type of texts in pandas: a million texts as strings would be copied once more.
    table = without_dictionaries(table, pa.large_string())
    frame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    for name, kind in RECORD_FIELDS.items():
        if kind == "json" and name in frame:
            frame[name] = frame[name].fillna("{}")
    return frame


def order_by_time(table: pa.Table) -> np.ndarray | None:
    """Return the order of rows by start time, then id."""
    started = pc.fill_null(table["started"].cast(pa.int64()), 2**63 - 1).to_numpy()
    steps = np.diff(started)
    if (steps > 0).all():
        return None
    order = np.argsort(started, kind="stable")
    same = np.diff(started[order]) == 0
    if same.any():  # sorting ids is slow: only those with equal times
        places = np.flatnonzero(np.append(same, False) | np.append(False, same))
        rows = order[places]
        ids = table["id"].take(pa.array(rows)).to_numpy()
        order[places] = rows[np.lexsort((ids, started[rows]))]
    return order


def plain_array(column: pd.Series) -> np.ndarray:
    """Return a column as an array that NetCDF can hold."""
    import pandas as pd

    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return np.asarray(column.dt.tz_localize(None))
    if pd.api.types.is_integer_dtype(column.dtype):
        return np.asarray(column.astype(float if column.hasnans else int))
    if pd.api.types.is_numeric_dtype(column.dtype):
        return np.asarray(column)
    return np.array([v if isinstance(v, str) else "" for v in column], object)
