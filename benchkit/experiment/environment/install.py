"""Call uv, or a conda, to resolve and install; every call is one process and one error line.

Knows command lines. Does not know where an environment is kept, nor when it is whole.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import yaml

from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment.python import Interpreter, uv_command
from benchkit.experiment.environment.requirements import DASK, Requirement, redacted

__all__ = ["conda_tool", "create_conda", "install", "newest_release", "resolve"]

#: What every arm needs besides what its file names.
ALWAYS = ("distributed", "ipykernel")
#: Compiled packages that are never built from source: an old NumPy on a new Python is built
#: without BLAS, without a word, and then takes 29 s for what takes 4.
COMPILED = ("numpy", "pandas", "scipy", "pyarrow", "h5py", "numba", "scikit-learn", "netcdf4")
#: What an old Dask gets when it cannot be resolved as of its own day: the newest with which
#: 2023.4.1 and 2026.8.0 both ran.
CEILINGS = ("numpy<2", "pandas<2.3", "pyarrow<19", "xarray<2025.7")
#: Pins of the reader's own are exempt from the day of an old release.
ANY_DAY = "2200-01-01"
_CONDAS = ("mamba", "micromamba", "conda", "pixi")


def resolve(
    requirements: Sequence[Requirement],
    python: Interpreter,
    *,
    folder: Path,
    where: str,
    as_of: date | None = None,
    prefer: Mapping[str, str] | None = None,
) -> tuple[str, date | None]:
    """Return all packages with their versions, a line each, and the day that they are of.

    Parameters
    ----------
    requirements : sequence of Requirement
        What is wanted; `ALWAYS` comes on top.
    python : Interpreter
        What it is for.
    folder : path
        A scratch folder.
    where : str
        Environment, or file and line, for messages.
    as_of : date, optional
        Only what was there on that day. If that does not go together with what is wanted (or the
        index does not tell days), today's packages below `CEILINGS`.
    prefer : mapping of str to str, optional
        Versions to take where nothing speaks against them, if no day is given: an arm that
        differs from another in Dask alone says more than one that differs in NumPy too.

    Raises
    ------
    InvalidEnvironmentError
        There is no solution; the message says why.
    EnvironmentBuildError
        The index does not answer.
    """
    wanted, lock = folder / "requirements.in", folder / "requirements.txt"
    wanted.write_text("\n".join([*(r.text for r in requirements), *ALWAYS]) + "\n")
    command = [
        *uv_command(), "pip", "compile", "--quiet", "--no-header", "--no-annotate",
        "--no-python-downloads", "--python", str(python.path), "--output-file", str(lock),
        *_binary(requirements), str(wanted),
    ]  # fmt: skip
    named = {requirement.name for requirement in requirements}
    if as_of is not None:
        dated = ["--exclude-newer", as_of.isoformat()]
        for requirement in requirements:
            if requirement.name not in DASK and any(
                s.operator in ("==", "===", ">=", ">", "~=") for s in requirement.specifier
            ):
                dated += ["--exclude-newer-package", f"{requirement.name}={ANY_DAY}"]
        if not _run([*command, *dated]).returncode:
            return lock.read_text(), as_of
        ceilings = folder / "ceilings.txt"
        kept = [line for line in CEILINGS if line.partition("<")[0] not in named]
        ceilings.write_text("\n".join(kept) + "\n")
        command += ["--constraint", str(ceilings)]
    lock.write_text("".join(f"{name}=={v}\n" for name, v in (prefer or {}).items()))
    done = _run(command)
    if done.returncode:
        raise _failure(where, "cannot be resolved", done.stderr, requirements)
    return lock.read_text(), None


def newest_release(wanted: str, python: Interpreter, *, folder: Path, where: str) -> str | None:
    """Return the newest version of one package that an index has for this Python.

    Parameters
    ----------
    wanted : str
        A requirement line, such as ``dask>=2024.1.0,<2024.5.0``.
    python : Interpreter
        What it is for.
    folder : path
        A scratch folder.
    where : str
        What asks, for messages.

    Returns
    -------
    str or None
        None if there is none.

    Raises
    ------
    EnvironmentBuildError
        The index does not answer.
    """
    asked = folder / "newest.in"
    asked.write_text(f"{wanted}\n")
    done = _run([
        *uv_command(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-deps",
        "--no-python-downloads", "--only-binary", ":all:", "--python", str(python.path), str(asked),
    ])  # fmt: skip
    if done.returncode == 0:
        return done.stdout.strip().partition("==")[2].split()[0]
    if "No solution found" in done.stderr:
        return None
    raise _failure(where, "its releases cannot be listed", done.stderr)


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
    """Make a virtual environment at `prefix` with exactly these packages.

    Returns
    -------
    path
        Its Python.

    Raises
    ------
    EnvironmentBuildError
        A download or the building of a source failed.
    """
    pinned = folder / "install.txt"
    pinned.write_text(lock)
    uv = uv_command()
    made = _run([*uv, "venv", "--quiet", "--no-python-downloads", "--no-project",
                 "--python", str(python.path), str(prefix)])  # fmt: skip
    if made.returncode:
        raise _failure(where, "no virtual environment can be made", made.stderr, requirements)
    inside = prefix / "bin" / "python"
    refresh = []
    for requirement in requirements:
        if requirement.kind == "path":
            # uv looks at a source's pyproject.toml only, and installs what it built before.
            refresh += (
                ["--refresh-package", requirement.name] if requirement.name else ["--refresh"]
            )
    done = _run([*uv, "pip", "sync", "--quiet", "--no-python-downloads", "--python", str(inside),
                 *_binary(requirements), *refresh, str(pinned)])  # fmt: skip
    if done.returncode:
        raise _failure(where, "cannot be installed", done.stderr, requirements)
    return inside


def conda_tool(where: str) -> str:
    """Return the conda of this machine.

    Raises
    ------
    EnvironmentBuildError
        There is none.
    """
    for name in _CONDAS:
        if shutil.which(name):
            return name
    raise EnvironmentBuildError(
        f"{where}: conda: none of {', '.join(_CONDAS)} is on PATH: install one of them "
        "(micromamba is one file), or name pip `packages:` instead"
    )


def create_conda(file: Path, *, folder: Path, prefix: Path, where: str) -> Path:
    """Make a conda environment at `prefix` from a file, and return its Python.

    Raises
    ------
    InvalidEnvironmentError
        The file is not one of conda's.
    EnvironmentBuildError
        No conda is there, or it failed.
    """
    tool = conda_tool(where)
    content = conda_content(file, where)
    named = {re.split(r"[\s=<>!]", d)[0] for d in content["dependencies"] if isinstance(d, str)}
    content["dependencies"] += [name for name in ALWAYS if name not in named]
    derived = folder / "environment.yml"
    derived.write_text(yaml.safe_dump(content))
    if tool == "pixi":
        project = prefix / "project"
        project.mkdir(parents=True)
        commands = [
            ["pixi", "init", "--import", str(derived), str(project)],
            ["pixi", "install", "--manifest-path", str(project / "pixi.toml")],
        ]
        inside = project / ".pixi" / "envs" / "default" / "bin" / "python"
    else:
        kind = ["create"] if tool == "micromamba" else ["env", "create"]
        yes = [] if tool == "conda" else ["--yes"]  # it asks nothing, and older ones refuse it
        commands = [[tool, *kind, *yes, "--quiet", "-p", str(prefix), "-f", str(derived)]]
        inside = prefix / "bin" / "python"
    for command in commands:
        done = _run(command)
        if done.returncode:
            raise _failure(where, f"{tool} failed", done.stderr or done.stdout)
    if not inside.exists():
        raise EnvironmentBuildError(f"{where}: {tool} made no Python: name python in {file.name}")
    return inside


def conda_content(file: Path, where: str) -> dict:
    """Return what a conda environment file holds.

    Raises
    ------
    InvalidEnvironmentError
        It is not one.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidEnvironmentError(f"{where}: {file}: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict) or not isinstance(content.get("dependencies"), list):
        raise InvalidEnvironmentError(f"{where}: {file}: holds no list of `dependencies`")
    return content


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run one command; Ctrl-C ends it too."""
    unset = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_SYSTEM_PYTHON")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        list(command),
        env={**variables, "NO_COLOR": "1", "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _failure(
    where: str, what: str, problem: str, requirements: Sequence[Requirement] = ()
) -> InvalidEnvironmentError | EnvironmentBuildError:
    """Return the error that fits what a tool said, in one line."""
    text = redacted(" ".join(problem.split()), *(r.text for r in requirements))
    text = re.sub(r"^(error|×):? ", "", text).replace(" cause: ", ": ").partition(" hint: ")[0]
    kind = InvalidEnvironmentError if "No solution found" in problem else EnvironmentBuildError
    return kind(f"{where}: {what}: {text[:600] or 'no reason given'}")
