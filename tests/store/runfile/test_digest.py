"""Damage of run files is found before HDF5 reads them."""

from __future__ import annotations

import random
from hashlib import sha256

import h5py
import netCDF4
import pytest
import xarray as xr

from benchkit.errors import UnreadableRun
from benchkit.store.runfile import digest
from benchkit.store.runfile.digest import verify
from benchkit.store.runfile.file import encode_run, open_run, read_record, stored_record


@pytest.fixture(scope="module")
def content():
    """Return the bytes of a run file."""
    from helpers.synthetic_runs import make_run

    return encode_run(make_run())[2]


def flip_bit(data, random):
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def zero_64_bytes(data, random):
    at = random.choice([i for i in range(0, len(data) - 64, 64) if any(data[i : i + 64])])
    return data[:at] + bytes(64) + data[at + 64 :]


def truncate(data, random):
    return data[: random.randrange(len(data))]


@pytest.mark.parametrize("damage", [flip_bit, zero_64_bytes, truncate])
def test_every_damage_is_found(damage, content, tmp_path, monkeypatch):
    """Files without a trailer would be tried in another process, which takes 20 ms each."""
    path = tmp_path / "run.nc"
    found = 0
    for seed in range(60):
        path.write_bytes(damage(content, random.Random(seed)))
        digest._kept.clear()
        with pytest.raises(UnreadableRun, match="damaged run file") as caught:
            read_record(path)
        assert "\n" not in str(caught.value)
        found += 1
    assert found == 60


def test_lost_trailer_is_damage(content, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(content[: -len("\nbenchkit sha256 \n") - 64])

    with pytest.raises(UnreadableRun, match="its end with the digest is lost"):
        open_run(path)


def test_verify_returns_digest_of_whole_file(content, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(content)

    assert verify(path) == (sha256(content).hexdigest(), True)
    assert stored_record(path)["digest"] == sha256(content).hexdigest()


def test_changed_file_is_verified_again(content, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(content)
    tree = open_run(path)
    path.write_bytes(b"x" + content[1:])

    with pytest.raises(UnreadableRun):
        open_run(path)
    assert tree.attrs["id"]


def test_variables_are_verified_when_they_are_read(tmp_path, make_run):
    path = tmp_path / "run.nc"
    path.write_bytes(encode_run(make_run(n_tasks=100_000))[2])
    start = open_run(path)["tasks/start"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    with pytest.raises(UnreadableRun):
        start.load()


def test_other_programs_read_files_with_digest(content, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(content)

    with h5py.File(path) as file, netCDF4.Dataset(path) as dataset:
        assert file.attrs["id"].decode() == dataset.getncattr("id")
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        assert tree.attrs["id"] == open_run(path).attrs["id"]
