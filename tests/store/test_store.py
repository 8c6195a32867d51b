"""Changes of a store: adding, pruning, copying and merging runs."""

import itertools
import json
import os
import pickle
import random
import shutil
import sys
import threading
from hashlib import sha256

import pandas as pd
import pytest
import xarray as xr

from benchkit.errors import AlreadyStored, StoreError, UsageError
from benchkit.measure.run_ids import derived_id
from benchkit.store import store as module
from benchkit.store.check import CheckReport
from benchkit.store.runfile import encode_run
from benchkit.store.storage import decode_object, run_name
from benchkit.store.store import Store

pytestmark = pytest.mark.store_kinds("folder", "bucket", "real_bucket")


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
    record = decode_object(store.files.read(f"index/new/{run_id}.json"))
    digest = sha256(store.files.read(f"runs/2026-08/{run_id}.nc")).hexdigest()
    assert record == {**json.loads(run.attrs["record"]), "digest": digest}
    assert store.compact()["runs"] == 1
    assert [len(store.files.list("index/new")), len(store.files.list("index"))] == [0, 1]


def test_add_writes_file_that_xarray_opens(store, make_run):
    run_id = store.add(make_run())

    with xr.open_datatree(store.files.path(run_name(run_id))) as tree:
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
    assert list(store.files.walk()) == []


def test_add_compacts_index_of_many_runs(store, make_run, monkeypatch):
    monkeypatch.setattr(module, "_COMPACTION_CHECK_EVERY_RUNS", 10)
    monkeypatch.setattr("benchkit.store.index.MAX_RECORDS", 15)
    ids = {store.add(make_run(groups=False)) for _ in range(25)}

    assert store.info()["segments"] == 1
    assert store.info()["records"] < 15
    assert set(store.ids()) == ids


def test_add_succeeds_if_compaction_fails(store, make_run, monkeypatch):
    def full(**_):
        raise StoreError("disk full")

    monkeypatch.setattr(store.index, "wants_compaction", lambda: True)
    monkeypatch.setattr(store.index, "compact", full)

    run_id = store.add(make_run(groups=False))

    assert store.ids() == [run_id]


def test_add_works_in_concurrent_threads(store, make_run):
    added, errors = [], []

    def work(number):
        try:
            for _ in range(3):
                run_id = store.add(make_run(seed=number, n_samples=5, n_tasks=5))
                added.append(run_id)
                with store.open(run_id).tree as tree:
                    assert tree["duration"].item() == 10.0 + number
                assert run_id in set(store.runs(columns=["id"])["id"])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert sorted(added) == store.ids()


def test_prune_moves_runs_to_trash_and_check_restores_them(filled):
    ids = filled.ids()
    chosen = ids[:2]

    assert filled.prune(chosen) == 2
    assert filled.ids() == ids[2:]
    assert filled.check().healthy
    assert filled.prune(chosen) == 0

    for name in list(filled.files.walk("trash")):
        filled.files.move(name, name.removeprefix("trash/"))
    assert sorted(filled.check().adopted) == chosen
    assert filled.ids() == ids


def test_check_removes_record_of_pruned_run(filled):
    chosen = filled.ids()[0]
    record = filled.runs().set_index("id").loc[chosen]
    filled.prune([chosen])
    filled.index.add({"id": chosen, "workload": record["workload"]})

    assert filled.check().healthy
    assert chosen not in filled.ids()


def test_store_html_escapes_markup(tmp_path, make_run):
    store = Store(tmp_path / "<b>store")
    store.add(make_run(groups=False, outcome="<script>alert(1)</script>"))

    html = store._repr_html_()

    assert "<script>" not in html
    assert "<b>store" not in html
    assert "&lt;script&gt;" in html
    assert repr(store) == f"<benchkit.Store {store.path}: 1 run>"


def test_store_can_be_pickled(filled):
    assert pickle.loads(pickle.dumps(filled)).ids() == filled.ids()


def assert_equal_content(first, second):
    pd.testing.assert_frame_equal(first.runs(), second.runs())
    assert sorted(m["id"] for m in first.marks()) == sorted(m["id"] for m in second.marks())


def test_copy_is_complete_and_idempotent(filled, tmp_path):
    filled.mark("exclude", workload="frame.join", reason="no")
    filled.files.create("experiments/nightly/plan.json", b"{}")
    filled.compact()
    other = Store(tmp_path / "other")

    assert filled.copy(other) == 6
    assert_equal_content(filled, other)
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
def test_merging_by_file_copies_is_independent_of_order(tmp_path, make_run, seed):
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
        assert_equal_content(merged[0], store)
        assert store.check().healthy


def test_add_many_lists_runs_of_an_interrupted_call(store, make_run):
    runs = [make_run(groups=False) for _ in range(2)]
    run_id, _, data = encode_run(runs[0])
    store.create()
    store.files.create(run_name(run_id), data)

    assert store.add_many(runs) == 1

    assert set(store.ids()) == {run.attrs["id"] for run in runs}
    assert store.check(repair=False) == CheckReport(runs=2)


def test_add_many_flushes_files_of_a_folder_together(tmp_path, make_run, monkeypatch):
    store = Store(tmp_path / "store")
    store.add(make_run(groups=False))
    n_flushed = 0
    fsync, sync = os.fsync, os.sync

    def counted(function):
        def flush(*descriptor):
            nonlocal n_flushed
            n_flushed += 1
            return function(*descriptor)

        return flush

    monkeypatch.setattr(os, "fsync", counted(fsync))
    monkeypatch.setattr(os, "sync", counted(sync))
    monkeypatch.setattr(sys, "platform", "linux")
    runs = [make_run(groups=False) for _ in range(20)]
    assert store.add_many([*runs, runs[0]]) == 20

    assert n_flushed < 10
    assert store.add_many(runs) == 0
    assert not list((store.path / "tmp").iterdir())
    assert store.check(repair=False).healthy


def test_copy_lists_runs_of_an_interrupted_copy(filled, tmp_path):
    copy = Store(tmp_path / "copy")
    copy.create()
    name = run_name(filled.ids()[2])
    copy.files.create(name, filled.files.read(name))

    assert filled.copy(copy) == 5

    assert copy.ids() == filled.ids()


def test_prune_completes_an_interrupted_prune(filled):
    run_id = filled.ids()[2]
    filled.files.move(run_name(run_id), f"trash/{run_name(run_id)}")

    assert filled.prune([run_id]) == 0

    assert run_id not in filled.ids()
    assert len(filled.ids()) == 5
