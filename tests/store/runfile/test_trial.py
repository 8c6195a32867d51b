"""Files without a digest are read by another process, with limits."""

from __future__ import annotations

import time
from pathlib import Path

import h5py
import pytest

from benchkit.errors import StoreError, UnreadableRun
from benchkit.store.runfile import trial
from benchkit.store.runfile.file import open_run, read_record

DAMAGED = Path(__file__).parents[2] / "data" / "damaged"


def write(path, **variables):
    """Write a file that another program could have written."""
    with h5py.File(path, "w") as file:
        for name, options in variables.items():
            file.create_dataset(name, **options)
    return path


def test_zeroed_sector_stops_no_reader(monkeypatch):
    """HDF5 loops for ever when it reads this file."""
    monkeypatch.setattr(trial, "MOST_CPU_S", 2)
    begin = time.process_time()

    with pytest.raises(UnreadableRun, match=r"zeroed_sector\.nc: damaged run file"):
        open_run(DAMAGED / "zeroed_sector.nc")

    assert time.process_time() - begin < 2
    with pytest.raises(UnreadableRun):  # the reason is kept: it takes no time again
        read_record(DAMAGED / "zeroed_sector.nc")


def test_file_that_would_fill_the_memory_is_refused(tmp_path):
    zeros = {"shape": (2**30,), "dtype": "u1", "compression": "gzip", "chunks": (2**24,)}
    path = write(tmp_path / "large.nc", zeros={**zeros, "fillvalue": 0})
    with h5py.File(path, "a") as file:
        file["zeros"][: 2**24] = 0
    assert path.stat().st_size < 10**6

    with pytest.raises(UnreadableRun, match=r"/zeros has \d+ B in the file, but needs 1073741824"):
        open_run(path)


def test_limit_of_memory_is_absolute_or_relative():
    small, large = trial.MOST_BYTES, trial.MOST_BYTES + 1

    assert trial.check_size("zeros", small, 10) is None
    assert trial.check_size("data", large, large // 100) is None
    with pytest.raises(ValueError, match="zeros has 10 B in the file, but needs"):
        trial.check_size("zeros", large, 10)


def test_run_is_not_called_damaged_if_no_process_starts(tmp_path, monkeypatch):
    path = write(tmp_path / "x.nc", x={"data": [1.0]})

    def fail():
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(trial, "_process", None)
    monkeypatch.setattr(trial, "_start", fail)
    with pytest.raises(StoreError, match="no process starts that tries to read it: Cannot"):
        open_run(path)


def test_process_is_kept_and_replaced_after_its_end(tmp_path):
    path = write(tmp_path / "x.nc", x={"data": [1.0, 2.0]})
    trial.try_to_read(path, 1000)
    first = trial._process
    trial.try_to_read(path, 1000)
    assert trial._process is first

    first.kill()
    first.wait()
    trial.try_to_read(path, 1000)

    assert trial._process.pid != first.pid


def test_process_ends_with_its_user(tmp_path):
    trial.try_to_read(write(tmp_path / "x.nc", x={"data": [1.0]}), 1000)
    process = trial._process

    process.stdin.close()

    assert process.wait(20) == 0


@pytest.mark.parametrize("content", [b"", b"<html>502 Bad Gateway</html>"])
def test_error_of_other_files_is_one_line(content, tmp_path):
    (tmp_path / "x.nc").write_bytes(content)

    with pytest.raises(trial.TrialError) as caught:
        trial.try_to_read(tmp_path / "x.nc", len(content))

    assert len(str(caught.value).splitlines()) == 1
