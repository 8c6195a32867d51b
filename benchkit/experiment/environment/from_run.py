"""Build again what an earlier run was measured in, package by package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchkit.errors import EnvironmentBuildError
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.requirements import git_address, parse_requirement
from benchkit.measure.provenance import REDACTED

__all__ = ["environment_of_run"]

#: Packages that a kernel of an arm gets anyway, or that no index has.
_NOT_PINNED = ("benchkit", "pip", "setuptools", "wheel", "uv")


def environment_of_run(
    attrs: Mapping[Any, Any], name: str, like: Environment | None = None
) -> Environment:
    """Return an environment with the very packages that a run was measured with.

    Parameters
    ----------
    attrs : mapping
        Root attributes of the run.
    name : str
        What to call it.
    like : Environment, optional
        Where clusters are taken from: what is recorded of them lacks secrets.

    Returns
    -------
    Environment

    Raises
    ------
    EnvironmentBuildError
        It had a source that is no longer what it was (a local folder), came from conda, or has
        a setting that is not recorded.
    """
    spec = json.loads(attrs.get("environment_spec") or "{}")
    packages = json.loads(attrs.get("packages") or "{}")
    run = str(attrs.get("id", ""))[:13]
    if not spec or not packages:
        raise EnvironmentBuildError(f"run {run}: what it was measured in is not recorded")
    if spec.get("conda"):
        raise EnvironmentBuildError(f"run {run}: environments of conda are not built again")
    settings = {key: spec.get(key) or {} for key in ("dask", "variables")}
    if REDACTED in json.dumps(settings):
        raise EnvironmentBuildError(f"run {run}: it had settings that are not recorded")
    built = spec.get("built") or {}
    return Environment(
        name=name,
        description=f"as run {run} was measured in",
        dask=settings["dask"],
        variables=settings["variables"],
        cluster=like.cluster if like is not None else spec.get("cluster") or {},
        clusters=like.clusters if like is not None else spec.get("clusters") or {},
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
            raise EnvironmentBuildError(f"run {run}: {requirement.name or line} was a local folder")
        address, _ = git_address(requirement.source)
        # All packages are listed here, so those of its extras are too.
        pins.append(f"{requirement.name} @ git+{address}@{state.split()[0]}")
        from_source.add(requirement.name)
    for name, version in packages.items():
        if name in from_source or name in _NOT_PINNED:
            continue
        if "+" in version:
            raise EnvironmentBuildError(f"run {run}: {name} {version} came from no index")
        pins.append(f"{name}=={version}")
    return pins
