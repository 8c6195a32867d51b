"""Tests of other projects become runs with `pytest --benchkit`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchkit.store.store import Store

ROOT = Path(__file__).parent.parent
SUITE = """
import sys

import pytest


@pytest.fixture(scope="module")
def small_client():
    from dask.distributed import Client

    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False) as it:
        yield it


@pytest.mark.benchkit
@pytest.mark.parametrize("n", [3])
def test_marked(small_client, n):
    assert small_client.submit(sum, range(n)).result() == 3


def test_block(small_client, benchkit_record):
    small_client.submit(sum, range(9), pure=False).result()
    with benchkit_record(small_client) as recorded:
        small_client.submit(sum, range(5), pure=False).result()


@pytest.mark.benchkit
def test_skipped(small_client):
    pytest.skip("no bucket")


@pytest.mark.benchkit
def test_failing(small_client):
    assert small_client.submit(sum, range(2)).result() == 7


def test_other():
    pass
"""
LAZY = """
import sys

import pytest


@pytest.mark.benchkit
def test_marked(benchkit_record):
    with benchkit_record() as recorded:
        assert recorded is None
    assert not [name for name in sys.modules if name.split(".")[0] in ("dask", "distributed")]
    assert {name for name in sys.modules if name.startswith("benchkit.")} == {
        "benchkit.pytest_plugin"
    }
"""


def run(folder, text, *options):
    (folder / "test_suite.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "benchkit.pytest_plugin", "--strict-markers"]
    return subprocess.run(
        [*command, *options],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.slow
def test_plugin_keeps_marked_tests_and_blocks_as_runs(tmp_path):
    done = run(
        tmp_path, SUITE, "--benchkit", "--benchkit-store", "kept", "--benchkit-environment", "main"
    )

    assert "1 failed, 3 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "benchkit: 4 runs stored; `benchkit list runs` lists them" in done.stdout
    runs = Store(tmp_path / "kept").runs().set_index("workload")
    assert runs["outcome"].to_dict() == {
        "test_suite.py::test_marked[3]": "ok",
        "test_suite.py::test_block": "ok",
        "test_suite.py::test_failing": "wrong_answer",
        "test_suite.py::test_skipped": "skipped",
    }
    assert set(runs["environment"]) == {"main"}
    assert runs.loc["test_suite.py::test_block", "n_tasks"] == 1


def test_plugin_without_option_records_and_imports_nothing(tmp_path):
    done = run(tmp_path, LAZY)

    assert "1 passed" in done.stdout, done.stdout
    assert [path.name for path in tmp_path.iterdir() if "store" in path.name] == []


def test_plugin_names_the_fixture_for_a_marked_test_without_client(tmp_path):
    done = run(tmp_path, LAZY.replace("with benchkit_record() as recorded", "if 1"), "--benchkit")

    assert "record: no Dask client: create one with distributed.Client()" in done.stdout
    assert "a test that creates its client uses `with benchkit_record(client):`" in done.stdout
    assert "Traceback" not in done.stdout
