"""`benchkit ab --pytest` and `nightly --pytest`: tests of pytest as workloads."""

import json

import pytest
from click.testing import CliRunner
from helpers.commands import run_benchkit

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store

MODULE = """
import os
import time


def test_sleep(small_client):
    small_client.submit(time.sleep, 0.5 * (1 + float(os.environ.get("NAP", "0")))).result()


def test_wrong(small_client):
    assert small_client.submit(sum, [1]).result() == 7
"""
CLUSTER = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a project with tests and two environments; one sleeps four times as long."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("tests", "environments"):
        (folder / name).mkdir()
    (folder / "pytest.ini").touch()
    (folder / "tests" / "test_sleep.py").write_text(MODULE)
    (folder / "environments" / "base.yaml").write_text(CLUSTER)
    (folder / "environments" / "slow.yaml").write_text("extends: base\nvariables: {NAP: '3'}\n")
    return folder


def run(folder, *arguments, store="store"):
    return run_benchkit([*arguments, "--store", store], folder)


@pytest.mark.slow
def test_ab_measures_tests_in_turns_with_a_verdict(project, tmp_path):
    arguments = ["ab", "base", "slow", "--pytest", "tests", "-k", "sleep.py::test_sleep", "-n", "3"]
    options = ["--no-null", "--no-report", "--metric", "duration", "--json"]
    done = run(project, *arguments, *options, store=tmp_path / "store")

    rows = json.loads(done.stdout)
    assert [(row["workload"], row["verdict"]) for row in rows] == [
        ("tests/test_sleep.py::test_sleep", "slower")
    ]
    assert rows[0]["ratio"] > 2  # a busy machine adds to both
    assert done.returncode == 1
    runs = Store(tmp_path / "store").runs()
    assert set(runs["workload"]) == {"tests/test_sleep.py::test_sleep"}
    in_order = runs.sort_values("started")
    assert in_order["arm"].tolist() == ["base", "slow", "slow", "base", "base", "slow"]
    assert in_order["block"].tolist() == [0, 0, 1, 1, 2, 2]
    assert runs["experiment"].nunique() == 1
    names = ["list", "runs", "-k", "tests/test_sleep.py::test_sleep", "--json"]
    listed = run(project, *names, store=tmp_path / "store")
    assert len(json.loads(listed.stdout)) == 6


@pytest.mark.slow
def test_nightly_measures_tests_and_reports_those_that_fail(project, tmp_path):
    arguments = ["nightly", "--pytest", "tests", "-k", "test_wrong", "-e", "base"]
    done = run(project, *arguments, "--no-report", "--output", str(tmp_path / "night"))

    assert done.returncode == 3, done.stderr
    runs = Store(project / "store").runs("tests/test_sleep.py::test_wrong")
    assert runs["outcome"].tolist() == ["failed"]
    assert runs["error"].str.startswith("AssertionError: ").all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pytest", "nowhere"], "--pytest nowhere: no such file or folder of tests"),
        (["--pytest", "environments"], "environments: pytest finds no tests there"),
        (
            ["--pytest", "tests", "-k", "missing"],
            "-k 'missing' selects none of 2 variants: see `benchkit list workloads`",
        ),
        (
            ["--pytest", "tests", "-k", "sleep.py::test_sleep", "--virtual", "workers=4"],
            "test_sleep: is a test of pytest: omit --virtual",
        ),
    ],
)
def test_ab_refuses_tests_that_it_cannot_measure(project, monkeypatch, arguments, message):
    monkeypatch.chdir(project)
    done = CliRunner().invoke(main, ["ab", "base", "slow", *arguments, "--store", "store"])

    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"{message}\n")
    assert done.stderr.count("\n") == 1
