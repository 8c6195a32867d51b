"""The distribution is `dask-benchkit`; the import name and the command are `benchkit`."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from benchkit.errors import MissingExtra, install_command
from benchkit.experiment.environment.from_run import environment_of_run

ROOT = Path(__file__).parent.parent
#: Files that may name an extra to install.
TEXTS = ["benchkit", "docs", "notebooks", "workloads", *ROOT.glob("*.md")]


def test_install_command_names_the_distribution():
    assert install_command("show") == "pip install 'dask-benchkit[show]'"
    error = MissingExtra("github", "PyGithub")
    assert str(error) == ("PyGithub is not installed: run pip install 'dask-benchkit[github]'")


def test_texts_install_no_distribution_named_benchkit():
    done = subprocess.run(
        ["git", "grep", "-nE", r"(install[^\n]*|\"|')\bbenchkit(\[[a-z]|[=><]=)", "--", *TEXTS],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    wrong = [line for line in done.stdout.splitlines() if not re.search(r"dask-benchkit", line)]
    assert wrong == []


def test_rebuilt_environment_omits_benchkit_of_old_and_new_runs():
    attrs = {
        "id": "0",
        "environment_spec": '{"cluster": {}}',
        "packages": '{"benchkit": "0.1.0", "dask": "2026.7.1", "dask-benchkit": "0.1.0"}',
    }

    assert environment_of_run(attrs, "old").packages == ("dask==2026.7.1",)


@pytest.mark.environment
@pytest.mark.slow
def test_wheel_installs_as_dask_benchkit(tmp_path):
    def run(*command):
        done = subprocess.run(
            [str(word) for word in command],
            cwd=tmp_path, capture_output=True, text=True, timeout=240,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    run(sys.executable, "-m", "uv", "build", "--wheel", "--out-dir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run(sys.executable, "-m", "uv", "venv", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "uv", "pip", "install", "--no-deps", "--python", python, wheel)
    # The dependencies of this interpreter, after the wheel.
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")

    assert wheel.name == "dask_benchkit-0.1.0-py3-none-any.whl"
    assert run(python.parent / "benchkit", "--version") == "benchkit, version 0.1.0\n"
    where = "import benchkit; from importlib.metadata import version; "
    where += "print(benchkit.__file__, version('dask-benchkit'))"
    file, version = run(python, "-c", where).split()
    assert Path(file).is_relative_to(site)
    assert version == "0.1.0"
    listed = run(python.parent / "benchkit", "list", "workloads", "-k", "array.basic_sum*")
    assert "array.basic_sum" in listed
    assert "--benchkit-store=DIR" in run(python, "-m", "pytest", "--help")
