"""Define an environment with the packages of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchkit.errors import EnvironmentBuildError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.requirements import OWN_NAMES, git_address, parse_requirement
from benchkit.measure.engines import DASK
from benchkit.measure.secrets import REDACTED

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
        engine=spec.get("engine") or DASK,
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
