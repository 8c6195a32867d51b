"""Find the Python interpreters of this machine, and choose one for an environment."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from packaging.version import Version

from benchkit.captured_process import run_captured
from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment.requirements import python_specifier

#: Variable, default folder and pattern of the interpreters of version managers, which uv does not
#: search.
_MANAGED = (
    ("PYENV_ROOT", "~/.pyenv", "versions/*/bin/python3"),
    ("ASDF_DATA_DIR", "~/.asdf", "installs/python/*/bin/python3"),
    ("MISE_DATA_DIR", "~/.local/share/mise", "installs/python/*/bin/python3"),
)
_SYSTEM = ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_VERSION_CODE = (
    "import platform, sys; print(platform.python_version(), platform.python_implementation())"
)


@dataclass(frozen=True)
class Interpreter:
    """A working Python."""

    path: Path  # Executable
    version: str  # Such as `3.11.7`.


def venv_python(prefix: Path) -> Path:
    """Return the path of Python in a virtual environment."""
    return prefix / "Scripts" / "python.exe" if os.name == "nt" else prefix / "bin" / "python"


def conda_python(prefix: Path) -> Path:
    """Return the path of Python in a conda environment."""
    return prefix / "python.exe" if os.name == "nt" else prefix / "bin" / "python"


def uv_command() -> list[str]:
    """Return the command of the uv that is installed with benchkit."""
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return [os.fsdecode(find_uv_bin())]
    raise EnvironmentBuildError("uv, which builds environments, is not installed: pip install uv")


def choose_python(requested: str | None, where: str = "python") -> Interpreter:
    """Return an interpreter of a version, preferably the running one."""
    own = Interpreter(Path(sys.executable), platform.python_version())
    if requested is None:
        return own
    allowed = python_specifier(requested)
    if allowed.contains(own.version, prereleases=True):
        return own
    # uv takes 2 s when shims of a version manager are on PATH: call it last.
    for interpreters in (_managed_pythons(), find_pythons()):
        for python in interpreters:
            if allowed.contains(python.version, prereleases=True):
                return python
    names = ", ".join(dict.fromkeys(python.version for python in [*find_pythons(), own]))
    raise InvalidEnvironmentError(
        f"{where}: no Python {requested} on this machine: available: {names}; "
        "use an available version, or install it"
    )


@lru_cache(maxsize=1)
def find_pythons() -> list[Interpreter]:
    """Return the interpreters of this machine, the newest first; nothing is downloaded."""
    return _working_pythons([*_python_paths(), *_uv_pythons()])


@lru_cache(maxsize=1)
def _managed_pythons() -> list[Interpreter]:
    return _working_pythons(_python_paths())


def _working_pythons(paths: Sequence[Path]) -> list[Interpreter]:
    """Return the working interpreters at these paths, the newest first."""
    unique: dict[Path, Path] = {}
    for path in paths:
        with suppress(OSError):
            unique.setdefault(path.resolve(), path)
    # Run each: version managers have shims for versions that do not work.
    pythons = [python for path in unique.values() if (python := _interpreter(path))]
    return sorted(pythons, key=lambda python: Version(python.version), reverse=True)


def _uv_pythons() -> list[Path]:
    try:
        options = ("--only-installed", "--no-python-downloads", "--output-format", "json")
        done = run_captured([*uv_command(), "python", "list", *options], timeout=60)
        return [Path(entry["path"]) for entry in json.loads(done.stdout or "[]") if entry["path"]]
    except (OSError, ValueError, EnvironmentBuildError, subprocess.TimeoutExpired):
        return []


def _python_paths() -> list[Path]:
    paths: list[Path] = []
    for variable, default, pattern in _MANAGED:
        root = Path(os.environ.get(variable) or os.path.expanduser(default))
        paths += sorted(root.glob(pattern))
    for folder in _SYSTEM:
        paths += sorted(Path(folder).glob("python3.[0-9]*[0-9]"))
    return paths


@lru_cache(maxsize=64)
def _interpreter(path: Path) -> Interpreter | None:
    try:
        done = run_captured([str(path), "-I", "-c", _VERSION_CODE], timeout=20)
        version, implementation = done.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Interpreter(path, version) if implementation == "CPython" else None
