"""Steps of the workflow files, and a folder in which their scripts run as on a hosted runner."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))

#: Writes its words to the file `calls`. `python -m venv` makes a folder with a copy of itself.
RECORDED = """#!{python}
import json, os, shutil, sys
words = [os.path.relpath(sys.argv[0]), *sys.argv[1:]]
open("calls", "a").write(json.dumps(words) + chr(10))
if words[1:3] == ["-m", "venv"]:
    os.makedirs(words[3] + "/bin", exist_ok=True)
    shutil.copy(sys.argv[0], words[3] + "/bin/python")
"""
#: Runs benchkit of this checkout, with one short workload in the place of a profile.
BENCHKIT = f"""#!{sys.executable}
import json, os, sys
words = sys.argv[1:]
open(os.environ["CALLS"], "a").write(json.dumps(["benchkit", *words]) + chr(10))
if "profile:quick" in words:
    place = words.index("-k")
    words[place : place + 2] = ["sched.task_throughput[n=1000]", "-n", "1", "--no-null"]
os.environ["PYTHONPATH"] = {str(ROOT)!r}
os.execv(sys.executable, [sys.executable, "-m", "benchkit", *words])
"""


def read(path: Path) -> dict[str, Any]:
    """Return the content of a workflow file."""
    # YAML 1.1 reads the key `on` as true.
    return {("on" if k is True else k): v for k, v in yaml.safe_load(path.read_text()).items()}


def steps(path: Path) -> list[dict[str, Any]]:
    """Return the steps of all jobs of a workflow file."""
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def scripts(workflow: str) -> list[tuple[str, str]]:
    """Return the job and the name, or else the script, of each step that has a script."""
    return [
        (job, step.get("name", step["run"]))
        for job, content in read(FOLDER / f"{workflow}.yml")["jobs"].items()
        for step in content["steps"]
        if "run" in step
    ]


def script(workflow: str, job: str, part: str) -> str:
    """Return the shell script of the step whose name, or else script, starts with `part`."""
    (found,) = [
        step["run"]
        for step in read(FOLDER / f"{workflow}.yml")["jobs"][job]["steps"]
        if "run" in step and step.get("name", step["run"]).startswith(part)
    ]
    return found


def variables(workflow: str, job: str, part: str, **context: str) -> dict[str, str]:
    """Return the variables of that step; `context` has the values of ``github.NAME``."""
    (found,) = [
        step.get("env", {})
        for step in read(FOLDER / f"{workflow}.yml")["jobs"][job]["steps"]
        if "run" in step and step.get("name", step["run"]).startswith(part)
    ]
    return {
        name: re.sub(r"\$\{\{ github\.(\w+) }}", lambda found: context[found[1]], str(value))
        for name, value in found.items()
    }


class Runner:
    """Runs scripts as a hosted runner does, in a folder with ``.venv/bin/benchkit``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder, folder / "github-output"
        self.output.touch()
        self.add_command(".venv/bin/benchkit", BENCHKIT)

    def add_command(self, name: str, text: str) -> None:
        """Write a program; those in ``bin`` are found before all others."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{python}", sys.executable))
        path.chmod(0o755)

    def __call__(self, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = Path(tempfile.mkstemp(dir=self.folder, suffix=".sh")[1])
        path.write_text(text)
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
            "GITHUB_OUTPUT": str(self.output), "GITHUB_RUN_ID": "7", "BENCHKIT_STORE": "store",
            "GITHUB_REPOSITORY": "dask/speed", "CALLS": str(self.folder / "calls"), **variables,
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-e", str(path)],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        path.unlink()
        return done

    def calls(self) -> list[list[str]]:
        """Return the words of each recorded command."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()]
