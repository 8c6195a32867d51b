"""Every version reads the stores of all earlier versions: one small store per format version."""

import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from benchkit.errors import UnreadableRun
from benchkit.store.check import CheckReport
from benchkit.store.interchange.results import import_results
from benchkit.store.manifest import FORMAT_VERSION
from benchkit.store.schema import GROUPS
from benchkit.store.store import Store

DATA = Path(__file__).parents[1] / "data"
NAMES = sorted(path.name for path in DATA.iterdir() if (path / "store.json").exists())
#: Groups that format 1 had from the beginning; old runs lack those that were added later.
FIRST_GROUPS = {
    "workers",
    "scheduler",
    "task_groups",
    "fine",
    "tasks",
    "task_events",
    "events",
    "errors",
}


@pytest.fixture(params=NAMES)
def old(request, tmp_path):
    """Return the store of a format version; runs without a digest are imported before."""
    copy = shutil.copytree(DATA / request.param, tmp_path / "old")
    if request.param == "1":
        copy = tmp_path / "imported"
        report = import_results(Store(copy), tmp_path / "old")
        assert (report.rows, report.added, report.odd) == (4, 4, [])
    return Store(copy, create=False)


def test_old_run_without_digest_is_refused_with_the_command_that_reads_it():
    store = Store(DATA / "1", create=False)

    with pytest.raises(UnreadableRun, match="does not end with a digest; `benchkit store import`"):
        store.open("latest")


def test_old_stores_cover_each_format_version():
    versions = {int(name.partition("_")[0]) for name in NAMES}
    assert versions == set(range(1, FORMAT_VERSION + 1))
    assert NAMES == ["1", "1_digests"]


def test_old_store_with_digests_has_them_in_files_and_index():
    store = Store(DATA / "1_digests", create=False)
    table = store.index.table(["digest"])
    digests = dict(zip(*table.select(["id", "digest"]).to_pydict().values(), strict=True))
    assert len(digests) == 4
    for run_id, digest in digests.items():
        assert digest == sha256(store.file(run_id).read_bytes()).hexdigest()
    assert [event["kind"] for event in store.events()] == ["night"]


def test_old_store_lists_runs_with_marks(old):
    frame = old.runs()

    assert frame["workload"].tolist() == [
        "array.column_sum[chunks=thin]",
        "array.column_sum[chunks=thin]",
        "frame.join",
        "frame.join",
    ]
    assert frame["outcome"].tolist() == ["ok", "ok", "failed", "skipped"]
    assert frame["duration"].tolist()[:2] == [11.0, 12.5]
    assert frame["duration"].isna().tolist() == [False, False, True, True]
    assert frame["started"][0] == pd.Timestamp("2026-08-01T02:00:00Z")
    assert frame["n_threads"].tolist()[:3] == [2, 2, 2]
    assert pd.isna(frame["n_threads"][3])
    assert frame["tags"].tolist() == ['{"variant": "A"}', "{}", "{}", "{}"]
    assert frame["error"][2] == "ValueError: <b>no</b> µ"
    assert frame["comparable"].tolist() == [True, True, True, False]
    assert frame["reason"][3] == "pandas was missing"


def test_old_store_opens_run_with_groups(old):
    tree = old.open(old.runs()["id"][0]).tree

    assert FIRST_GROUPS <= set(tree.children) <= set(GROUPS)
    assert tree["workers/process"].shape == (6, 2)
    assert tree["workers/process"].attrs["units"] == "B"
    assert tree["task_groups/seconds"].dims == ("task_group", "action")
    assert np.isfinite(tree["workers/process"].values[1:]).all()
    assert tree.attrs["clock_off"] - tree.attrs["clock_on"] == 10.0


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_old_store_is_read_equally_by_xarray(old, engine):
    pytest.importorskip({"netcdf4": "netCDF4"}.get(engine, engine))
    for name in old.files.walk("runs"):
        tree = old.open(Path(name).stem).tree
        with xr.open_datatree(old.path / name, engine=engine) as other:
            xr.testing.assert_identical(other.load(), tree.load())


def test_old_store_is_healthy_and_accepts_runs(old, make_run):
    before = old.runs()
    assert old.check(repair=False) == CheckReport(runs=4)

    old.compact()
    pd.testing.assert_frame_equal(old.runs(), before)

    old.add(make_run(groups=False))
    assert len(old) == 5
