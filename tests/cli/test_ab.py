"""`benchkit ab` and `compare`: verdict, page and exit code."""

import json
import re

import pytest
from click.testing import CliRunner
from helpers.commands import run_benchkit

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

WORKLOAD = """import os, time
from benchkit.measure import workload

@workload
def naps(client, scale):
    "Sleep longer in one arm."
    return client.submit(lambda s: time.sleep(s), 0.5 * (1 + float(os.environ.get("NAP", "0"))))

@workload
def even(client, scale):
    "Sleep the same in each arm."
    return client.submit(lambda s: time.sleep(s), 0.5)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two workloads and two environments; one sleeps four times as long."""
    folder = tmp_path_factory.mktemp("ab")
    (folder / "w").mkdir()
    (folder / "w" / "own.py").write_text(WORKLOAD)
    (folder / "e").mkdir()
    # A worker in the measuring process starts at once; its memory depends on the runs before.
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"
    (folder / "e" / "base.yaml").write_text(cluster)
    (folder / "e" / "slow.yaml").write_text("extends: base\nvariables: {NAP: '3'}\n")
    return folder


def ab(folder, *arguments):
    folders = ["--workloads", "w", "--environments", "e", "--store", "store"]
    return run_benchkit(["ab", *folders, *arguments], folder)


@pytest.fixture(scope="module")
def done(folder):
    times = ("--metric", "duration", "--metric", "compute_time")
    return ab(folder, "base", "slow", "-n", "3", *times, "--output", "out")


@pytest.mark.slow
def test_ab_finds_planted_change_only(done, folder):
    assert done.returncode == 1, done.stderr
    slower = [line for line in done.stdout.splitlines() if "slower" in line]
    assert any(line.startswith("own.naps") and "6 + 3" in line for line in slower)
    assert re.search(r"\b[1-3] worse", done.stdout)  # on a busy machine noise can be significant
    rows = json.loads((folder / "out" / "ab.json").read_text())
    ratios = {row["workload"]: row["ratio"] for row in rows if row["metric"] == "duration"}
    assert ratios["own.even"] < 2 < ratios["own.naps"]
    assert "18 runs (3 arms x 2 workloads x 3 blocks)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_ab_report_names_task_group(done, folder):
    page = (folder / "out" / "ab.html").read_text()

    assert "compute in lambda" in page
    assert "NAP" in page
    assert page.count("data-root-id") >= 4  # figures
    assert page.count("<svg") >= len(("own.naps", "own.even"))  # the interval of each row
    markdown = (folder / "out" / "ab.md").read_text()
    assert "| own.naps | duration |" in markdown
    rows = json.loads((folder / "out" / "ab.json").read_text())
    assert {row["verdict"] for row in rows if row["workload"] == "own.naps"} >= {"slower"}


@pytest.mark.slow
def test_compare_selects_stored_runs(done, folder):
    selection = [
        "--baseline",
        "arm:base",
        "--contender",
        "arm:slow",
        "--store",
        str(folder / "store"),
    ]
    found = CliRunner().invoke(main, ["compare", *selection, "--json"])

    rows = json.loads(found.stdout)
    assert found.exit_code == 1
    durations = {row["workload"]: row for row in rows if row["metric"] == "duration"}
    assert durations.keys() == {"own.naps", "own.even"}
    assert durations["own.naps"]["verdict"] == "slower"
    # Three runs per arm: on a busy machine they differ by several per cent.
    assert durations["own.even"]["ratio"] < 2 < durations["own.naps"]["ratio"]
    missing = [*selection[:1], "env:missing", *selection[2:]]
    empty = CliRunner().invoke(main, ["compare", *missing, "--json"])
    assert empty.exit_code == 4
    assert len(empty.stderr.strip().splitlines()) == 1


def test_compare_exit_code_of_a_contender_that_fails_more(tmp_path):
    store = Store(tmp_path)
    store.create()
    for variant, outcomes in {"A": ["ok"] * 3, "B": ["ok", "ok", "failed"]}.items():
        for seed, outcome in enumerate(outcomes):
            facts = {"outcome": outcome, "environment": variant, "groups": outcome == "ok"}
            store.add(make_run(seed=seed, **facts))

    found = CliRunner().invoke(
        main, ["compare", "--baseline", "env:A", "--contender", "env:B", "--store", str(tmp_path)]
    )

    assert found.exit_code == 1
    assert "▲ failed" in found.stdout
    assert "0 worse, 0 better" in found.stdout
    assert "3 + 2, failed 0 + 1" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["base"], "an A/B needs a baseline and another environment"),
        (["base", "slo"], "no environment named 'slo': did you mean 'slow'?"),
        (["base", "base"], "two arms have the same name"),
        (["base", "slow", "--budget", "soon"], "--budget 'soon': must be a time"),
        (["base", "slow", "--metric", "durations"], "did you mean 'duration'?"),
        (["base", "slow", "--adaptive", "-n", "3"], "--adaptive chooses the number of blocks"),
        (["base", "slow", "--null-only"], "--null-only compares one environment"),
        (["--resume", "latest"], "no store there"),
    ],
)
def test_ab_rejects_arguments_before_writing(folder, tmp_path, arguments, message):
    folders = ["--workloads", str(folder / "w"), "--environments", str(folder / "e")]
    store = tmp_path / "store"
    found = CliRunner().invoke(main, ["ab", *folders, "--store", str(store), *arguments])

    assert found.exit_code == 2
    (line,) = found.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not store.exists()
