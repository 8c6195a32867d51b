"""The files of a new project work at once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from helpers.commands import run_benchkit

from benchkit.cli.main import benchkit as main
from benchkit.store.store import Store

FILES = [
    ".github/workflows/benchmark.yml",
    "environments/two-workers.yaml",
    "notebooks/explore.ipynb",
    "workloads/own.py",
]


def test_init_writes_all_files_and_names_the_next_commands(tmp_path):
    done = CliRunner().invoke(main, ["init", str(tmp_path / "new")])

    assert done.exit_code == 0
    found = [p for p in (tmp_path / "new").rglob("*") if p.is_file()]
    assert sorted(str(p.relative_to(tmp_path / "new")) for p in found) == FILES
    assert "benchkit run own.sums" in done.stderr


def test_init_keeps_existing_files(tmp_path):
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "own.py").write_text("mine")
    done = CliRunner().invoke(main, ["init", str(tmp_path), "--json"])

    (row,) = json.loads(done.stdout)
    assert row["kept"] == [str(tmp_path / "workloads" / "own.py")]
    assert (tmp_path / "workloads" / "own.py").read_text() == "mine"


def test_init_names_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["init", str(tmp_path / "file" / "x")])

    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


def test_workflow_of_a_project_is_valid(tmp_path):
    actionlint = shutil.which("actionlint", path=str(Path(sys.executable).parent))
    CliRunner().invoke(main, ["init", str(tmp_path)])
    workflow = tmp_path / ".github" / "workflows" / "benchmark.yml"
    done = subprocess.run([actionlint, workflow], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_workflow_steps_of_a_project_measure_and_write_a_site(tmp_path):
    CliRunner().invoke(main, ["init", str(tmp_path)])
    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "benchmark.yml").read_text())
    (job,) = workflow["jobs"].values()
    install, *scripts = [step["run"] for step in job["steps"] if "run" in step]
    command = tmp_path / "bin" / "benchkit"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m benchkit "$@"\n')
    command.chmod(0o755)
    variables = {**os.environ, **job["env"], "PATH": f"{command.parent}:{os.environ['PATH']}"}

    done = [
        subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tmp_path, env=variables, capture_output=True, text=True,
        )
        for script in scripts
    ]  # fmt: skip

    assert install == 'python -m pip install -q "$BENCHKIT_PACKAGE"'
    assert "vars.BENCHKIT_PACKAGE" in job["env"]["BENCHKIT_PACKAGE"]
    assert [run.returncode for run in done] == [0, 0], [run.stderr for run in done]
    runs = Store(tmp_path / "benchkit-store").runs()
    assert sorted(runs["workload"]) == ["own.sums[method=batched]", "own.sums[method=single]"]
    assert set(runs["outcome"]) == {"ok"}
    assert set(runs["environment"]) == {"two-workers"}
    assert set(runs["host"]) == {"hosted-runner"}
    assert (tmp_path / "site" / "index.html").exists()


def test_workflow_of_a_project_keeps_the_store_of_a_night_with_a_regression(tmp_path):
    CliRunner().invoke(main, ["init", str(tmp_path)])
    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "benchmark.yml").read_text())
    steps = {
        step.get("uses", "").partition("@")[0]: step
        for step in workflow["jobs"]["nightly"]["steps"]
    }

    # `actions/cache` saves after a successful job only.
    assert "actions/cache" not in steps
    assert steps["actions/cache/save"]["if"] == "always()"
    assert steps["actions/cache/save"]["with"]["path"] == "benchkit-store"


@pytest.mark.slow
def test_project_measures_its_variants_at_once(tmp_path):
    CliRunner().invoke(main, ["init", str(tmp_path)])
    command = ["ab", "two-workers", "own.sums", "-n", "1"]
    options = ["--sweep", "param.method=single,batched", "-q", "--no-null", "--no-report"]
    done = run_benchkit([*command, *options], tmp_path)

    assert done.returncode == 4, done.stdout + done.stderr  # a pair gives no verdict
    runs = Store(tmp_path / "benchkit-store").runs()
    assert set(runs["outcome"]) == {"ok"}
    assert set(runs["workload"]) == {"own.sums[method=single]", "own.sums[method=batched]"}
