"""The measured side alone, in the oldest environment that benchkit promises to measure."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchkit
from benchkit.store.run import Run, run_from_recording

WORKLOAD = """
from benchkit.measure import expect, workload

@workload(category="old")
def count(client):
    return client.map(abs, range(300), pure=False)

@count.check
def all_there(result, client):
    expect(sum(client.gather(result)), equals=sum(range(300)))
"""
SCRIPT = """
from benchkit.measure.session import measure

if __name__ == "__main__":
    cluster = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "512 MiB"}
    print(measure("old.count", workloads=["workloads"], folder="out", cluster=cluster))
"""


def uv(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "uv", *arguments], capture_output=True, text=True, timeout=240
    )
    return done


@pytest.mark.slow
@pytest.mark.environment
def test_distributed_2023_4_1_records_a_run_that_todays_side_reads(tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    # Python 3.10 where the machine has one, else the oldest that is there: this interpreter's.
    if uv("venv", "-q", "--python", "3.10", str(tmp_path / "env")).returncode:
        made = uv("venv", "-q", "--python", sys.executable, str(tmp_path / "env"))
        assert made.returncode == 0, made.stderr
    packages = ["dask==2023.4.1", "distributed==2023.4.1", "numpy<2"]
    built = uv("pip", "install", "-q", "--python", str(python), *packages)
    assert built.returncode == 0, built.stderr
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
        timeout=200,
    )

    assert done.returncode == 0, done.stderr
    run = Run(run_from_recording(tmp_path / done.stdout.split()[-1]))
    assert run.outcome == "ok", run.error
    assert run.tree.attrs["distributed"] == "2023.4.1"
    assert run.metrics["n_tasks"] == 300
    assert len(run.task_stream()) == 300
