"""Resolve and install packages with uv; each call is one process with a one-line error."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from benchkit.captured_process import run_captured
from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment.python import Interpreter, uv_command, venv_python
from benchkit.experiment.environment.requirements import DASK, Requirement, redacted

#: Packages that every arm needs in addition to those of its file.
ALWAYS = ("distributed", "ipykernel")
#: Compiled packages that are never built from source: pip silently builds an old NumPy on a new
#: Python without BLAS, and a job of 4 s then takes 29 s.
COMPILED = ("numpy", "pandas", "scipy", "pyarrow", "h5py", "numba", "scikit-learn", "netcdf4")
#: Upper bounds for an old Dask that cannot be resolved as of its release date: the newest
#: versions with which 2023.4.1 and 2026.8.0 both ran.
CEILINGS = ("numpy<2", "pandas<2.3", "pyarrow<19", "xarray<2025.7")
#: Date limit for packages that the user pins: a day in the future, which is no limit.
ANY_DAY = "2200-01-01"


def resolve(
    requirements: Sequence[Requirement],
    python: Interpreter,
    *,
    folder: Path,
    where: str,
    as_of: date | None = None,
    prefer: Mapping[str, str] | None = None,
) -> tuple[str, date | None]:
    """Resolve requirements to exact versions."""
    source, lock = folder / "requirements.in", folder / "requirements.txt"
    source.write_text("\n".join([*(r.text for r in requirements), *ALWAYS]) + "\n")
    command = [
        *uv_command(), "pip", "compile", "--quiet", "--no-header", "--no-annotate",
        "--no-python-downloads", "--python", str(python.path), "--output-file", str(lock),
        *_binary(requirements), str(source),
    ]  # fmt: skip
    named = {requirement.name for requirement in requirements}
    if as_of is not None:
        dated = ["--exclude-newer", as_of.isoformat()]
        for requirement in requirements:
            if requirement.name not in DASK and any(
                s.operator in ("==", "===", ">=", ">", "~=") for s in requirement.specifier
            ):
                dated += ["--exclude-newer-package", f"{requirement.name}={ANY_DAY}"]
        if not run_tool([*command, *dated]).returncode:
            return lock.read_text(), as_of
        ceilings = folder / "ceilings.txt"
        applied = [line for line in CEILINGS if line.partition("<")[0] not in named]
        ceilings.write_text("\n".join(applied) + "\n")
        command += ["--constraint", str(ceilings)]
    lock.write_text("".join(f"{name}=={v}\n" for name, v in (prefer or {}).items()))
    done = run_tool(command)
    if done.returncode:
        raise failure(where, "cannot be resolved", done.stderr, requirements)
    return lock.read_text(), None


def newest_release(
    requirement: str, python: Interpreter, *, folder: Path, where: str
) -> str | None:
    """Return the newest version of one package that an index has for this Python."""
    source = folder / "newest.in"
    source.write_text(f"{requirement}\n")
    done = run_tool([
        *uv_command(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-deps",
        "--no-python-downloads", "--only-binary", ":all:", "--python", str(python.path),
        str(source),
    ])  # fmt: skip
    if done.returncode == 0:
        return done.stdout.strip().partition("==")[2].split()[0]
    if "No solution found" in done.stderr:
        return None
    raise failure(where, "its releases cannot be listed", done.stderr)


def _binary(requirements: Sequence[Requirement]) -> list[str]:
    if all(requirement.kind == "index" for requirement in requirements):
        return ["--only-binary", ":all:"]
    return [word for name in COMPILED for word in ("--only-binary", name)]


def install(
    lock: str,
    requirements: Sequence[Requirement],
    python: Interpreter,
    *,
    folder: Path,
    prefix: Path,
    where: str,
) -> Path:
    """Make a virtual environment at `prefix` with exactly these packages."""
    pinned = folder / "install.txt"
    pinned.write_text(lock)
    uv = uv_command()
    created = run_tool([*uv, "venv", "--quiet", "--no-python-downloads", "--no-project",
                 "--python", str(python.path), str(prefix)])  # fmt: skip
    if created.returncode:
        raise failure(where, "cannot create a virtual environment", created.stderr, requirements)
    executable = venv_python(prefix)
    refresh = []
    for requirement in requirements:
        if requirement.kind == "path":
            # uv checks only pyproject.toml of a source for changes, and reuses an earlier build.
            refresh += (
                ["--refresh-package", requirement.name] if requirement.name else ["--refresh"]
            )
    done = run_tool([*uv, "pip", "sync", "--quiet", "--no-python-downloads",
                 "--python", str(executable), *_binary(requirements), *refresh,
                 str(pinned)])  # fmt: skip
    if done.returncode:
        raise failure(where, "cannot be installed", done.stderr, requirements)
    return executable


def run_tool(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run one command; Ctrl-C ends it too."""
    unset = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_SYSTEM_PYTHON")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    variables |= {"NO_COLOR": "1", "GIT_TERMINAL_PROMPT": "0"}
    return run_captured(command, env=variables, stdin=subprocess.DEVNULL)


def failure(
    where: str, what: str, problem: str, requirements: Sequence[Requirement] = ()
) -> InvalidEnvironmentError | EnvironmentBuildError:
    """Return the error for the output of a tool, in one line."""
    text = redacted(" ".join(problem.split()), *(r.text for r in requirements))
    text = re.sub(r"^(error|×):? ", "", text).replace(" cause: ", ": ").partition(" hint: ")[0]
    kind = InvalidEnvironmentError if "No solution found" in problem else EnvironmentBuildError
    return kind(f"{where}: {what}: {text[:600] or 'no reason given'}")
