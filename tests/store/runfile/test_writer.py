from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from benchkit.store.runfile.reader import is_own_file, read_tree
from benchkit.store.runfile.writer import encode_tree


@pytest.fixture(params=["ours", "h5netcdf", "netcdf4"])
def roundtrip(request, tmp_path):
    """Encode a tree, and read the file with benchkit and with other programs."""
    if request.param == "netcdf4":
        pytest.importorskip("netCDF4")

    def run(tree):
        path = tmp_path / "tree.nc"
        path.write_bytes(encode_tree(tree))
        if request.param == "ours":
            assert is_own_file(path)
            return read_tree(path).load()
        with xr.open_datatree(path, engine=request.param) as opened:
            return opened.load()

    return run


def test_read_tree_returns_written_run(roundtrip, make_run):
    run = make_run(seed=3)

    xr.testing.assert_identical(roundtrip(run), run)


def test_encode_tree_writes_same_content_as_xarray(make_run, tmp_path):
    run = make_run()
    (tmp_path / "ours.nc").write_bytes(encode_tree(run))
    run.to_netcdf(tmp_path / "theirs.nc", engine="h5netcdf")

    with (
        xr.open_datatree(tmp_path / "ours.nc", engine="h5netcdf") as actual,
        xr.open_datatree(tmp_path / "theirs.nc", engine="h5netcdf") as expected,
    ):
        xr.testing.assert_identical(actual.load(), expected.load())


def test_encode_tree_keeps_types(roundtrip):
    tree = xr.DataTree(
        xr.Dataset(
            {
                "short": ("x", np.array([1, 2], "i1")),
                "long": ("x", np.array([2**62, -1])),
                "single": ("x", np.array([0.5, np.nan], "f4")),
                "text": ("x", np.array(["ä", ""], object)),
                "fixed": ("x", np.array(["ab", "c"])),
                "flag": ("x", np.array([True, False])),
                "when": ("x", pd.to_datetime(["2026-08-01T00:00:00", "2026-08-02T03:04:05"])),
                "scalar": ((), 1.5),
                "square": (("x", "y"), np.arange(6.0).reshape(2, 3)),
            },
            {"y": [10, 20, 30], "label": ("y", np.array(["p", "q", "r"], object))},
        )
    )

    got = roundtrip(tree)

    xr.testing.assert_equal(got, tree)
    for name in ("short", "long", "single", "flag"):
        assert got[name].dtype == tree[name].dtype
    assert "label" in got.coords


def test_encode_tree_keeps_long_variables_and_attributes(roundtrip):
    rng = np.random.default_rng(0)
    tree = xr.DataTree(
        xr.Dataset(
            {"wide": (("x", "y"), rng.random((3, 400_000))), "n": ("z", np.arange(2_000_000))},
            attrs={"source": "s" * 300_000, "list": [1, 2, 3], "empty": "", "unit": "µs"},
        )
    )

    got = roundtrip(tree)

    xr.testing.assert_equal(got, tree)
    assert got.attrs["source"] == tree.attrs["source"]
    assert got.attrs["unit"] == "µs"
    assert got.attrs["empty"] == ""
    assert list(got.attrs["list"]) == [1, 2, 3]


def test_encode_tree_keeps_many_attributes(roundtrip):
    attrs = {f"name_{index}": f"{index}" * (index * 10 + 1) for index in range(150)}

    assert roundtrip(xr.DataTree(xr.Dataset(attrs=attrs))).attrs == attrs


def test_encode_tree_keeps_dimensions_of_length_zero(roundtrip):
    tree = xr.DataTree.from_dict(
        {"/a": xr.Dataset({"f": ("x", np.zeros(0)), "s": ("x", np.zeros(0, object))})}
    )

    got = roundtrip(tree)

    assert got["a/f"].shape == got["a/s"].shape == (0,)


def test_encode_tree_separates_dimensions_of_groups(roundtrip):
    groups = {f"/{n}": xr.Dataset({"v": (("time", "w"), np.ones((n, 2)))}) for n in (3, 4, 5)}
    tree = xr.DataTree.from_dict(groups)

    xr.testing.assert_identical(roundtrip(tree), tree)


def test_encode_tree_escapes_text_that_hdf5_cannot_hold(roundtrip):
    dataset = xr.Dataset(
        {"key": ("error", np.array(["a\0b"], object))}, attrs={"log": "a\0b\udc80c"}
    )

    got = roundtrip(xr.DataTree(dataset))

    assert got.attrs["log"] == "a\\x00b\\udc80c"
    assert got["key"].item() == "a\\x00b"


def test_encode_tree_compresses_with_zlib_4_and_shuffle(make_run, tmp_path):
    (tmp_path / "run.nc").write_bytes(encode_tree(make_run(n_samples=500)))

    with h5py.File(tmp_path / "run.nc") as file:
        process = file["workers/process"]
        assert (process.compression, process.compression_opts, process.shuffle) == ("gzip", 4, True)


def test_encode_tree_needs_a_fraction_of_the_time_of_xarray(make_run, tmp_path):
    run = make_run()
    encode_tree(run)
    times = []
    for _ in range(5):
        for write in (
            encode_tree,
            lambda tree: tree.to_netcdf(tmp_path / "x.nc", engine="h5netcdf"),
        ):
            start = time.process_time()
            write(run)
            times.append(time.process_time() - start)

    assert min(times[0::2]) < min(times[1::2]) / 3


def test_encode_tree_gives_the_same_bytes_for_the_same_run(make_run):
    run = make_run(seed=1)

    assert encode_tree(run) == encode_tree(run.copy(deep=True))


def test_encode_tree_in_threads_writes_separate_files(make_run):
    runs = [make_run(seed=seed) for seed in range(4)]
    expected = [encode_tree(run) for run in runs]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encode_tree, runs * 3)) == expected * 3
