"""Outcomes of runs, on real clusters."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from distributed import get_worker

from benchkit.measure import workload
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.errors import InvalidClusterError, WrongAnswer
from benchkit.measure.recording import Recording
from benchkit.measure.runner import execute
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run

SMALL = ClusterSpec(
    kwargs={"n_workers": 2, "threads_per_worker": 1, "memory_limit": "512 MiB"},
)


def measure(declared, folder, **options):
    variant = declared.variants()[0]
    return Run(run_from_recording(execute(variant, SMALL, folder=folder, **options)))


def test_ok_run_has_groups_and_metrics(tmp_path):
    @workload(category="t")
    def fine(client):
        return client.map(lambda x: x + 1, range(50), pure=False)

    @fine.prepare
    def made(client):
        time.sleep(0.2)

    @fine.check
    def right(result, client):
        time.sleep(0.3)
        if sum(client.gather(result)) != sum(range(1, 51)):
            raise WrongAnswer("sum")

    run = measure(fine, tmp_path)

    assert run.outcome == "ok", run.error
    assert {"workers", "scheduler", "task_groups", "tasks"} <= set(run.tree.children)
    assert run.metrics["n_tasks"] == 50
    assert run.metrics["duration"] > 0
    assert run.metrics["memory_peak_worker"] > 2**20
    assert len(run.task_stream()) == 50
    assert run.task_groups()["n_tasks"].sum() == 50
    outside = run.metadata()[["prepare (s)", "check (s)"]].to_list()
    assert outside[0] >= 0.2
    assert outside[1] >= 0.3


class Cycle:
    """An object that only the garbage collector removes."""

    def __init__(self):
        self.cycle = self


def test_garbage_is_collected_before_clock(tmp_path):
    @workload(category="t")
    def tidy(client, prepared):
        return prepared() is not None

    @tidy.prepare
    def made(client):
        gc.disable()
        return weakref.ref(Cycle())

    @tidy.check
    def right(result):
        if result:
            raise WrongAnswer("garbage of the prepare step was not collected")

    @tidy.cleanup
    def again():
        gc.enable()

    run = measure(tidy, tmp_path)

    assert run.outcome == "ok", run.error


@pytest.mark.parametrize(
    ("prepares", "outcome"), [(False, "infrastructure"), (True, "lost_workers")]
)
def test_worker_lost_before_the_workload(tmp_path, monkeypatch, prepares, outcome):
    """Only a workload that used the cluster can be the cause."""
    package = tmp_path / "ends_workers.py"
    package.write_text(
        "import multiprocessing, os\n"
        "if multiprocessing.parent_process() is not None:\n"
        "    os._exit(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    @workload(category="t", requires=["ends_workers"])
    def unlucky(client):
        return 1

    if prepares:

        @unlucky.prepare
        def made(client):
            return client.submit(sum, [1, 2]).result()

    run = measure(unlucky, tmp_path / "runs")

    assert (run.outcome, run.tree.attrs["phase"]) == (outcome, "warm-up"), run.error


def test_wrong_answer_outcome(tmp_path):
    @workload(category="t")
    def wrong(client):
        return 1

    @wrong.check
    def right(result):
        raise WrongAnswer("1, expected 2")

    run = measure(wrong, tmp_path)

    assert (run.outcome, run.error) == ("wrong_answer", "WrongAnswer: 1, expected 2")


def test_failed_task_keeps_traceback(tmp_path):
    @workload(category="t")
    def raising(client):
        return client.submit(lambda: 1 / 0)

    run = measure(raising, tmp_path)

    assert run.outcome == "failed"
    assert "ZeroDivisionError" in run.error
    assert run.tree["errors"]["exception"].size == 1


@pytest.mark.slow
def test_timeout_keeps_call_stacks(tmp_path):
    @workload(category="t", deadline_s=3)
    def hanging(client):
        return client.submit(time.sleep, 600, key=("hung", 0))  # a tuple, as in collections

    run = measure(hanging, tmp_path)

    assert run.outcome == "timeout"
    assert "deadline of 3 s; tasks: 1 on workers" in run.error
    stacks = json.loads(run.tree.attrs["evidence"])["stacks"]
    assert any("('hung', 0)" in tasks for tasks in stacks["tasks"].values())
    assert any(
        "Dask-Default-Threads" in name for names in stacks["workers"].values() for name in names
    )


@pytest.mark.slow
def test_timeout_reports_tasks_without_allowed_worker(tmp_path):
    @workload(category="t", deadline_s=3)
    def homeless(client):
        return client.map(str, range(5), workers=["tcp://127.0.0.1:1"])

    run = measure(homeless, tmp_path)

    assert run.outcome == "timeout"
    assert "tasks: 5 that no worker may run" in run.error


@pytest.mark.slow
def test_killed_worker_outcome_is_lost_workers(tmp_path):
    @workload(category="t")
    def deadly(client):
        return client.submit(lambda: os._exit(1) if get_worker() else None)

    run = measure(deadly, tmp_path)

    assert run.outcome == "lost_workers", run.error
    assert run.metrics["n_workers_lost"] >= 1


@pytest.mark.slow
def test_worker_over_memory_limit_is_lost_with_peak(tmp_path):
    @workload(category="t")
    def growing(client):
        def grow():
            held = []
            while True:
                held.append(np.ones(2**21))  # 16 MiB
                time.sleep(0.01)

        return client.submit(grow)

    @growing.prepare
    def _(client):
        client.run_on_scheduler(
            lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0)
        )

    run = measure(growing, tmp_path)

    assert run.outcome == "lost_workers", run.error
    assert run.metrics["n_workers_lost"] == 1
    events = run.tree["events"].to_dataset()
    killed = events["topic"].values.tolist().index("worker-restart-memory")
    rss = json.loads(str(events["message"].values[killed]))["rss"]
    limit = run.tree["workers/memory_limit"].values[0]
    assert rss > 0.9 * limit, "the nanny kills at 0.95"
    assert run.metrics["memory_peak_worker"] >= rss
    assert run.tree["errors/exception"].values[0].startswith("KilledWorker")


def test_failed_cluster_start_is_infrastructure(tmp_path, monkeypatch):
    (tmp_path / "broken_clusters.py").write_text(
        "def NoQuotaCluster(n_workers=1):\n    raise RuntimeError('no quota left\\nask again')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    @workload(category="t")
    def fine():
        return 1

    path = execute(
        fine.variants()[0], ClusterSpec("broken_clusters.NoQuotaCluster"), folder=tmp_path
    )
    run = Run(run_from_recording(path))

    assert (run.outcome, run.tree.attrs["phase"]) == ("infrastructure", "open")
    assert "broken_clusters.NoQuotaCluster did not start: RuntimeError: no quota left" in run.error
    assert run.metrics == {}


@pytest.mark.slow
def test_address_without_scheduler_is_infrastructure(tmp_path):
    @workload(category="t")
    def fine():
        return 1

    spec = ClusterSpec(address="tcp://127.0.0.1:9")
    run = Run(run_from_recording(execute(fine.variants()[0], spec, folder=tmp_path)))

    assert run.outcome == "infrastructure"
    assert "no scheduler responds at 'tcp://127.0.0.1:9'" in run.error


KILLED = """
import time
import weakref
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.runner import execute
from benchkit.measure import workload

@workload(category="t")
def endless(client):
    return client.map(time.sleep, [0.05] * 10_000, pure=False)

if __name__ == "__main__":
    spec = ClusterSpec(kwargs={"n_workers": 1, "threads_per_worker": 1, "memory_limit": "512 MiB"})
    execute(endless.variants()[0], spec, folder="out")
"""


def test_killed_process_leaves_run_with_drained_data(tmp_path):
    (tmp_path / "go.py").write_text(KILLED)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "go.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        drained = 0
        end = time.monotonic() + 200
        while drained < 20 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
            for path in (tmp_path / "out").glob("*/000001.json"):
                drained = Recording.read(path.parent).blob("keys").count(b"\n")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    (path,) = (tmp_path / "out").glob("*.recording")
    run = Run(run_from_recording(path))

    assert (run.outcome, run.error) == ("infrastructure", "the measuring process was killed")
    assert run.tree.attrs["complete"] == 0
    assert run.tree["tasks"].sizes["task"] >= drained >= 20
    assert run.metrics["n_tasks"] == run.tree["tasks"].sizes["task"]
    assert run.metrics["duration"] > 0


def test_missing_package_skips_run(tmp_path):
    @workload(category="t", requires=["no_such_package"])
    def lacking(client):
        return 1

    run = measure(lacking, tmp_path)

    assert run.outcome == "skipped"
    assert "pip install no_such_package" in run.error


def test_unknown_cluster_option_is_rejected_before_start(tmp_path):
    spec = ClusterSpec(kwargs={"n_wrkers": 2})

    with pytest.raises(InvalidClusterError, match="did you mean 'n_workers'"):
        spec.check()


def test_run_has_owner_of_workload(tmp_path):
    @workload(category="t", owner="@dask/array")
    def owned(client):
        return client.submit(int, 1)

    run = measure(owned, tmp_path)

    assert run.outcome == "ok"
    assert run.record["owner"] == run.tree.attrs["owner"] == "@dask/array"


IMPORTS = """
import sys
from pathlib import Path
from benchkit.measure import workload
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.runner import execute

@workload(category="t")
def uses_xarray(client):
    loaded = [name in sys.modules for name in ("xarray", "dask.dataframe")]
    loaded += client.submit(lambda: ["xarray" in sys.modules, "pandas" in sys.modules]).result()
    import xarray
    Path(sys.argv[1], "loaded").write_text(str(loaded))

if __name__ == "__main__":
    spec = ClusterSpec(kwargs={"n_workers": 1, "threads_per_worker": 1, "memory_limit": "1 GiB"})
    execute(uses_xarray.variants()[0], spec, folder=Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_packages_that_workload_imports_are_loaded_before_clock(tmp_path):
    script = tmp_path / "imports.py"
    script.write_text(IMPORTS)
    subprocess.run([sys.executable, str(script), str(tmp_path)], timeout=280, check=True)

    # xarray on the client and the worker, and pandas, which it imports; no other large package
    assert (tmp_path / "loaded").read_text() == "[True, False, True, True]"
