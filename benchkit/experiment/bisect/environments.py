"""Environments of a bisection: one per build, with all other packages equal if possible.

Old releases of Dask have no upper bounds on their dependencies: the newest versions would differ
between builds, and a change in NumPy would look like one in Dask. So other packages are held.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement as PackagingRequirement

from benchkit.errors import InvalidEnvironmentError
from benchkit.experiment.bisect.candidates import Candidate
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.install import resolve
from benchkit.experiment.environment.python import choose_python
from benchkit.experiment.environment.requirements import DASK, Requirement, as_of, parse_requirement
from benchkit.measure.provenance import installed_packages

__all__ = ["CandidateEnvironments"]

#: Packages of an environment that lists none, in addition to those the workload requires.
USUAL = ("dask[array,dataframe]", "distributed", "pyarrow", "xarray")


class CandidateEnvironments:
    """Create the environment of each candidate.

    Parameters
    ----------
    base : Environment
        Provides Python, Dask configuration, variables, cluster and other packages.
    candidates : sequence of Candidate
        Builds to search, in order.
    requires : sequence of str
        Modules that the workload requires.
    held : mapping of str to str, optional
        Versions of the other packages, from a bisection that is continued.

    Attributes
    ----------
    held : dict of str to str
        Name -> preferred version of each package that is kept equal: the version of the good end,
        or that of the bad end if it requires another.
    """

    def __init__(
        self,
        base: Environment,
        candidates: Sequence[Candidate],
        requires: Sequence[str] = (),
        held: Mapping[str, str] | None = None,
    ) -> None:
        if base.conda is not None:
            raise InvalidEnvironmentError(
                f"{base.where('conda')}: environments of conda are not bisected: name pip packages"
            )
        self.base, self.candidates = base, list(candidates)
        self.python = choose_python(base.python, base.where("python"))
        self._usual = _usual(requires)
        self._own = {
            name: version
            for name, version in installed_packages().items()
            if name not in ("benchkit", *DASK) and "+" not in version
        }
        self.held = dict(held) if held is not None else self._hold()

    def environment(self, place: int) -> Environment:
        """Return the environment of a candidate, every package pinned.

        Raises
        ------
        InvalidEnvironmentError
            The requirements contradict each other.
        EnvironmentBuildError
            The package index is not reachable, or a source cannot be read.
        """
        candidate = self.candidates[place]
        lock = self._resolve(candidate, prefer=self.held)
        package, pin = next(iter(candidate.pins.items()))
        return replace(
            self.base,
            name=f"{package}=={candidate.name}" if pin.startswith("==") else
                 f"{package}@{candidate.name}",
            description=f"{candidate.title}; all else as in {self.base.name}",
            packages=tuple(lock.split("\n")) if lock else (),
            path=None,
            origins={},
        )  # fmt: skip

    def _hold(self) -> dict[str, str]:
        """Return the versions of the good end, changed only where the bad end requires it."""
        first, last = self.candidates[0], self.candidates[-1]
        day = as_of(self._requirements(first), installed_packages())
        good = self._resolve(first, prefer=None if day else self._own, dated=True)
        return _versions(self._resolve(last, prefer=_versions(good)), last)

    def _resolve(
        self, candidate: Candidate, *, prefer: Mapping[str, str] | None, dated: bool = False
    ) -> str:
        requirements = self._requirements(candidate)
        with tempfile.TemporaryDirectory(prefix="benchkit-") as folder:
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
        lines = self._usual if self.base.packages is None else self.base.packages
        folder = self.base.folder
        return [parse_requirement(line, folder) for line in _pinned(lines, candidate.pins, folder)]


def _usual(requires: Sequence[str]) -> list[str]:
    """Return requirement lines for an environment that lists no packages."""
    from importlib.metadata import packages_distributions

    known = packages_distributions()
    found = [line for line in USUAL if find_spec(line.partition("[")[0])]
    found += [known[name][0] for name in requires if name in known]
    return list(dict.fromkeys(found))


def _pinned(lines: Sequence[str], pins: Mapping[str, str], folder: Path) -> list[str]:
    """Return requirement lines without duplicates, with the searched packages pinned.

    If only Dask or only distributed is searched, the other is left without a pin: it takes the
    version that the searched package requires.
    """
    found: list[str] = []
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
            said = re.match(r"[\w.-]+(\[[^\]]*\])", requirement.text)
            extras = said[1] if said else ""
        if name in pins:
            found.append(f"{name}{extras}{missing.pop(name, pins[name])}{marker}")
        elif name in DASK and set(pins) & set(DASK) and requirement.kind == "index":
            found.append(f"{name}{extras}{marker}")
        else:
            found.append(line)
    return list(dict.fromkeys([*found, *(f"{name}{pin}" for name, pin in missing.items())]))


def _versions(lock: str, candidate: Candidate | None = None) -> dict[str, str]:
    """Return name -> version of the pinned lines of a lock, without the searched packages."""
    pairs = (line.partition("==") for line in lock.splitlines())
    aside = {*DASK, *(candidate.pins if candidate else ())}
    return {name: version for name, same, version in pairs if same and name not in aside}
