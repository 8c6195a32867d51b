import json

import pytest
from click.testing import CliRunner
from helpers.commands import run_benchkit
from helpers.git_package import commit_package

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store

#: Placement on the busiest worker: a regression of the scheduler.
PLANTED = """
from distributed.scheduler import SchedulerState
SchedulerState.worker_objective = lambda self, ts, ws: (-len(ws.processing), -ws.nbytes)
"""
N_COMMITS, SLOW = 4, 2
TREE = "graph.tree[n=256,seconds=0.05,workers=4]"
STENCIL = "graph.stencil[n=40,seconds=0.05,workers=4]"


def benchkit(folder, *words, store="store"):
    return run_benchkit([*words, "--store", store], folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a store of simulated runs."""
    folder = tmp_path_factory.mktemp("simulate")
    done = benchkit(
        folder, "run", "--virtual", "workers=3,threads=2", "graph.tree[workers=0]", "--set", "n=16",
        "-n", "2", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_run_virtual_stores_simulated_runs(folder):
    runs = Store(folder / "store").runs()

    assert runs["simulated"].tolist() == [1, 1]
    assert runs["n_workers"].tolist() == [3, 3]
    assert runs["n_threads"].tolist() == [6, 6]
    assert runs["workload"].tolist() == ["graph.tree[n=16,seconds=0.05,workers=0]"] * 2


def test_list_runs_marks_simulated_runs(folder):
    done = benchkit(folder, "list", "runs")

    assert done.stdout.count("ok (simulated)") == 2


def test_simulate_prints_a_row_per_cluster(folder):
    done = benchkit(
        folder, "simulate", "graph.tree", "--workers", "2,4", "--draws", "1", "--json",
        "--figure", "new/tree.html", store="simulate",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["workers"] for row in rows] == [2, 4]
    assert rows[0]["seconds"] > 1.8 * rows[1]["seconds"]
    assert "simulated: duration" in (folder / "new" / "tree.html").read_text()


def test_simulate_reads_a_workflow_of_another_system(folder):
    names = ["read_ID1", "read_ID2"]
    given = [{"name": name, "id": name, "parents": [], "children": []} for name in names]
    ran = [{"id": name, "runtimeInSeconds": 3} for name in names]
    execution = {"makespanInSeconds": 9, "executedAt": "2026-01-01", "tasks": ran}
    content = {
        "name": "own", "schemaVersion": "1.5", "runtimeSystem": {"name": "Own", "version": "1"},
        "workflow": {"specification": {"tasks": given}, "execution": execution},
    }  # fmt: skip
    (folder / "own.json").write_text(json.dumps(content))

    done = benchkit(
        folder, "simulate", "own.json", "--workers", "1,2", "--draws", "1", "--json", store="own"
    )

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [round(row["seconds"]) for row in rows] == [6, 3]
    assert rows[0]["note"].startswith("Own took 9 s on its own machines; no files are listed")
    assert Store(folder / "own").runs()["workload"].tolist() == ["wfformat.own"] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulate", "none.json"], "none.json: No such file or directory"),
        (["simulate", "graph.none"], "no graph named 'none': known are all_to_all"),
        (["simulate", "graph.tree", "--workers", "2,x"], "--workers '2,x': must be numbers"),
        (["run", "--virtual", "workers=0", TREE], "--virtual: workers=0: must be a whole number"),
        (["run", "--virtual", "workers=x", TREE], "--virtual 'workers=x': must be a whole number"),
        (["run", "--virtual", "memory=much", TREE], "--virtual 'memory=much': must be a size"),
        (["run", "--virtual", "latency=x", TREE], "--virtual 'latency=x': must be a number"),
        (["run", "--virtual", "workers=2,workers=3", TREE], "workers is given twice"),
        (["run", "--virtual", "worker=5", TREE], "--virtual: no constant 'worker'"),
        (["run", "--virtual", "workers=5", "sched.tree"], "the durations of its tasks are unknown"),
    ],
)
def test_wrong_arguments_give_one_line(folder, words, message):
    done = CliRunner().invoke(main, [*words, "--store", str(folder / "store")])

    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(Store(folder / "store").runs(workload="sched.tree")) == 0


@pytest.mark.slow
def test_ab_virtual_finds_the_effect_of_a_setting(folder):
    (folder / "e").mkdir()
    (folder / "e" / "plain.yaml").write_text("description: defaults\n")
    (folder / "e" / "unqueued.yaml").write_text(
        "dask: {distributed: {scheduler: {worker-saturation: .inf}}}\n"
    )

    done = benchkit(
        folder, "ab", "plain", "unqueued", "graph.pipelines[workers=4]", "--set", "n=100",
        "-n", "3", "--virtual", "workers=4", "--environments", "e", "--metric", "memory_peak",
        "--no-report", "--json", store="ab",
    )  # fmt: skip

    assert done.returncode == 1, done.stderr  # more memory is worse
    name = "graph.pipelines[n=100,seconds=0.05,workers=4]"
    assert f"schedules: 0 of 3 are the same in all arms; changed: {name}" in done.stderr
    rows = {row["metric"]: row for row in json.loads(done.stdout)}
    assert rows["memory_peak"]["verdict"] == "more"
    assert rows["memory_peak"]["ratio"] > 1.005  # most memory is that of the processes
    assert rows["run_transfers"]["verdict"] == "less"  # a finding about what the runs consist of


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.timeout(600)
def test_bisect_virtual_finds_a_planted_schedule(tmp_path):
    for name in ("e", "naplib"):
        (tmp_path / name).mkdir()
    (tmp_path / "e" / "plain.yaml").write_text("packages: [dask, distributed]\n")
    # Imports the package at the start of Python. Debian's Python has a `sitecustomize` of its own.
    (tmp_path / "naplib" / "naplib.pth").write_text("import naplib\n")
    shas = []
    for number in range(N_COMMITS):
        code = f"COMMIT = {number}\n" + (PLANTED if number >= SLOW else "")
        shas.append(commit_package(tmp_path / "naplib", code, f"commit {number}"))

    done = benchkit(
        tmp_path, "bisect", STENCIL, "--virtual", "workers=4", "--git", "naplib",
        "--good", shas[0], "--bad", "main", "-e", "plain", "--environments", "e",
        "--metric", "schedule", "--json",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows[0]["first_bad"] == shas[SLOW][:10]
    runs = Store(tmp_path / "store").runs()
    assert len(runs) == 2 * (1 + 2)  # the ends, then log2(4) builds, each with the good end
