"""The files of a new project work at once."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from helpers.commands import run_benchkit
from helpers.workflow_steps import BENCHKIT, Runner

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


#: A package with code in its root, a workload and a marked test. `PIECES` is a change of code that
#: makes tasks, `NAP` one that waits: only the first is work.
PACKAGE = {
    "pyproject.toml": "[project]\nname = 'pieces'\nversion = '1.0'\n",
    "pieces.py": "import os\n\ndef count():\n    return int(os.environ.get('PIECES', '40'))\n",
    "workloads/parts.py": """
import os
import re
import time
from benchkit import expect, workload


@workload(category="parts")
def spread(client):
    \"\"\"Compute numbers in as many tasks as the package says.\"\"\"
    time.sleep(float(os.environ.get("NAP", "0")))
    numbers = range(int(os.environ.get("PIECES", "40")))
    return sum(client.gather(client.map(abs, numbers, pure=False)))
""",
    "tests/__init__.py": "",
    "tests/test_pieces.py": """
import os
import re
import pytest


@pytest.mark.benchkit
def test_spread(small_client):
    numbers = range(int(os.environ.get("PIECES", "40")))
    small_client.gather(small_client.map(abs, numbers, pure=False))


def test_other():
    raise AssertionError("not measured")
""",
}  # fmt: skip


def write_package(folder, *, tests=True):
    for name, text in PACKAGE.items():
        if tests or not name.startswith("tests"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


def steps_of(folder, workflow):
    content = yaml.safe_load((folder / ".github" / "workflows" / workflow).read_text())
    (job,) = content["jobs"].values()
    return content, job, [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("tests", [True, False, None])
def test_workflows_of_a_project_are_valid(tmp_path, tests):
    actionlint = shutil.which("actionlint", path=str(Path(sys.executable).parent))
    if tests is not None:
        write_package(tmp_path, tests=tests)
    CliRunner().invoke(main, ["init", str(tmp_path)])
    workflows = sorted((tmp_path / ".github" / "workflows").glob("*.yml"))
    done = subprocess.run([actionlint, *workflows], capture_output=True, text=True)

    assert len(workflows) == (1 if tests is None else 2)
    assert (done.returncode, done.stdout) == (0, "")
    assert not any("@PACK" in path.read_text() or "@T" in path.read_text() for path in workflows)


def test_init_of_a_package_keeps_its_workloads_and_measures_its_marked_tests(tmp_path):
    write_package(tmp_path)
    done = CliRunner().invoke(main, ["init", str(tmp_path)])

    assert "benchkit list workloads --workloads workloads" in done.stderr
    assert [path.name for path in (tmp_path / "workloads").iterdir()] == ["parts.py"]
    install, night, _ = steps_of(tmp_path, "benchmark.yml")[2]
    assert install == 'python -m pip install -q "$BENCHKIT_PACKAGE" . pytest'
    selection = "--workloads workloads --pytest tests -k 'tag:benchkit or not ::'"
    assert night == f"benchkit nightly -e two-workers {selection}"
    content, _, scripts = steps_of(tmp_path, "benchmark-pull-request.yml")
    assert content["permissions"] == {"contents": "read"}
    # The workloads import the package where they are listed, too.
    assert scripts[0] == 'python -m pip install -q "$BENCHKIT_PACKAGE" pytest ./head'
    assert scripts[1] == "cp -r head/workloads head/tests ."
    assert selection in scripts[2]


def test_init_of_a_package_without_marked_tests_measures_its_workloads(tmp_path):
    write_package(tmp_path, tests=False)
    CliRunner().invoke(main, ["init", str(tmp_path)])

    install, night, _ = steps_of(tmp_path, "benchmark.yml")[2]
    assert install == 'python -m pip install -q "$BENCHKIT_PACKAGE" .'
    assert night == "benchkit nightly -e two-workers --workloads workloads"
    _, _, scripts = steps_of(tmp_path, "benchmark-pull-request.yml")
    assert scripts[1] == "cp -r head/workloads ."
    assert "--environments head/.github/environments --workloads workloads --metric" in scripts[2]


@pytest.mark.parametrize("name", ["base", "head"])
def test_environments_of_a_pull_request_install_the_code_that_is_checked_out(tmp_path, name):
    from benchkit.experiment.environment.lookup import find_environment

    for folder in ("base", "head"):
        write_package(tmp_path / folder)
        CliRunner().invoke(main, ["init", str(tmp_path / folder)])
    folder = tmp_path / "head" / ".github" / "environments"
    environment = find_environment(name, [folder])

    assert environment.requirements()[0].source == str(tmp_path / name)


@pytest.mark.slow
@pytest.mark.timeout(600)  # starts kernels and clusters
def test_pull_request_is_judged_by_counts_and_not_by_wall_time(tmp_path):
    runner = Runner(tmp_path)
    runner.add_command("bin/benchkit", BENCHKIT)
    for folder in ("base", "head"):
        write_package(tmp_path / folder)
        CliRunner().invoke(main, ["init", str(tmp_path / folder)])
    folder = tmp_path / "head" / ".github" / "environments"
    cluster = "cluster: {n_workers: 1, threads_per_worker: 1, processes: false}\n"
    (folder / "base.yaml").write_text(cluster)  # nothing is installed
    (folder / "head.yaml").write_text(f"{cluster}variables: {{PIECES: '80', NAP: '0.5'}}\n")
    _, job, scripts = steps_of(tmp_path / "head", "benchmark-pull-request.yml")
    _, copy, compare, summary = scripts
    summary_file = tmp_path / "step-summary"

    copied = runner(copy)
    done = runner(compare.replace("-n 5", "-n 2 --no-null"))
    shown = runner(summary, GITHUB_STEP_SUMMARY=str(summary_file))

    assert (copied.returncode, shown.returncode) == (0, 0), copied.stderr + shown.stderr
    assert done.returncode == 1, done.stderr  # more tasks
    text = summary_file.read_text()
    assert re.search(r"Counts: [2-4] worse, 0 better", text), text
    assert "Wall time is not judged" in text
    assert "duration" not in text
    runs = Store(tmp_path / "store").runs()
    assert set(runs["workload"]) == {"parts.spread", "tests/test_pieces.py::test_spread"}
    assert set(runs["outcome"]) == {"ok"}
    assert [step["if"] for step in job["steps"] if step.get("run") == summary] == [
        "always() && hashFiles('out/ab.md') != ''"
    ]


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
