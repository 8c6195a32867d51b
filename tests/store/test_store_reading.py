"""Runs of a store: search by id, selection as a table, and counts."""

import json
from datetime import datetime, timezone

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from benchkit.errors import UnknownRun, UnreadableRun, UsageError
from benchkit.measure.run_ids import derived_id, new_id
from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.store.storage import run_name


def test_resolve_accepts_beginning_of_id_and_latest(store, make_run):
    old, new = (
        store.add(make_run(groups=False, id=derived_id(t, "x"))) for t in (1e9, 1785549600.0)
    )

    assert store.resolve("latest") == new
    assert store.resolve(old[:4]) == old
    assert store.resolve(new[:13].upper()) == new
    assert store.resolve(old) == old
    assert old in store
    assert "latest" not in store


def test_open_rejects_ambiguous_id_in_one_line(store, make_run):
    for text in "xyz":
        store.add(make_run(groups=False, id=derived_id(1e9, text)))

    with pytest.raises(UnknownRun, match="3 runs begin with '00e8'") as caught:
        store.open("00e8")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ffffffff", "no run 'ffffffff'.*use 'latest'"),
        ("01", "at least 4 characters"),
        ("", "at least 4 characters"),
        ("../../store.json", "no run"),
        ("01a1fb52-0000-7000-8000-000000000000", "no run"),
    ],
)
def test_open_rejects_unknown_run_in_one_line(filled, name, message):
    with pytest.raises(UnknownRun, match=message) as caught:
        filled.open(name)
    assert "\n" not in str(caught.value)


def test_open_in_empty_store_suggests_benchkit_run(store):
    with pytest.raises(UnknownRun, match="add some with `benchkit run`"):
        store.open("latest")


@pytest.mark.store_kinds("folder", "bucket")
def test_open_reports_missing_or_damaged_file(filled):
    gone, damaged = filled.ids()[:2]
    filled.files.delete(run_name(gone))
    filled.files.replace(run_name(damaged), b"rubbish")

    with pytest.raises(UnknownRun, match="in the index, but its file is missing"):
        filled.open(gone)
    with pytest.raises(UnreadableRun, match=damaged):
        filled.open(damaged)


def days(frame):
    return [moment.day for moment in frame["started"]]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"workload": "array.*"}, [1, 2, 4, 5]),
        ({"workload": "array.basic_sum[chunks=thin]"}, [1, 4]),
        ({"workload": ["frame.join", "*square*"]}, [2, 3, 5, 6]),
        ({"outcome": "ok"}, [1, 2, 3, 4, 5]),
        ({"environment": "dev-*"}, [4, 5, 6]),
        ({"environment": ["main"]}, [1, 2, 3]),
        ({"variant": "A"}, [1, 3, 5]),
        ({"n": 3}, [4]),
        ({"chunks": "square"}, [2, 5]),
        ({"duration": 12.0}, [3]),
        ({"since": "2026-08-03T02:00"}, [3, 4, 5, 6]),
        ({"until": datetime(2026, 8, 3, 2, tzinfo=timezone.utc)}, [1, 2]),
        ({"since": "2026-08-02", "until": "2026-08-04", "variant": "B"}, [2]),
        ({"outcome": None, "host": None}, [1, 2, 3, 4, 5, 6]),
    ],
)
@pytest.mark.parametrize("compacted", [False, True])
def test_runs_selects_by_fields_tags_and_time(filled, selection, expected, compacted):
    if compacted:
        filled.compact()

    assert days(filled.runs(**selection)) == expected


def test_runs_selects_by_age(store, make_run):
    now = datetime.now(timezone.utc).isoformat()
    store.add(make_run(groups=False))
    recent = store.add(make_run(groups=False, started=now))

    assert store.runs(since="7d")["id"].tolist() == [recent]


def test_runs_has_all_columns_in_empty_store(store, make_run):
    expected = [*RECORD_FIELDS, *METRICS, "comparable", "reason"]
    assert store.runs().columns.tolist() == expected
    assert store.runs(variant="A", columns=["id"]).empty

    store.add(make_run())

    assert store.runs().columns.tolist() == expected


def test_runs_returns_missing_values_as_missing(store, make_run):
    store.add(make_run(groups=False, seed=None))

    row = store.runs().iloc[0]

    assert np.isnan(row["duration"])
    assert pd.isna(row["seed"])
    assert pd.isna(row["error"])


def test_runs_returns_requested_columns_in_order(filled):
    frame = filled.runs(columns=["duration", "tags", "workload", "duration"])

    assert frame.columns.tolist() == ["duration", "tags", "workload"]
    assert json.loads(frame["tags"][1]) == {"variant": "B", "n": 1}
    assert frame.index.tolist() == list(range(6))


def test_runs_suggests_nearest_column_or_filter(filled):
    with pytest.raises(UsageError, match=r"runs have no field 'durration'.*'duration'"):
        filled.runs(columns=["durration"])
    with pytest.raises(UsageError, match=r"'environmant' is not a field.*'environment'"):
        filled.runs(environmant="main")
    with pytest.raises(UsageError, match=r"'variannt' is not a field, tag or.*'variant'"):
        filled.runs(variannt="A")


def test_runs_hints_at_near_names_if_no_workload_matches(filled):
    with pytest.warns(UserWarning, match=r"no run of 'arrai\.\*'.*'array\.\*'"):
        assert filled.runs("arrai.*").empty
    with pytest.warns(UserWarning, match=r"no run of 'array.basic_smu'.*'array.basic_sum'"):
        assert filled.runs("array.basic_smu", outcome="ok").empty


def test_runs_has_no_hint_if_another_filter_matches_nothing(filled, recwarn):
    assert filled.runs("array.*", outcome="timeout").empty
    assert not recwarn.list


def test_open_keeps_store_for_comparison_by_id(filled):
    first, latest = filled[0], filled["latest"]

    assert first.compare("latest").equals(first.compare(latest))
    assert first.compare(latest.id[:13]).equals(first.compare(latest))


def test_runs_refuses_other_values_than_true_or_false(filled):
    with pytest.raises(UsageError, match="comparable is true or false"):
        filled.runs(comparable="yes")


def test_runs_returns_fields_of_newer_benchkit(filled, make_run):
    run = make_run(groups=False, started="2026-08-09")
    record = json.loads(run.attrs["record"]) | {"joules": 3.5, "colour": "red"}
    run.attrs["record"] = json.dumps(record)
    filled.add(run)

    assert filled.runs(columns=["colour", "joules"], colour="r*").values.tolist() == [["red", 3.5]]
    assert days(filled.runs(joules=3.5)) == [9]
    assert filled.runs().columns[-4:].tolist() == ["colour", "joules", "comparable", "reason"]


def test_runs_is_ordered_by_start_time(store, make_run):
    late = store.add(make_run(groups=False, started="2026-08-02"))
    early = store.add(make_run(groups=False, started="2026-08-01"))

    assert store.runs()["id"].tolist() == [early, late]


def test_dataset_has_units_and_integer_dimension(filled):
    dataset = filled.dataset("array.*", outcome="ok")

    assert dataset.sizes == {"run": 4}
    assert dataset["run"].dtype.kind == "i"
    assert dataset["duration"].attrs == METRICS["duration"].attrs
    assert dataset["duration"].values.tolist() == [10.0, 11.0, 13.0, 14.0]
    assert dataset["started"].values[0] == np.datetime64("2026-08-01T02:00:00")
    assert json.loads(dataset["tags"].values[0]) == {"variant": "A", "n": 0}
    assert list(dataset.indexes) == ["run"]


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_dataset_can_be_written_as_netcdf(filled, tmp_path, engine):
    pytest.importorskip({"netcdf4": "netCDF4"}.get(engine, engine))
    dataset = filled.dataset()

    dataset.to_netcdf(tmp_path / "runs.nc", engine=engine)

    with xr.open_dataset(tmp_path / "runs.nc", engine=engine) as read:
        xr.testing.assert_equal(read.load(), dataset)


@pytest.mark.store_kinds("folder", "bucket")
def test_info_counts_content(filled):
    filled.mark("exclude", workload="frame.join")

    info = filled.info()

    assert (info["runs"], info["workloads"], info["environments"], info["marks"]) == (6, 3, 2, 1)
    assert info["outcomes"] == {"ok": 5, "failed": 1}
    assert info["first"] == "2026-08-01T02:00:00+00:00"
    assert info["bytes"] == sum(len(filled.files.read(name)) for name in filled.files.walk())
    json.dumps(info)


def test_info_of_empty_store_is_json(store):
    assert json.loads(json.dumps(store.info()))["runs"] == 0


def test_runs_read_by_row_groups_equal_filtered_runs(store, monkeypatch):
    monkeypatch.setattr("benchkit.store.index.GROUP_ROWS", 7)
    rng = np.random.default_rng(0)
    names = [
        "array.sum",
        "array.sum[n=1]",
        "array.sum[n=2]",
        "array.sums",
        "frame.join",
        "old.name",
    ]
    records = [
        {
            "id": new_id(),
            "workload": str(rng.choice(names)),
            "environment": str(rng.choice(["main", "dev"])),
            "started": f"2026-08-{number // 10 + 1:02d}T0{rng.integers(9)}:00:00+00:00",
            "tags": json.dumps({"variant": str(rng.choice(["A", "B"]))}),
            "params": '{"n": 1}',
            "duration": float(number),
            "category": "array",
        }
        for number in range(200)
    ]
    store.create()
    store.index.add_many(records[0:120:2])
    store.index.add_many(records[1:120:2])
    store.index.add_many(records[120:190])
    for record in records[185:]:
        store.index.add(record)
    store.mark("rename", from_="old.name", to="frame.new")
    store.mark("rename", field="parameter", workload="array.sum", from_="n", to="size")
    store.mark("exclude", workload="array.sum[size=2]")
    whole = store.runs()
    assert len(whole) == 200
    name, started = whole["workload"], whole["started"]
    middle = pd.Timestamp("2026-08-11", tz="UTC")
    cases = [
        ({"workload": "array.sum"}, name.str.fullmatch(r"array\.sum(\[.*)?")),
        ({"workload": "array.sum*"}, name.str.startswith("array.sum")),
        ({"workload": "array.sum[size=1]"}, name == "array.sum[size=1]"),
        ({"workload": ["frame.new", "frame.j?in"]}, name.isin(["frame.new", "frame.join"])),
        ({"workload": "*"}, name.notna()),
        ({"since": middle}, started >= middle),
        ({"until": middle, "environment": "dev"},
         (started < middle) & (whole["environment"] == "dev")),
        ({"variant": "A", "workload": "frame.*"},
         name.str.startswith("frame.") & whole["tags"].str.contains('"A"')),
        ({"comparable": False}, name == "array.sum[size=2]"),
        ({"id": records[3]["id"]}, whole["id"] == records[3]["id"]),
    ]  # fmt: skip

    for selection, expected in cases:
        rows = whole[expected].reset_index(drop=True)
        assert 0 < len(rows) <= 200
        pd.testing.assert_frame_equal(store.runs(**selection), rows)
        chosen = store.runs(columns=["duration", "reason"], **selection)
        pd.testing.assert_frame_equal(chosen, rows[["duration", "reason"]])


def test_runs_have_unknown_columns_of_runs_that_are_not_chosen(store):
    store.create()
    store.index.add_many([{"id": new_id(), "workload": "frame.join", "joules": 1.5}])
    store.index.add_many([{"id": new_id(), "workload": "array.sum"}])

    assert store.runs("array.*", columns=["joules"])["joules"].isna().tolist() == [True]
    assert store.runs("frame.*", outcome="ok", columns=["joules"])["joules"].tolist() == []
    assert "joules" in store.runs("array.*")
    assert store.runs(columns=["joules"])["joules"].sum() == 1.5


def test_runs_of_no_workload_are_none(filled):
    filled.compact()

    assert len(filled.runs([])) == 0
    assert list(filled.runs([], columns=["duration"]).columns) == ["duration"]
