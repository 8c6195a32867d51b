"""Make conda environments: with a conda program, or without one by py-rattler."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError, install_command
from benchkit.experiment.environment import conda_solver
from benchkit.experiment.environment.install import ALWAYS, failure, run_tool
from benchkit.experiment.environment.python import conda_python, uv_command
from benchkit.measure.arguments import list_of
from benchkit.measure.secrets import remember_secrets

_CONDA_TOOLS = ("mamba", "micromamba", "conda", "pixi")


def conda_tool(where: str) -> str:
    """Return the name of the program that makes conda environments."""
    for name in _CONDA_TOOLS:
        if shutil.which(name):
            return name
    if find_spec("rattler"):
        return "py-rattler"
    raise EnvironmentBuildError(
        f"{where}: conda: none of {', '.join(_CONDA_TOOLS)} is on PATH: install one of them, "
        f"run {install_command('conda')}, or use pip `packages:` instead"
    )


def create_conda(file: Path, *, folder: Path, prefix: Path, where: str) -> Path:
    """Make a conda environment at `prefix` from a file."""
    tool = conda_tool(where)
    content = conda_content(file, where)
    named = {re.split(r"[\s=<>!]", d)[0] for d in content["dependencies"] if isinstance(d, str)}
    content["dependencies"] += [name for name in ALWAYS if name not in named]
    derived = folder / "environment.yml"
    derived.write_text(yaml.safe_dump(content))
    executable = conda_python(prefix)
    if tool == "py-rattler":
        commands = _rattler_commands(content, folder, prefix, where)
    elif tool == "pixi":
        project = prefix / "project"
        project.mkdir(parents=True)
        commands = [
            ["pixi", "init", "--import", str(derived), str(project)],
            ["pixi", "install", "--manifest-path", str(project / "pixi.toml")],
        ]
        executable = conda_python(project / ".pixi" / "envs" / "default")
    else:
        kind = ["create"] if tool == "micromamba" else ["env", "create"]
        yes = [] if tool == "conda" else ["--yes"]  # conda needs no --yes; older versions reject it
        commands = [[tool, *kind, *yes, "--quiet", "-p", str(prefix), "-f", str(derived)]]
    for command in commands:
        done = run_tool(command)
        if done.returncode:
            raise failure(where, f"{tool} failed", done.stderr or done.stdout)
    if not executable.exists():
        raise EnvironmentBuildError(
            f"{where}: {tool} installed no Python: add python to {file.name}"
        )
    return executable


def conda_content(file: Path, where: str) -> dict[str, Any]:
    """Return the content of a conda environment file."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidEnvironmentError(f"{where}: {file}: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict) or not isinstance(content.get("dependencies"), list):
        raise InvalidEnvironmentError(f"{where}: {file}: contains no list of `dependencies`")
    remember_secrets(content)  # channels may have a token
    return content


def _rattler_commands(
    content: dict[str, Any], folder: Path, prefix: Path, where: str
) -> list[list[str]]:
    """Return commands that install the conda packages by py-rattler, and those of pip by uv."""
    specs = [entry for entry in content["dependencies"] if isinstance(entry, str)]
    lines = [
        str(line)
        for entry in content["dependencies"]
        if isinstance(entry, dict)
        for line in entry.get("pip") or ()
    ]
    for line in lines:
        if line.startswith(("-", ".", "/")):
            raise InvalidEnvironmentError(
                f"{where}: pip: {line!r}: py-rattler is used, which takes names of packages only: "
                f"install one of {', '.join(_CONDA_TOOLS)}"
            )
    channels = list_of(content.get("channels") or "conda-forge", "channels")
    request = folder / "request.json"
    request.write_text(json.dumps({"channels": channels, "specs": specs, "prefix": str(prefix)}))
    commands = [[sys.executable, str(Path(conda_solver.__file__)), str(request)]]
    if lines:
        python = str(conda_python(prefix))
        commands.append([*uv_command(), "pip", "install", "--quiet", "--python", python, *lines])
    return commands
