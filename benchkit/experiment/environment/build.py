"""Build an Environment: resolve its packages and install them once into a cache.

Arms with equal packages share one installation. Concurrent builds of the same environment wait
for a lock; a killed build leaves no installation that is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchkit.captured_process import run_captured
from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment import cache, probe
from benchkit.experiment.environment.cache import Built, find_built
from benchkit.experiment.environment.conda import conda_content, conda_tool, create_conda
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.install import install, resolve
from benchkit.experiment.environment.process_variables import measured_folder
from benchkit.experiment.environment.python import choose_python
from benchkit.experiment.environment.requirements import DASK, OWN_NAMES, as_of, source_states
from benchkit.experiment.environment.validate import (
    check_clusters,
    check_environment,
    check_settings,
    measured_parts,
)
from benchkit.formatting import counted
from benchkit.measure.provenance import installed_packages, packages_hash
from benchkit.whole_file import write_whole
from benchkit.working_folder import cache_folder

#: Limit of a call of the Python of an environment, which takes seconds.
PROBE_TIMEOUT_S = 120.0


def build(
    environment: Environment, *, update: bool = False, report: Callable[[str], None] | None = None
) -> Built:
    """Return the built environment, building it if necessary.

    Settings and clusters are checked against the packages of the environment.
    """
    if not environment.needs_building:
        check_environment(environment)
        return _own()
    report_line = report or (lambda line: print(line, file=sys.stderr, flush=True))
    built = None if update else find_build(environment, check_sources=True)
    if built is None:
        cache.sweep()
        built = _build(environment, update, lambda line: report_line(f"{environment.name}: {line}"))
    check_settings(environment, {**built.settings(), "packages": built.packages})
    check_clusters(environment, _cluster_problems(environment, built))
    return built


def find_build(environment: Environment, *, check_sources: bool = False) -> Built | None:
    """Return the result of an earlier `build`."""
    if not environment.needs_building:
        return _own()
    try:
        spec = _spec(environment)
        resolution = json.loads(_resolution(spec).read_text(encoding="utf-8"))
        if check_sources and resolution["sources"] != _sources(environment):
            return None
        own = preferred_versions()
        if any(own.get(name) != version for name, version in resolution["preferred"].items()):
            return None  # versions shared with this interpreter have changed
        return find_built(resolution["environment"])
    except (OSError, ValueError, KeyError, AttributeError, InvalidEnvironmentError):
        return None


def _own() -> Built:
    return Built(
        python=Path(sys.executable),
        prefix=Path(sys.prefix),
        packages=installed_packages(),
        hash=packages_hash(),
        created=None,
        python_version=platform.python_version(),
    )


def _build(environment: Environment, update: bool, report: Callable[[str], None]) -> Built:
    spec = _spec(environment)
    with cache.locked(spec, lambda: report("waiting for another process that builds it")):
        # Another process may have built it while this process waited.
        built = None if update else find_build(environment, check_sources=True)
        if built is not None:
            return built
        sources = _sources(environment)
        began = time.monotonic()
        with cache.scratch_folder(spec) as scratch:
            if environment.conda is not None:
                built = _build_conda(environment, scratch, report)
            else:
                built = _build_uv(environment, sources, scratch, report)
        elapsed = time.monotonic() - began
        report(f"ready after {elapsed:.1f} s: Python {built.python_version}, {built.hash}")
        shared = {} if built.as_of or environment.conda else preferred_versions()
        shared = {name: shared[name] for name in built.packages if name in shared}
        content = {"environment": built.hash, "sources": sources, "preferred": shared}
        write_whole(_resolution(spec), json.dumps(content, indent=1))
        return built


def _resolution(spec: str) -> Path:
    return cache_folder() / "resolved" / f"{spec}.json"


def _spec(environment: Environment) -> str:
    """Return the hash of the requirements and of the content of local sources."""
    if environment.conda is not None:
        content: list[Any] = [conda_content(environment.conda, environment.where("conda"))]
    else:
        requirements = environment.requirements()
        local = [requirement for requirement in requirements if requirement.kind == "path"]
        python = choose_python(environment.python, environment.where("python"))
        content = [
            [requirement.text for requirement in requirements],
            source_states(local),
            python.version,
        ]
    return _hash([content, platform.machine(), sys.platform])


def _sources(environment: Environment) -> dict[str, str]:
    try:
        return source_states(environment.requirements())
    except EnvironmentBuildError as error:
        raise EnvironmentBuildError(f"{environment.where('packages')}: {error}") from error


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def preferred_versions() -> dict[str, str]:
    """Return the packages of this interpreter, which an arm uses too unless they conflict.

    Arms should differ in Dask only, not in NumPy too.
    """
    return {
        name: version
        for name, version in installed_packages().items()
        if name not in (*DASK, *OWN_NAMES) and "+" not in version
    }


def _build_uv(
    environment: Environment,
    sources: Mapping[str, str],
    scratch: Path,
    report: Callable[[str], None],
) -> Built:
    python = choose_python(environment.python, environment.where("python"))
    requirements = environment.requirements()
    where = environment.where("packages")
    day = as_of(requirements, installed_packages())
    dated = f", as of {day}: its Dask has no upper bounds" if day else ""
    report(f"resolving for Python {python.version}{dated}")
    lock, day = resolve(
        requirements,
        python,
        folder=scratch,
        where=where,
        as_of=day,
        prefer=None if day else preferred_versions(),
    )
    name = _hash([lock, sources, python.version, platform.machine(), sys.platform])

    def make(prefix: Path) -> Path:
        report(f"installing {counted(len(lock.splitlines()), 'package')}")
        path = install(lock, requirements, python, folder=scratch, prefix=prefix, where=where)
        cache.link_bytecode(prefix, python.version)
        return path

    return _make(name, make, where, report, sources=sources, as_of=day.isoformat() if day else "")


def _build_conda(environment: Environment, scratch: Path, report: Callable[[str], None]) -> Built:
    file, where = environment.conda, environment.where("conda")
    assert file is not None
    name = _hash([conda_content(file, where), platform.machine(), sys.platform])

    def make(prefix: Path) -> Path:
        report(f"creating it with {conda_tool(where)}")
        return create_conda(file, folder=scratch, prefix=prefix, where=where)

    return _make(name, make, where, report)


def _make(
    name: str,
    make: Callable[[Path], Path],
    where: str,
    report: Callable[[str], None],
    **attributes: Any,
) -> Built:
    """Return the environment of that hash, made if it does not exist."""
    with cache.locked(name, lambda: report("waiting for another process that installs the same")):
        built = find_built(name)
        if built is not None:
            return built
        with cache.draft_folder(name) as prefix:
            python = make(prefix)
            probed = _probe(python, where)
            built = Built(
                python=python,
                prefix=prefix,
                packages=probed["packages"],
                hash=name,
                created=time.time(),
                python_version=probed["python"],
                nbytes=_size(prefix),
                **attributes,
            )
            settings = {key: probed[key] for key in ("known", "open", "defaults")}
            return cache.publish(built, settings)


def _probe(python: Path, where: str) -> dict[str, Any]:
    """Return the probe result of an environment; raise an error if Dask cannot be imported."""
    probed = _call_python(python, [str(Path(probe.__file__))], where)
    for module, problem in probed["broken"].items():
        raise InvalidEnvironmentError(
            f"{where}: installed, but `import {module}` fails: {problem}; "
            "pin the named package to an older version"
        )
    return probed


def _call_python(python: Path, arguments: Sequence[str], where: str, *, path: str = "") -> Any:
    command = [str(python), *([] if path else ["-I"]), *arguments]
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "PYTHON"))}
    try:
        variables |= {"PYTHONNOUSERSITE": "1", **({"PYTHONPATH": path} if path else {})}
        done = run_captured(command, env=variables, timeout=PROBE_TIMEOUT_S)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentBuildError(f"{where}: its Python did not end in time") from error
    except ValueError as error:
        problem = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EnvironmentBuildError(f"{where}: its Python does not work: {problem}") from error


def _cluster_problems(environment: Environment, built: Built) -> list[tuple[list[str], str]]:
    """Return the cluster problems of the environment; cached, a call takes 1 s."""
    clusters = measured_parts(environment)
    cached = built.prefix.parent / f"clusters-{_hash(clusters)}.json"
    try:
        return json.loads(cached.read_text(encoding="utf-8"))["troubles"]
    except (OSError, ValueError, KeyError):
        pass
    arguments = ["-m", "benchkit.measure.cluster.check", json.dumps(clusters)]
    problems = _call_python(
        built.python, arguments, environment.where(), path=str(measured_folder())
    )
    write_whole(cached, json.dumps({"troubles": problems}))
    return problems


def _size(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(folder_path, name)).st_size
        for folder_path, _, names in os.walk(folder)
        for name in names
    )
