from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from h5py import h5ds
from hypothesis import given

from benchkit.errors import UsageError
from benchkit.store.runfile.reader import is_own_file, read_tree
from benchkit.store.runfile.writer import encode_tree
from benchkit.store.store import Store


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

    assert min(times[0::2]) < min(times[1::2]) / 10


def test_encode_tree_gives_the_same_bytes_for_the_same_run(make_run):
    run = make_run(seed=1)

    assert encode_tree(run) == encode_tree(run.copy(deep=True))


def test_encode_tree_in_threads_writes_separate_files(make_run):
    runs = [make_run(seed=seed) for seed in range(4)]
    expected = [encode_tree(run) for run in runs]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encode_tree, runs * 3)) == expected * 3


def test_encode_tree_links_variables_and_dimensions(tmp_path):
    dataset = xr.Dataset({"a": (("x", "y"), np.ones((2, 3))), "b": ("x", [1, 2])}, {"x": [5, 6]})
    (tmp_path / "tree.nc").write_bytes(encode_tree(xr.DataTree(dataset)))

    with h5py.File(tmp_path / "tree.nc") as file:
        a, b, x, y = (file[name].id for name in "abxy")
        assert h5ds.is_scale(x)
        assert h5ds.is_scale(y)
        attached = {(u, s): [h5ds.is_attached(u, s, axis) for axis in (0, 1)]
                    for u, s in ((a, x), (a, y))}  # fmt: skip
        assert attached == {(a, x): [True, False], (a, y): [False, True]}
        assert h5ds.is_attached(b, x, 0)
        assert [dim.keys() for dim in file["a"].dims] == [["x"], [h5ds.get_scale_name(y).decode()]]
        assert [dim[0].name for dim in file["a"].dims] == ["/x", "/y"]


def test_encode_tree_writes_several_chunks(tmp_path):
    values = np.arange(1_300_000.0)
    (tmp_path / "tree.nc").write_bytes(encode_tree(xr.DataTree(xr.Dataset({"v": ("x", values)}))))

    with h5py.File(tmp_path / "tree.nc") as file:
        assert file["v"].chunks == (2**19,)
        assert file["v"].id.get_num_chunks() == 3
        assert (file["v"][()] == values).all()
        assert (file["v"][2**19 - 1 : 2**19 + 2] == values[2**19 - 1 : 2**19 + 2]).all()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 700])
def test_encode_tree_writes_groups_of_any_size(roundtrip, count):
    rng = np.random.default_rng(count)
    names = [f"v{number:x}" for number in rng.permutation(count)]
    tree = xr.DataTree(xr.Dataset({name: ((), float(i)) for i, name in enumerate(names)}))

    xr.testing.assert_identical(roundtrip(tree), tree)


def test_add_of_too_long_attribute_is_refused(make_run, tmp_path):
    run = make_run(groups=False)
    run.attrs["list"] = list(range(10_000))

    with pytest.raises(UsageError, match=r"attribute 'list': 800\d\d B, .* at most 65528: make it"):
        Store(tmp_path / "store").add(run)
    assert not list((tmp_path / "store").glob("runs/*/*"))


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
NAMES = st.text("abcxyz_é", min_size=1, max_size=9)
SIZES = {"d0": 0, "d1": 1, "d2": 3, "d3": 1500}
DTYPES = ["i1", "u2", "i4", "u8", "f4", "f8"]


@st.composite
def variables(draw):
    dims = tuple(draw(st.lists(st.sampled_from(list(SIZES)), max_size=2, unique=True)))
    shape = tuple(SIZES[dim] for dim in dims)
    attrs = draw(st.dictionaries(NAMES, TEXTS | st.integers(-(2**62), 2**62), max_size=4))
    if draw(st.booleans()):
        return dims, np.full(shape, draw(TEXTS), object), attrs
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    return dims, (100 * rng.random(shape)).astype(draw(st.sampled_from(DTYPES))), attrs


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, variables(), max_size=12), max_size=4))
def test_written_trees_are_read_by_xarray(tmp_path_factory, groups):
    tree = xr.DataTree.from_dict({f"/{name}": xr.Dataset(data) for name, data in groups.items()})
    path = tmp_path_factory.mktemp("tree") / "tree.nc"
    path.write_bytes(encode_tree(tree))

    xr.testing.assert_identical(read_tree(path).load(), tree)
    with xr.open_datatree(path, engine="h5netcdf") as other:
        xr.testing.assert_identical(other.load(), tree)
