"""Files without a digest are read by another process, with limits."""

import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from benchkit.errors import InvalidImportError, UnreadableRun
from benchkit.store import runfile
from benchkit.store.interchange import netcdf
from benchkit.store.interchange.netcdf import import_netcdf
from benchkit.store.store import Store

DAMAGED = Path(__file__).parents[2] / "data" / "damaged"


@pytest.fixture
def store(tmp_path):
    """Return an empty store."""
    return Store(tmp_path / "store")


def test_import_netcdf_reads_copy_written_by_xarray(store, tmp_path, make_run):
    run = make_run(seed=3)
    run.to_netcdf(tmp_path / "copy.nc", engine="h5netcdf")

    report = import_netcdf(store, tmp_path / "copy.nc")

    assert (report.rows, report.added) == (1, 1)
    xr.testing.assert_identical(store.open("latest").tree.load(), run)
    assert import_netcdf(store, tmp_path / "copy.nc").added == 0


def test_import_netcdf_names_damaged_file_and_reads_the_others(store, tmp_path, make_run):
    folder = tmp_path / "early" / "runs" / "2026-08"
    folder.mkdir(parents=True)
    (tmp_path / "early" / "store.json").write_text('{"format": "benchkit-store", "version": 1}')
    for seed in (1, 2, 3):
        make_run(seed=seed).to_netcdf(folder / f"{seed}.nc", engine="h5netcdf")
    (folder / "2.nc").write_bytes((folder / "2.nc").read_bytes()[:5000])

    report = import_netcdf(store, tmp_path / "early")

    assert len(store) == 2
    (line,) = report.odd[:1]
    assert "2.nc: damaged run file: " in line


def test_zeroed_sector_stops_no_import(store, monkeypatch):
    """HDF5 loops for ever when it reads this file."""
    monkeypatch.setattr(netcdf, "MAX_CPU_S", 2)
    begin = time.process_time()

    with pytest.raises(InvalidImportError, match=r"zeroed_sector\.nc: damaged run file"):
        import_netcdf(store, DAMAGED / "zeroed_sector.nc")

    assert time.process_time() - begin < 2
    with pytest.raises(UnreadableRun, match="does not end with a digest"):
        runfile.read_record(DAMAGED / "zeroed_sector.nc")


def test_file_that_would_fill_the_memory_is_refused(store, tmp_path):
    path = tmp_path / "large.nc"
    with h5py.File(path, "w") as file:
        options = {"compression": "gzip", "chunks": (2**24,), "fillvalue": 0}
        file.create_dataset("zeros", shape=(2**30,), dtype="u1", **options)
        file["zeros"][: 2**24] = np.zeros(2**24, "u1")
    assert path.stat().st_size < 10**6

    with pytest.raises(InvalidImportError, match=r"/zeros has \d+ B in the file, but needs 10737"):
        import_netcdf(store, path)


def test_check_size_is_absolute_or_relative():
    small, large = runfile.MAX_BYTES, runfile.MAX_BYTES + 1

    assert runfile.check_size("zeros", small, 10) is None
    assert runfile.check_size("data", large, large // 100) is None
    with pytest.raises(ValueError, match="zeros has 10 B in the file, but needs"):
        runfile.check_size("zeros", large, 10)


@pytest.mark.parametrize("content", [b"", b"<html>502 Bad Gateway</html>"])
def test_error_of_other_files_is_one_line(content, store, tmp_path):
    (tmp_path / "x.nc").write_bytes(content)

    with pytest.raises(InvalidImportError, match=r"x\.nc: damaged run file: \S") as caught:
        import_netcdf(store, tmp_path / "x.nc")

    assert len(str(caught.value).splitlines()) == 1


def test_import_netcdf_works_without_limits(store, tmp_path, make_run, monkeypatch):
    """Windows has no module `resource`; the time of the process is limited by its parent."""
    (tmp_path / "resource.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    make_run(groups=False).to_netcdf(tmp_path / "copy.nc", engine="h5netcdf")

    assert import_netcdf(store, tmp_path / "copy.nc").added == 1
    assert sys.modules.get("resource") is None or "benchkit" not in str(sys.modules["resource"])
