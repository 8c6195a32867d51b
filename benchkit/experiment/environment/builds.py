"""Environments of builds, for bisections and sweeps: all other packages equal if possible.

Old releases of Dask have no upper bounds on their dependencies: the newest versions would differ
between builds, and a change in NumPy would look like one in Dask. So other packages are pinned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement as PackagingRequirement

from benchkit.errors import EnvironmentBuildError, InvalidEnvironmentError
from benchkit.experiment.environment.build import preferred_versions
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.install import resolve
from benchkit.experiment.environment.python import choose_python
from benchkit.experiment.environment.requirements import (
    DASK,
    OWN_NAMES,
    Requirement,
    as_of,
    git_address,
    parse_requirement,
)
from benchkit.measure.engines import DASK as DASK_ENGINE
from benchkit.measure.provenance import installed_packages
from benchkit.measure.secrets import REDACTED
from benchkit.private_folder import private_folder

#: Packages of an environment that lists none, in addition to those the workload requires.
DEFAULT_PACKAGES = ("dask[array,dataframe]", "distributed", "pyarrow", "xarray")


@dataclass(frozen=True)
class Candidate:
    """One build to search."""

    name: str  # Name of the arm: a version, or the beginning of a commit id
    title: str  # Text for messages
    # Package name -> text after the name in a requirement: `==2024.5.0`, ` @ git+file:...`.
    pins: Mapping[str, str]
    sha: str = ""  # Full commit id; "" for a release
    environment: str = ""  # Name of its environment; "": package and name
    package: str = ""  # The package in which it differs from the build before it, if only one


def pins_of(package: str, version: str) -> dict[str, str]:
    """Return the pins of a release; Dask and distributed are released together."""
    names = DASK if package in DASK else (package,)
    return dict.fromkeys(names, f"=={version}")


class CandidateEnvironments:
    """Create the environment of each candidate."""

    def __init__(
        self,
        base: Environment,
        candidates: Sequence[Candidate],
        requires: Sequence[str] = (),
        pinned: Mapping[str, str] | None = None,
    ) -> None:
        if base.conda is not None:
            raise InvalidEnvironmentError(
                f"{base.where('conda')}: conda environments cannot be bisected: name pip packages"
            )
        self.base, self.candidates = base, list(candidates)
        self.python = choose_python(base.python, base.where("python"))
        self._default_lines = _default_lines(requires)
        self.pinned = dict(pinned) if pinned is not None else self._choose_versions()

    def environment(self, position: int) -> Environment:
        """Return the environment of a candidate, every package pinned."""
        candidate = self.candidates[position]
        lock = self._resolve(candidate, prefer=self.pinned)
        package, pin = next(iter(candidate.pins.items()))
        sign = "==" if pin.startswith("==") else "@"
        return replace(
            self.base,
            name=candidate.environment or f"{package}{sign}{candidate.name}",
            description=f"{candidate.title}; everything else as in {self.base.name}",
            packages=tuple(lock.split("\n")) if lock else (),
            path=None,
            origins={},
        )

    def _choose_versions(self) -> dict[str, str]:
        """Return the versions of the good end, changed only where the bad end requires it."""
        first, last = self.candidates[0], self.candidates[-1]
        day = as_of(self._requirements(first), installed_packages())
        good = self._resolve(first, prefer=None if day else preferred_versions(), dated=True)
        return _versions(self._resolve(last, prefer=_versions(good)), last)

    def _resolve(
        self, candidate: Candidate, *, prefer: Mapping[str, str] | None, dated: bool = False
    ) -> str:
        requirements = self._requirements(candidate)
        with private_folder() as folder:
            lock, _ = resolve(
                requirements,
                self.python,
                folder=Path(folder),
                where=candidate.title,
                as_of=as_of(requirements, installed_packages()) if dated else None,
                prefer=prefer,
            )
        return lock.strip()

    def _requirements(self, candidate: Candidate) -> list[Requirement]:
        lines = self._default_lines if self.base.packages is None else self.base.packages
        folder = self.base.folder
        return [parse_requirement(line, folder) for line in _pinned(lines, candidate.pins, folder)]


def _default_lines(requires: Sequence[str]) -> list[str]:
    """Return requirement lines for an environment that lists no packages."""
    from importlib.metadata import packages_distributions

    known = packages_distributions()
    lines = [line for line in DEFAULT_PACKAGES if find_spec(line.partition("[")[0])]
    lines += [known[name][0] for name in requires if name in known]
    return list(dict.fromkeys(lines))


def _pinned(lines: Sequence[str], pins: Mapping[str, str], folder: Path) -> list[str]:
    """Return requirement lines without duplicates, with the searched packages pinned.

    If only Dask or only distributed is searched, the other is left without a pin: it takes the
    version that the searched package requires.
    """
    pinned: list[str] = []
    missing = dict(pins)
    for line in lines:
        requirement = parse_requirement(line, folder)
        name = requirement.name
        extras, marker = "", ""
        if requirement.kind == "index":
            parsed = PackagingRequirement(requirement.text)
            extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
            marker = f" ; {parsed.marker}" if parsed.marker else ""
        elif name in pins:
            match = re.match(r"[\w.-]+(\[[^\]]*\])", requirement.text)
            extras = match[1] if match else ""
        if name in pins:
            pinned.append(f"{name}{extras}{missing.pop(name, pins[name])}{marker}")
        elif name in DASK and set(pins) & set(DASK) and requirement.kind == "index":
            pinned.append(f"{name}{extras}{marker}")
        else:
            pinned.append(line)
    return list(dict.fromkeys([*pinned, *(f"{name}{pin}" for name, pin in missing.items())]))


def _versions(lock: str, candidate: Candidate | None = None) -> dict[str, str]:
    """Return name -> version of the pinned lines of a lock, without the searched packages."""
    pairs = (line.partition("==") for line in lock.splitlines())
    searched = {*DASK, *(candidate.pins if candidate else ())}
    return {name: version for name, pin, version in pairs if pin and name not in searched}


#: Packages that each kernel gets anyway, or that are not on an index.
_NOT_PINNED = (*OWN_NAMES, "pip", "setuptools", "wheel", "uv")


def environment_of_run(
    attrs: Mapping[Any, Any], name: str, like: Environment | None = None
) -> Environment:
    """Return an environment with the same package versions as a run."""
    spec = json.loads(attrs.get("environment_spec") or "{}")
    packages = json.loads(attrs.get("packages") or "{}")
    run = str(attrs.get("id", ""))[:13]
    if not spec or not packages:
        raise EnvironmentBuildError(f"run {run}: its environment is not recorded")
    if spec.get("conda"):
        raise EnvironmentBuildError(f"run {run}: conda environments cannot be rebuilt")
    settings = {key: spec.get(key) or {} for key in ("dask", "variables")}
    text = json.dumps(settings)
    if REDACTED in text or "***" in text:
        raise EnvironmentBuildError(f"run {run}: some of its settings are not recorded")
    built = spec.get("built") or {}
    return Environment(
        name=name,
        description=f"packages of run {run}",
        dask=settings["dask"],
        variables=settings["variables"],
        cluster=like.cluster if like is not None else spec.get("cluster") or {},
        clusters=like.clusters if like is not None else spec.get("clusters") or {},
        engine=spec.get("engine") or DASK_ENGINE,
        preload=tuple(spec.get("preload") or ()),
        python=_minor(str(built.get("python") or attrs.get("python") or "")),
        packages=tuple(_pins(packages, built.get("sources") or {}, run)),
    )


def _minor(version: str) -> str | None:
    parts = version.split(".")
    return ".".join(parts[:2]) if len(parts) >= 2 else None


def _pins(packages: Mapping[str, str], sources: Mapping[str, str], run: str) -> list[str]:
    """Return a requirement line for each package: its version, or its commit."""
    pins, from_source = [], set()
    for line, state in sources.items():
        requirement = parse_requirement(line, Path())
        if requirement.kind != "git":
            raise EnvironmentBuildError(
                f"run {run}: {requirement.name or line} came from a local folder"
            )
        address, _ = git_address(requirement.source)
        # The recorded packages include those of extras.
        pins.append(f"{requirement.name} @ git+{address}@{state.split()[0]}")
        from_source.add(requirement.name)
    for name, version in packages.items():
        if name in from_source or name in _NOT_PINNED:
            continue
        if "+" in version:
            raise EnvironmentBuildError(f"run {run}: {name} {version} is not on an index")
        pins.append(f"{name}=={version}")
    return pins
