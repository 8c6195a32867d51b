"""A test of pytest is measured: its fixtures before the clock, its call as the timed step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchkit.experiment.environment.process_variables import measured_folder
from benchkit.measure.entrypoint import measure
from benchkit.store.build.run_from_recording import run_from_recording

MODULE = """
import time
import unittest

import pytest
from dask import delayed


@pytest.fixture
def slow_fixture(small_client):
    time.sleep(1.5)
    small_client.submit(sum, [1]).result()


def test_client(slow_fixture, small_client, benchmark_all):
    with benchmark_all(small_client):
        assert small_client.submit(sum, range(3)).result() == 3


def test_plain():
    assert delayed(sum)([1, 2]).compute() == 3


def test_wrong(small_client):
    assert small_client.submit(sum, range(3)).result() == 4


@pytest.fixture
def broken():
    raise RuntimeError("no data")


def test_broken_fixture(broken):
    pass


def test_skipped():
    pytest.skip("no bucket")


@pytest.mark.skip(reason="too large")
def test_marked_skip():
    pass


class TestOld(unittest.TestCase):
    def test_unequal(self):
        self.assertEqual(1, 2)


def test_interrupted():
    raise KeyboardInterrupt
"""
#: Workers in this process, which may use more than a worker's default memory.
CLUSTER = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "processes": False,
    "memory_limit": "64 GiB",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -n 2 --benchkit\n")
    (folder / "test_m.py").write_text(MODULE)
    (folder / "test_import.py").write_text("import no_such_package\n")
    return folder


def measured(suite, folder, name):
    path = measure(name, workloads=[f"pytest:{suite}"], folder=folder, cluster=CLUSTER)
    return json.loads(run_from_recording(path).attrs["record"])


def test_measure_records_the_call_on_the_cluster_of_the_fixtures(suite, tmp_path):
    run = measured(suite, tmp_path, "test_m.py::test_client")

    assert run["outcome"] == "ok"
    assert (run["workload"], run["category"]) == (
        "test_m.py::test_client",
        "test_m",
    )
    assert run["n_tasks"] == 1  # not the task of the fixture
    assert run["duration"] < 1.5
    assert run["n_workers"] == 2


def test_fixtures_need_only_what_is_copied_to_other_environments(suite, tmp_path):
    code = """
import json, sys
from benchkit.measure.entrypoint import measure
name, suite, folder, cluster = sys.argv[1:]
print(measure(name, workloads=[suite], folder=folder, cluster=json.loads(cluster)))
"""
    words = ("test_m.py::test_client", f"pytest:{suite}", str(tmp_path), json.dumps(CLUSTER))
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(measured_folder())},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    run = run_from_recording(Path(done.stdout.splitlines()[-1]))
    assert json.loads(run.attrs["record"])["outcome"] == "ok", run.attrs["record"]


def test_measure_runs_a_test_without_client_on_the_cluster(suite, tmp_path):
    run = measured(suite, tmp_path, "test_m.py::test_plain")

    assert run["outcome"] == "ok"
    assert run["n_tasks"] >= 1
    assert run["n_workers"] == 2


@pytest.mark.parametrize(
    ("name", "outcome", "error"),
    [
        ("test_m.py::test_wrong", "failed", "AssertionError: "),
        ("test_m.py::test_broken_fixture", "failed", "RuntimeError: no data"),
        ("test_m.py::test_skipped", "skipped", "Skipped: no bucket"),
        ("test_m.py::test_marked_skip", "skipped", "Skipped: too large"),
        ("test_m.py::TestOld::test_unequal", "failed", "AssertionError: 1 != 2"),
        ("test_import.py::test_a", "failed", "No module named 'no_such_package'"),
        ("test_m.py::test_gone", "failed", "not found: "),
    ],
)
def test_measure_stores_the_outcome_of_a_test(suite, tmp_path, name, outcome, error):
    run = measured(suite, tmp_path, name)

    assert (run["workload"], run["outcome"]) == (name, outcome)
    assert error in run["error"]
    assert "\n" not in run["error"]


def test_measure_of_an_interrupted_test_leaves_no_recording(suite, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure(
            "test_m.py::test_interrupted",
            workloads=[f"pytest:{suite}"],
            folder=tmp_path,
            cluster=CLUSTER,
        )

    assert list(tmp_path.iterdir()) == []
