import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchkit.store.arrow import (
    SCHEMA,
    decode_texts,
    encode_texts,
    order_by_time,
    plain_array,
    records_to_table,
    table_to_frame,
    unite,
    without_dictionaries,
)
from benchkit.store.schema import METRICS, RECORD_FIELDS


def test_schema_has_every_field_and_metric_once():
    assert SCHEMA.names == [*RECORD_FIELDS, *METRICS]


def test_records_to_table_has_same_types_without_records():
    full = records_to_table([{"id": "a", "block": 1, "duration": 2, "started": "2026-08-01"}])

    assert records_to_table([]).schema == full.schema == SCHEMA


def test_records_to_table_converts_times_to_utc():
    moments = ["2026-08-01T02:00:00+02:00", "2026-08-01T00:00:00Z", "2026-08-01T00:00:00.000000"]

    started = records_to_table([{"started": text} for text in moments])["started"].to_pylist()

    assert started == [pd.Timestamp("2026-08-01", tz="UTC").to_pydatetime()] * 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("started", "yesterday"),
        ("started", 17),
        ("block", "two"),
        ("block", 1.5),
        ("block", 2**70),
        ("duration", "long"),
        ("duration", float("nan")),
        ("duration", []),
    ],
)
def test_records_to_table_replaces_invalid_values_by_null(field, value):
    assert records_to_table([{"id": "a", field: value}])[field].to_pylist() == [None]


def test_records_to_table_keeps_unknown_fields():
    table = records_to_table(
        [{"id": "a", "zeta": 1, "label": "x", "mixed": 1}, {"id": "b", "mixed": "y", "list": [1]}]
    )

    assert table["zeta"].to_pylist() == [1.0, None]
    assert table["label"].to_pylist() == ["x", None]
    assert table["mixed"].to_pylist() == ["1", "y"]
    assert table["list"].to_pylist() == [None, "[1]"]


def test_unite_matches_columns_by_name():
    old = pa.table({"id": ["a"], "duration": pa.array([1], pa.int64()), "gone": [7.0]})

    table = unite([old, records_to_table([{"id": "b", "duration": 2.5, "new": "x"}])])

    assert table["duration"].to_pylist() == [1.0, 2.5]
    assert table["gone"].to_pylist() == [7.0, None]
    assert table["new"].to_pylist() == [None, "x"]
    assert table.schema.field("duration").type == pa.float64()


def test_unite_converts_unknown_fields_of_two_types_to_text():
    tables = [records_to_table([{"id": "a", "x": 1.5}]), records_to_table([{"id": "b", "x": "y"}])]

    assert unite(tables)["x"].to_pylist() == ["1.5", "y"]


def test_table_to_frame_uses_nullable_integers_for_counts():
    whole = table_to_frame(records_to_table([{"id": "a", "block": 1}]))
    holey = table_to_frame(records_to_table([{"id": "a", "block": 1}, {"id": "b"}]))

    assert whole["block"].dtype == holey["block"].dtype == pd.Int64Dtype()
    assert holey["block"].isna().tolist() == [False, True]


def test_table_to_frame_keeps_json_as_text_that_pandas_can_count(tmp_path):
    frame = table_to_frame(records_to_table([{"tags": '{"a": 1}'}, {"tags": '{"a": 1}'}, {}]))
    frame.to_parquet(tmp_path / "runs.parquet")

    assert frame["tags"].tolist() == ['{"a": 1}', '{"a": 1}', "{}"]
    assert frame["tags"].nunique() == 2
    assert len(frame.drop_duplicates()) == 2
    assert pd.read_parquet(tmp_path / "runs.parquet")["tags"].tolist() == frame["tags"].tolist()


@pytest.mark.parametrize("encoded", [False, True])
def test_encode_texts_numbers_each_text_and_null(encoded):
    column = pa.chunked_array([["a", "b", "a"], ["c", None]])
    column = pa.chunked_array([c.dictionary_encode() for c in column.chunks]) if encoded else column

    codes, texts = encode_texts(column)

    assert codes.tolist() == [0, 1, 0, 2, -1]
    assert texts == ["a", "b", "c"]
    assert decode_texts(codes, texts).to_pylist() == ["a", "b", "a", "c", None]


def test_unite_keeps_dictionaries():
    tables = [
        pa.table({"id": ["a"], "workload": pa.array(["x"]).dictionary_encode()}),
        pa.table({"id": ["b"], "workload": ["y"]}),
        pa.table({"id": ["c"]}),
    ]

    table = unite(tables)

    assert pa.types.is_dictionary(table.schema.field("workload").type)
    assert without_dictionaries(table)["workload"].type == pa.string()
    assert without_dictionaries(table)["workload"].to_pylist() == ["x", "y", None]


def test_order_by_time_returns_none_if_rows_are_in_order():
    records = [{"id": "b", "started": "2026-08-01"}, {"id": "a", "started": "2026-08-02"}, {}]

    assert order_by_time(records_to_table(records)) is None
    assert order_by_time(records_to_table(records[:0])) is None
    assert order_by_time(records_to_table(records[::-1])).tolist() == [2, 1, 0]


def test_order_by_time_puts_rows_without_time_last():
    table = records_to_table(
        [
            {"id": "d"},
            {"id": "c", "started": "2026-08-01"},
            {"id": "b", "started": "2026-08-01"},
            {"id": "a", "started": "2026-08-02"},
        ]
    )

    assert table["id"].take(pa.array(order_by_time(table))).to_pylist() == ["b", "c", "a", "d"]
    with pytest.raises(KeyError):
        order_by_time(table.select(["started"]))


def test_plain_array_returns_types_of_netcdf():
    assert plain_array(pd.Series([1, None], dtype="Int64"))[0] == 1.0
    assert plain_array(pd.Series([1, 2], dtype="Int64")).dtype == np.int64
    assert plain_array(pd.Series(["a", None])).tolist() == ["a", ""]
    assert plain_array(pd.Series([True, False])).dtype == bool
