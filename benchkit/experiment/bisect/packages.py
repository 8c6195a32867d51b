"""Builds between two environments: their packages change one after the other.

If two environments differ in many packages, the builds are in a row: each has one more package of
the new environment than the one before it. The search for the first slow build then names the
package, a second search its release, and a third one its commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from benchkit.analysis.compare.environment_diff import package_rank
from benchkit.errors import UsageError
from benchkit.experiment.bisect.candidates import (
    list_release_commits,
    list_releases,
    read_checkout,
)
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.builds import Candidate, CandidateEnvironments
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.lookup import as_environment
from benchkit.experiment.environment.requirements import DASK, OWN_NAMES
from benchkit.store.store import Store
from benchkit.values import decode_json

#: Beginning of the name of an environment that a run has recorded.
RUN = "run:"
#: Text of a version that an environment lacks.
NONE = "none"


class End(NamedTuple):
    """An environment with the versions of its packages."""

    environment: Environment
    packages: Mapping[str, str]


def read_end(name: str, folders: Sequence[str | Path], store: Store) -> End:
    """Return an environment by name, built, or ``run:ID``: that of a run, as it was recorded."""
    if not name.startswith(RUN):
        environment = as_environment(name, folders)
        if environment.conda is not None:
            raise UsageError(f"{name}: conda environments cannot be bisected: name pip packages")
        return End(environment, build(environment).packages)
    attrs = store.open(name.removeprefix(RUN)).tree.attrs
    spec = decode_json(attrs.get("environment_spec"))
    environment = Environment(
        name,
        dask=spec.get("dask") or {},
        variables=spec.get("variables") or {},
        cluster=spec.get("cluster") or {},
        clusters=spec.get("clusters") or {},
        python=".".join(str(attrs.get("python", "")).split(".")[:2]) or None,
    )
    return End(environment, decode_json(attrs.get("packages")))


def package_candidates(old: End, new: End) -> list[Candidate]:
    """Return the old environment, then one build for each package that differs.

    Dependencies come before the packages that need them, as far as `package_rank` shows it: a new
    release rarely works with old dependencies. Builds that cannot be resolved are skipped later.
    """
    sides = [
        {name: version for name, version in end.packages.items() if name not in OWN_NAMES}
        for end in (old, new)
    ]
    differing = [
        name for name in {*sides[0], *sides[1]} if sides[0].get(name) != sides[1].get(name)
    ]
    for name in differing:
        for side, end in zip(sides, (old, new), strict=True):
            if "+" in side.get(name, ""):
                raise UsageError(
                    f"{end.environment.name}: {name} {side[name]} is not a release: "
                    "search its commits with --git"
                )
    # The packages of an index are pinned; others, such as an editable one, are the same in both.
    pins = {name: f"=={version}" for name, version in sides[0].items() if "+" not in version}
    one_sided = {name for name in differing if not (name in sides[0] and name in sides[1])}
    differing.sort(key=lambda name: package_rank(name, name in one_sided), reverse=True)
    names = (old.environment.name, new.environment.name)
    if not differing:
        raise UsageError(f"{names[0]} and {names[1]} have the same packages")
    found = [Candidate(names[0], names[0], dict(pins), environment=names[0])]
    while differing:
        name = differing[0]
        group = [name] if name not in DASK else [other for other in DASK if other in differing]
        differing = [other for other in differing if other not in group]
        for member in group:
            version = sides[1].get(member)
            pins.pop(member, None)
            pins |= {} if version is None else {member: f"=={version}"}
        before, after = (side.get(group[0], NONE) for side in sides)
        title = f"{' and '.join(group)} {before} -> {after}"
        arm = f"{group[0]}={after}"
        found.append(Candidate(arm, title, dict(pins), environment=arm, package=group[0]))
    return found


def base_of(old: End) -> Environment:
    """Return what the builds have in common: everything but the packages, which they pin."""
    return replace(old.environment, packages=())


def other_differences(old: End, new: End) -> list[str]:
    """Return the parts of two environments that differ and are not searched."""
    names = ("python", "dask", "variables", "cluster", "clusters", "engine", "preload")
    sides = (old.environment, new.environment)
    return [name for name in names if getattr(sides[0], name) != getattr(sides[1], name)]


def release_search(
    builds: CandidateEnvironments, low: int, high: int
) -> tuple[Environment, list[Candidate]] | None:
    """Return the releases of the package that changes between two builds; None if there is one."""
    before, after = (builds.candidates[position] for position in (low, high))
    package = after.package
    if high != low + 1 or not package:
        return None  # skipped builds are between them: several packages are possible
    ends = [build.pins.get(package, "").removeprefix("==") for build in (before, after)]
    try:
        if not all(ends) or Version(ends[0]) >= Version(ends[1]):
            return None
        releases = list_releases(package, ends[0], ends[1], builds.python)
    except (InvalidVersion, UsageError):
        return None
    return (builds.environment(low), releases) if len(releases) > 2 else None


def commit_search(
    builds: CandidateEnvironments, low: int, high: int, checkout: str
) -> tuple[Environment, list[Candidate]] | None:
    """Return the commits of a checkout between two releases; None if these are not known."""
    before, after = (builds.candidates[position] for position in (low, high))
    if not checkout or after.sha or (after.package and high != low + 1):
        return None
    package = read_checkout(checkout).package
    ends = [build.pins.get(package, "").removeprefix("==") for build in (before, after)]
    if ends[0] == ends[1]:
        raise UsageError(f"--git {checkout}: contains {package}; the change is in {after.title}")
    if not all(ends):
        return None
    return builds.environment(low), list_release_commits(checkout, *ends)
