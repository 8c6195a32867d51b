from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest
import xarray as xr

from benchkit.errors import UnreadableRun, UsageError
from benchkit.measure.run_ids import derived_id
from benchkit.store.runfile.file import encode_run, open_run, read_record, run_name
from benchkit.store.variables import GROUPS


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


def test_open_run_reads_copy_written_by_xarray(path, make_run):
    run = make_run()
    run.to_netcdf(path, engine="h5netcdf")

    with open_run(path) as tree:
        xr.testing.assert_identical(tree.load(), run)


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
