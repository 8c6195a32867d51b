"""An Environment: everything that may differ between two measurements.

Read from YAML files by `lookup`, checked by `validate` and built by `build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchkit.experiment.environment.requirements import Requirement, parse_requirement, redacted
from benchkit.measure.engines import DASK
from benchkit.measure.secrets import redact
from benchkit.table import Table
from benchkit.values import flatten

#: The environment that benchkit runs in, with Dask's configuration as it is.
CURRENT = "current"


@dataclass(frozen=True)
class Environment:
    """Packages, Dask configuration, variables and cluster of one arm."""

    name: str  # File name without suffix; "current" is the environment that benchkit runs in
    description: str = ""  # Purpose, in one line
    # Dask configuration, merged into the defaults through `DASK_CONFIG`.
    dask: Mapping[str, Any] = field(default_factory=dict)
    # Environment variables of the client and of local workers.
    variables: Mapping[str, str] = field(default_factory=dict)
    # Class and options of the cluster; empty is a LocalCluster sized for the machine.
    cluster: Mapping[str, Any] = field(default_factory=dict)
    # Named options that a workload can select; they override `cluster`.
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # What executes the graphs, one of `benchkit.measure.engines.ENGINES`.
    engine: str = DASK
    # Modules that the client imports before the workloads, see `benchkit.measure.engines.preload`.
    preload: tuple[str, ...] = ()
    path: Path | None = None  # The file that defines it
    # Version of Python, such as `3.11` or `>=3.10,<3.12`; None for that of this interpreter.
    python: str | None = None
    # Pip requirement lines; None for the packages that benchkit runs with.
    packages: tuple[str, ...] | None = None
    conda: Path | None = None  # A conda environment file, instead of packages
    folder: Path = Path()  # Base of relative paths in `packages`
    # Path of keys -> `file:line` that sets it.
    origins: Mapping[tuple[str, ...], str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def needs_building(self) -> bool:
        """Whether it defines packages, which `build` installs once."""
        return self.packages is not None or self.conda is not None

    def requirements(self) -> list[Requirement]:
        """Return the parsed requirement lines of `packages`."""
        return [parse_requirement(line, self.folder) for line in self.packages or ()]

    def where(self, *keys: str) -> str:
        """Return the place of a key, for messages."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.origins:
                return self.origins[keys[:end]]
        return str(self.path or self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the definition that is recorded with each run, without secrets."""
        packages = None if self.packages is None else [redacted(line) for line in self.packages]
        return {
            "name": self.name,
            "description": self.description,
            "python": self.python,
            "packages": packages,
            "conda": str(self.conda.name) if self.conda else None,
            "dask": redact(dict(self.dask)),
            "variables": redact(dict(self.variables)),
            "cluster": redact(dict(self.cluster)),
            "clusters": redact(dict(self.clusters)),
            # Absent if not set: definitions that are older than these keys stay equal.
            **({"engine": self.engine} if self.engine != DASK else {}),
            **({"preload": list(self.preload)} if self.preload else {}),
        }

    def _repr_html_(self) -> str:
        rows = [
            {"setting": name, "value": value, "defined in": self.where(*name.split("."))}
            for name, value in flatten(self.to_dict())
            if value not in (None, "", {})
        ]
        return Table(rows).to_html()
