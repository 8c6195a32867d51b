from __future__ import annotations

import itertools
import json
import pickle
import random
import shutil
import threading
from datetime import datetime, timezone

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import benchkit
from benchkit.errors import (
    AlreadyStored,
    StoreError,
    UnknownRun,
    UnreadableRun,
    UsageError,
)
from benchkit.measure.run_ids import derived_id
from benchkit.store import store as module
from benchkit.store.check import CheckReport
from benchkit.store.runfile.file import encode_run, run_name
from benchkit.store.schema import METRICS, RECORD_FIELDS
from benchkit.store.store import Store

# -- adding and opening ---------------------------------------------------------------------------


def test_add_stores_run_unchanged(store, make_run):
    run = make_run(seed=7, tags={"variant": "A"})

    run_id = store.add(run)

    with store.open(run_id).tree as opened:
        xr.testing.assert_identical(opened.load(), run)


def test_add_writes_files_of_the_store_format(store, make_run):
    run = make_run(groups=False, id=derived_id(1785549600.0, "x"))
    store.add(run)
    mark = store.mark("bankruptcy")

    run_id = run.attrs["id"]
    assert sorted(store.files.walk()) == sorted(
        [
            "store.json",
            f"runs/2026-08/{run_id}.nc",
            f"index/new/{run_id}.json",
            f"marks/{mark}.json",
        ]
    )
    record = json.loads(store.files.read(f"index/new/{run_id}.json"))
    assert record == json.loads(run.attrs["record"])
    assert store.compact()["runs"] == 1
    assert [len(store.files.list("index/new")), len(store.files.list("index"))] == [0, 1]


def test_add_writes_file_that_xarray_opens(store, make_run):
    run_id = store.add(make_run())

    with xr.open_datatree(store.path / run_name(run_id)) as tree:
        assert tree["workers/process"].attrs["units"] == "B"
        assert tree["duration"].attrs["better"] == "lower"


def test_add_of_same_run_changes_nothing(store, make_run):
    run = make_run(groups=False)
    store.add(run)
    before = sorted(store.files.walk())

    assert store.add(run) == run.attrs["id"]
    assert sorted(store.files.walk()) == before


def test_add_completes_interrupted_add(store, make_run):
    run = make_run(groups=False)
    run_id, _, data = encode_run(run)
    store.files.create(run_name(run_id), data)
    assert store.ids() == []

    store.add(run)

    assert store.ids() == [run_id]


def test_add_rejects_other_run_with_same_id(store, make_run):
    run_id = store.add(make_run(groups=False, duration=1.0))

    with pytest.raises(AlreadyStored, match=run_id):
        store.add(make_run(groups=False, id=run_id, duration=2.0))
    assert store.runs()["duration"].tolist() == [1.0]


def test_add_rejects_tree_that_is_not_a_run(store):
    with pytest.raises(UsageError, match="attribute id"):
        store.add(xr.DataTree(xr.Dataset()))
    assert not store.path.exists()


def test_add_compacts_index_of_many_runs(store, make_run, monkeypatch):
    monkeypatch.setattr(module, "_COMPACTION_CHECK_EVERY_RUNS", 10)
    monkeypatch.setattr("benchkit.store.index.catalogue.COMPACT_RECORDS", 15)
    ids = {store.add(make_run(groups=False)) for _ in range(25)}

    assert store.info()["segments"] == 1
    assert store.info()["records"] < 15
    assert set(store.ids()) == ids


def test_add_succeeds_if_compaction_fails(store, make_run, monkeypatch):
    def full(**_):
        raise StoreError("disk full")

    monkeypatch.setattr(store.catalogue, "wants_compaction", lambda: True)
    monkeypatch.setattr(store.catalogue, "compact", full)

    run_id = store.add(make_run(groups=False))

    assert store.ids() == [run_id]


def test_add_works_in_concurrent_threads(store, make_run):
    added, trouble = [], []

    def work(number):
        try:
            for _ in range(3):
                run_id = store.add(make_run(seed=number, n_samples=5, n_tasks=5))
                added.append(run_id)
                with store.open(run_id).tree as tree:
                    assert tree["duration"].item() == 10.0 + number
                assert run_id in set(store.runs(columns=["id"])["id"])
        except Exception as error:
            trouble.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert trouble == []
    assert sorted(added) == store.ids()


# -- finding a run --------------------------------------------------------------------------------


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


def test_open_reports_missing_or_damaged_file(filled):
    gone, damaged = filled.ids()[:2]
    filled.files.delete(run_name(gone))
    filled.files.path(run_name(damaged)).write_bytes(b"rubbish")

    with pytest.raises(UnknownRun, match="in the index, but its file is missing"):
        filled.open(gone)
    with pytest.raises(UnreadableRun, match=damaged):
        filled.open(damaged)


# -- tables ---------------------------------------------------------------------------------------


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
    assert frame["tags"][1] == {"variant": "B", "n": 1}
    assert frame.index.tolist() == list(range(6))


def test_runs_suggests_nearest_column_or_filter(filled):
    with pytest.raises(UsageError, match=r"runs have no field 'durration'.*'duration'"):
        filled.runs(columns=["durration"])
    with pytest.raises(UsageError, match=r"'environmant' is not a field.*'environment'"):
        filled.runs(environmant="main")
    with pytest.raises(UsageError, match=r"'variannt' is not a field, tag or.*'variant'"):
        filled.runs(variannt="A")


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


# -- maintenance ----------------------------------------------------------------------------------


def test_info_counts_content(filled):
    filled.mark("exclude", workload="frame.join")

    info = filled.info()

    assert (info["runs"], info["workloads"], info["environments"], info["marks"]) == (6, 3, 2, 1)
    assert info["outcomes"] == {"ok": 5, "failed": 1}
    assert info["first"] == "2026-08-01T02:00:00+00:00"
    assert info["bytes"] == sum(p.stat().st_size for p in filled.path.rglob("*") if p.is_file())
    json.dumps(info)


def test_info_of_empty_store_is_json(store):
    assert json.loads(json.dumps(store.info()))["runs"] == 0


def test_store_html_escapes_markup(tmp_path, make_run):
    store = Store(tmp_path / "<b>store")
    store.add(make_run(groups=False, outcome="<script>alert(1)</script>"))

    shown = store._repr_html_()

    assert "<script>" not in shown
    assert "<b>store" not in shown
    assert "&lt;script&gt;" in shown
    assert repr(store) == f"<benchkit.Store {store.path}: 1 run>"


def test_store_can_be_pickled(filled):
    assert pickle.loads(pickle.dumps(filled)).ids() == filled.ids()


def test_store_is_a_public_name():
    assert benchkit.Store is Store


# -- merging --------------------------------------------------------------------------------------


def same(first, second):
    pd.testing.assert_frame_equal(first.runs(), second.runs())
    assert sorted(m["id"] for m in first.marks()) == sorted(m["id"] for m in second.marks())


def test_copy_is_complete_and_idempotent(filled, tmp_path):
    filled.mark("exclude", workload="frame.join", reason="no")
    filled.files.create("experiments/nightly/plan.json", b"{}")
    filled.compact()
    other = Store(tmp_path / "other")

    assert filled.copy(other) == 6
    same(filled, other)
    assert other.files.read("experiments/nightly/plan.json") == b"{}"
    assert filled.copy(str(other.path)) == 0
    assert other.check() == CheckReport(runs=6)


def copy_files(source, target):
    """Merge the files of one store into another, as `cp -rn` does."""
    for path in source.path.rglob("*"):
        other = target.path / path.relative_to(source.path)
        if path.is_file() and not other.exists():
            other.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, other)


@pytest.mark.parametrize("seed", range(5))
def test_merging_by_file_copies_is_independent_of_order(
    tmp_path, make_run, seed
):
    rng = random.Random(seed)
    runs = [
        make_run(rng.choice(["a.x", "b.y[n=1]"]), groups=False, tags={"n": n}, duration=float(n))
        for n in range(9)
    ]
    parts = []
    for number in range(3):
        part = Store(tmp_path / f"part-{number}")
        for run in rng.sample(runs, rng.randrange(1, 9)):
            part.add(run)
            if rng.random() < 0.3:
                part.compact()
        if rng.random() < 0.5:
            part.mark("exclude", workload=rng.choice(["a.*", "b.*"]), reason=f"part {number}")
        parts.append(part)

    merged = []
    for number, order in enumerate(itertools.permutations(parts)):
        target = Store(tmp_path / f"merged-{number}")
        for part in (*order, *rng.sample(order, 2)):
            copy_files(part, target)
            if rng.random() < 0.3:
                Store(target.path).compact()
        merged.append(Store(target.path))

    expected = set().union(*(part.ids() for part in parts))
    for store in merged:
        assert set(store.ids()) == expected
        same(merged[0], store)
        assert store.check().healthy
