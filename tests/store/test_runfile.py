"""Run files: written and read equally by all programs, and refused if they are damaged."""

import os
import pickle
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import h5py
import hypothesis.strategies as st
import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from h5py import h5ds
from hypothesis import given

from benchkit.analysis.compare.group_totals import READ, tree_values
from benchkit.errors import UnreadableRun, UsageError
from benchkit.measure.run_ids import derived_id
from benchkit.store import storage
from benchkit.store.runfile import (
    encode_run,
    encode_tree,
    open_run,
    read_record,
    read_tree,
    read_values,
    stored_record,
)
from benchkit.store.schema import GROUPS
from benchkit.store.storage import run_name, verify
from benchkit.store.store import Store


@pytest.fixture
def path(make_run, tmp_path):
    """Return the path of a run's file."""
    path = tmp_path / "run.nc"
    path.write_bytes(encode_run(make_run())[2])
    return path


def test_run_name_contains_month_in_utc():
    run_id = derived_id(1785549599.0, "x")  # 2026-08-01T01:59:59Z

    assert run_name(run_id) == f"runs/2026-08/{run_id}.nc"


@pytest.mark.parametrize("bad", ["", "../../etc/passwd", "latest"])
def test_run_name_rejects_invalid_id(bad):
    with pytest.raises(ValueError, match="is not an id"):
        run_name(bad)


def test_open_run_returns_attributes_of_all_variables(path):
    tree = open_run(path)

    for group, variables in GROUPS.items():
        for variable in variables:
            assert tree[group][variable.name].attrs == variable.attrs, variable.name
    tree.close()


def test_open_run_returns_written_run(make_run, tmp_path):
    run = make_run(n_samples=400, n_tasks=50_000)
    (tmp_path / "run.nc").write_bytes(encode_run(run)[2])

    tree = open_run(tmp_path / "run.nc")

    xr.testing.assert_identical(tree, run)


def test_open_run_reads_large_variables_on_use(make_run, tmp_path):
    run = make_run(n_tasks=100_000)
    path = tmp_path / "run.nc"
    path.write_bytes(encode_run(run)[2])

    tree = open_run(path)
    lazy, small = tree["tasks/start"], tree["workers/process"]

    assert not lazy.variable._in_memory
    assert small.variable._in_memory
    assert lazy[99_990:].sum().item() == run["tasks/start"][99_990:].sum().item()
    picked = lazy.isel(task=[5, 3, 70_000])
    np.testing.assert_array_equal(picked.values, run["tasks/start"].values[[5, 3, 70_000]])
    np.testing.assert_array_equal(lazy.values, run["tasks/start"].values)
    assert pickle.loads(pickle.dumps(open_run(path))).identical(run)


def test_open_run_reads_selected_groups(path):
    whole, some = open_run(path), open_run(path, ("task_groups", "no such group"))

    assert list(some.children) == ["task_groups"] != list(whole.children)
    xr.testing.assert_identical(some["task_groups"].to_dataset(), whole["task_groups"].to_dataset())


def test_read_values_are_those_of_the_opened_run(path):
    opened = open_run(path)

    values = read_values(path, (*READ, "no/such", "duration"))

    assert values.pop("outcome") == "ok"
    assert values.pop("duration") == opened["duration"]
    assert set(values) == set(tree_values(opened)) > {"fine/prefix", "task_groups/seconds"}
    for name, found in values.items():
        np.testing.assert_array_equal(found, opened[name].values)


def other_units(tree):
    tree["task_groups/seconds"].attrs["units"] = "ms"


def other_kind(tree):
    tree["task_groups"] = (
        tree["task_groups"].to_dataset().assign(n_tasks=("task_group", list("ab")))
    )


def other_length(tree):
    texts = [*tree["fine/context"].values, "execute"]
    context = ("other", np.array(texts, object), tree["fine/context"].attrs)
    tree["fine"] = tree["fine"].to_dataset().drop_vars("context").assign(context=context)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_units, "task_groups/seconds has units 'ms', must be 's'"),
        (other_kind, "task_groups/n_tasks is text, must be a number"),
        (other_length, "fine/context has not the length of others along"),
    ],
)
def test_read_values_refuses_what_the_tables_do_not_say(make_run, tmp_path, change, message):
    tree, path = make_run(), tmp_path / "run.nc"
    if change is other_kind:
        tree["task_groups"] = tree["task_groups"].to_dataset().isel(task_group=[0, 1])
    change(tree)
    path.write_bytes(encode_tree(tree))

    with pytest.raises(UnreadableRun, match=message):
        read_values(path, READ)


def test_values_leave_out_runs_that_cannot_be_read(make_run, tmp_path):
    store = Store(tmp_path / "store")
    whole, damaged, gone = (store.add(make_run(seed=seed)) for seed in range(3))
    store.file(damaged).chmod(0o644)
    store.file(damaged).write_bytes(store.file(damaged).read_bytes()[:-1000])
    store.file(gone).unlink()

    assert [run_id for run_id, _ in store.values([whole, damaged, gone], READ)] == [whole]


def test_open_run_reads_selected_variables(path):
    whole, some = open_run(path), open_run(path, ("task_groups/seconds", "tasks/none"))

    wanted = whole["task_groups"].to_dataset()[["seconds"]]
    xr.testing.assert_identical(some["task_groups"].to_dataset()[["seconds"]], wanted)
    assert set(some["task_groups"].data_vars) == {"seconds"}
    xr.testing.assert_identical(some.to_dataset(), whole.to_dataset())
    assert not open_run(path, ()).children


def test_open_run_keeps_no_file_open(path):
    n_open = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None

    trees = [open_run(path) for _ in range(20)]

    if n_open is not None:
        assert len(os.listdir("/proc/self/fd")) <= n_open + 1
    path.unlink()
    assert all(tree["workers/process"].notnull().any() for tree in trees)


def test_read_record_returns_record(path):
    assert read_record(path)["workload"] == "array.basic_sum[chunks=thin]"


@pytest.mark.parametrize("damage", ["empty", "half", "text", "first kilobyte"])
@pytest.mark.parametrize("read", [open_run, read_record])
def test_damaged_run_file_is_named_in_one_line(path, damage, read):
    data = path.read_bytes()
    damaged = {
        "empty": b"",
        "half": data[: len(data) // 2],
        "text": b"<html>502 Bad Gateway</html>",
        "first kilobyte": bytes(1024) + data[1024:],
    }
    path.write_bytes(damaged[damage])

    with pytest.raises(UnreadableRun) as caught:
        read(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", [open_run, read_record])
def test_open_run_rejects_other_netcdf_file(tmp_path, read):
    xr.Dataset({"a": 1.0}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")

    with pytest.raises(UnreadableRun, match=r"other\.nc"):
        read(tmp_path / "other.nc")


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"id": "17"}, "UUID of version 7"),
        ({"record": "no json"}, "is not JSON"),
        ({"record": '{"id": "another"}'}, "belongs to another run"),
    ],
)
def test_encode_run_rejects_tree_that_is_not_a_run(make_run, attrs, message):
    with pytest.raises(UsageError, match=message):
        encode_run(make_run(groups=False, attrs=attrs))


def test_open_run_works_in_concurrent_threads(make_run, tmp_path):
    runs = {}
    for seed in range(4):
        path = tmp_path / f"{seed}.nc"
        tree = make_run(seed=seed)
        path.write_bytes(encode_run(tree)[2])
        runs[path] = float(tree["workers/process"].sum())
    wrong = []

    def read():
        for _ in range(2):
            for path, expected in runs.items():
                if float(open_run(path)["workers/process"].sum()) != expected:
                    wrong.append(path)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


@pytest.fixture(params=["ours", "h5netcdf", "netcdf4"])
def roundtrip(request, tmp_path):
    """Encode a tree, and read the file with benchkit and with other programs."""
    if request.param == "netcdf4":
        pytest.importorskip("netCDF4")

    def run(tree):
        path = tmp_path / "tree.nc"
        path.write_bytes(encode_tree(tree))
        if request.param == "ours":
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


def test_encode_tree_takes_a_third_of_the_time_of_xarray(make_run, tmp_path):
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


@pytest.fixture(scope="module")
def content():
    """Return the bytes of a run file."""
    from validation.synthetic_runs import make_run

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
        storage._kept.clear()
        with pytest.raises(UnreadableRun, match="damaged run file") as caught:
            read_record(path)
        assert "\n" not in str(caught.value)
        found += 1
    assert found == 60


def test_lost_trailer_is_damage(content, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(content[: -len("\nbenchkit sha256 \n") - 64])

    with pytest.raises(UnreadableRun, match="does not end with a digest"):
        open_run(path)


def test_verify_returns_digest_of_whole_file(content, tmp_path):
    path = tmp_path / "run.nc"
    path.write_bytes(content)

    assert verify(path) == sha256(content).hexdigest()
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
