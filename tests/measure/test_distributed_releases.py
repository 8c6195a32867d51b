"""`benchkit.measure` alone, with old releases of distributed."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import benchkit
from benchkit.store.build.run_from_recording import run_from_recording
from benchkit.store.run import Run
from validation.releases import OLDEST, release_python

WORKLOAD = """
import ctypes
import time
from benchkit.measure import expect, workload
from distributed import Status

def nap(number):
    time.sleep(0.005)
    return number

def pause(dask_worker):
    dask_worker.status = Status.paused  # its memory monitor resumes it

@workload(category="old")
def count(client):
    client.restart()
    client.run(pause, workers=[next(iter(client.nthreads()))])
    futures = client.map(nap, range(299), pure=False)
    return [*futures, client.submit(sum, futures, pure=False)]

def hold_gil(seconds):
    begin = time.perf_counter()
    ctypes.PyDLL(None).usleep(int(1e6 * seconds))  # PyDLL, unlike CDLL, keeps the GIL
    return time.perf_counter() - begin

@workload(category="old")
def held(client):
    begin = time.perf_counter()
    held_s = client.submit(hold_gil, 2.0, pure=False).result()
    return held_s / (time.perf_counter() - begin) / 2

@held.check
def share(result, client):
    return {"share": result}

@count.check
def all_there(result, client):
    expect(sum(client.gather(result)), equals=2 * sum(range(299)))
"""
SCRIPT = """
from benchkit.measure.entrypoint import measure

if __name__ == "__main__":
    cluster = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "512 MiB"}
    for name, level in (("held", "light"), ("count", "full"), ("count", "light")):
        print(
            measure(
                f"old.{name}", workloads=["workloads"], folder="out", cluster=cluster, capture=level
            )
        )
"""

#: A release per half-year. The oldest and one from the middle are always tested, the newest in all
#: other tests; the others take a minute each and run with ``BENCHKIT_TEST_ALL=1``.
RELEASES = (OLDEST, "2024.12.0")
OTHER_RELEASES = ("2023.9.3", "2024.4.2", "2025.5.1", "2025.11.0", "2026.3.0")
if os.environ.get("BENCHKIT_TEST_ALL"):
    RELEASES = tuple(sorted(RELEASES + OTHER_RELEASES))


@pytest.mark.slow
@pytest.mark.environment
@pytest.mark.parametrize("release", RELEASES)
def test_old_release_records_readable_run(tmp_path, release):
    python = release_python(release, tmp_path / "env")
    measure = Path(benchkit.__file__).parent / "measure"
    shutil.copytree(measure, tmp_path / "benchkit" / "measure")
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "old.py").write_text(WORKLOAD)
    (tmp_path / "go.py").write_text(SCRIPT)

    done = subprocess.run(
        [str(python), "go.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()[-3:]
    held, full, light = (Run(run_from_recording(tmp_path / line)) for line in lines)
    share = float(held.tree["share"])
    # While the GIL is held Dask's monitor cannot sample; without that interval the share is 0.01.
    assert held.metrics["gil_contention_mean"] == pytest.approx(share, rel=0.3)
    known = {"memory_peak_worker", "cpu_time", "scheduler_lag_max", "idle_time", "n_transfers"}
    for run in (full, light):
        assert run.outcome == "ok", run.error
        assert run.tree.attrs["distributed"] == release
        assert json.loads(run.tree.attrs["capture_errors"]) == []
        assert run.metrics["n_tasks"] == 300
        assert run.task_groups()["n_tasks"].sum() == 300
        assert int(run.transfers()["count"].sum()) == run.metrics["n_transfers"] >= 1
        assert known <= set(run.metrics)
        assert {"restart", "restart-workers"} & set(run.tree["events"]["topic"].values)
        assert run.metrics["n_workers_lost"] == 0
        events = run.tree["events"].to_dataset()
        messages = events["message"].values[events["topic"].values == "worker-status-change"]
        messages = [json.loads(str(message))["status"] for message in messages]
        assert [status for status in messages if status in ("paused", "running")][-2:] == [
            "paused",
            "running",
        ]
        assert 0 <= run.tree["workers/gil"].max() <= 1
    assert len(full.task_stream()) == 300
    assert "nap" in set(full.profile()["prefix"])
    assert "memory_trimmed" in full.metrics
    assert full.metrics["compute_time"] == pytest.approx(light.metrics["compute_time"], rel=0.5)
