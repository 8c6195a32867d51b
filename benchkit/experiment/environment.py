"""An Environment: everything that may differ between two measurements, from its YAML files.

Finds files by name and lays a file over those it extends. Builds nothing (`building`), and does
not know what the packages of an environment understand (`environment_check`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchkit.errors import BadEnvironment, did_you_mean
from benchkit.experiment.environment_file import EnvironmentFile, read_environment_file
from benchkit.experiment.requirements import Requirement, parse_requirement, redacted
from benchkit.measure.cluster import LOCAL_CLUSTER
from benchkit.measure.facts import without_secrets

__all__ = ["CURRENT", "Environment", "find_environment", "list_environments"]

#: The environment that benchkit runs in, with Dask's configuration as it is.
CURRENT = "current"


@dataclass(frozen=True)
class Environment:
    """What one arm runs in.

    Attributes
    ----------
    name : str
        File name without its ending; "current" for the one benchkit runs in.
    description : str
        What it is for, in a line.
    dask : dict
        Dask configuration, laid over the defaults through ``DASK_CONFIG``.
    variables : dict of str to str
        Environment variables of the client and of local workers.
    cluster : dict
        Class and options of the cluster; empty is a LocalCluster sized for the machine.
    clusters : dict of dict
        Named shapes a workload may ask for, laid over `cluster`.
    path : path or None
        Its file.
    python : str or None
        Version of Python, such as ``3.11`` or ``>=3.10,<3.12``; None is this interpreter's.
    packages : tuple of str or None
        Pip requirement lines; None is the packages that benchkit runs with.
    conda : path or None
        A conda environment file, instead of packages.
    folder : path
        What relative paths in `packages` are relative to.
    origins : dict
        Where each key was said, ``file:line`` by its path of keys.
    """

    name: str
    description: str = ""
    dask: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, Any] = field(default_factory=dict)
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    path: Path | None = None
    python: str | None = None
    packages: tuple[str, ...] | None = None
    conda: Path | None = None
    folder: Path = Path()
    origins: Mapping[tuple[str, ...], str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def needs_building(self) -> bool:
        """Whether it has packages of its own, which `building.build` installs once."""
        return self.packages is not None or self.conda is not None

    def requirements(self) -> list[Requirement]:
        """Return its requirement lines, read."""
        return [parse_requirement(line, self.folder) for line in self.packages or ()]

    def where(self, *keys: str) -> str:
        """Return ``file:line`` of a key, or of the nearest key around it, or the name."""
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.origins:
                return self.origins[keys[:end]]
        return str(self.path or self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as it is recorded with each run: without secrets."""
        packages = None if self.packages is None else [redacted(line) for line in self.packages]
        return {
            "name": self.name,
            "description": self.description,
            "python": self.python,
            "packages": packages,
            "conda": str(self.conda.name) if self.conda else None,
            "dask": without_secrets(dict(self.dask)),
            "variables": without_secrets(dict(self.variables)),
            "cluster": without_secrets(dict(self.cluster)),
            "clusters": without_secrets(dict(self.clusters)),
        }


def list_environments(folders: Sequence[Path]) -> dict[str, Path]:
    """Return name -> file of all environments in these folders, the first folder winning."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted([*Path(folder).glob("*.yaml"), *Path(folder).glob("*.yml")]):
            found.setdefault(path.stem, path)
    return found


def find_environment(name: str, folders: Sequence[Path], *, check: bool = True) -> Environment:
    """Load an environment by name, or by the path of its file.

    Parameters
    ----------
    name : str
        Name, path of a file, or "current".
    folders : sequence of path
        Where files are looked for.
    check : bool, default True
        Also check configuration and cluster, if it has the packages of this interpreter. One
        with packages of its own is checked when it is built.

    Raises
    ------
    BadEnvironment
        There is none of that name, or its file says something that cannot be meant.
    """
    if name == CURRENT:
        return Environment(CURRENT, "the environment that benchkit runs in")
    known = list_environments(folders)
    if name in known:
        path = known[name]
    elif name.endswith((".yaml", ".yml")) and Path(name).is_file():
        path = Path(name)
    else:
        hint = did_you_mean(name, [*known, CURRENT], "see `benchkit list environments`")
        raise BadEnvironment(f"no environment named {name!r}: {hint}")
    environment = _assemble(path, _load(path, [*folders, path.parent], ()))
    if environment.python is not None and not environment.needs_building:
        raise BadEnvironment(
            f"{environment.where('python')}: python without packages: name the packages that "
            "this Python should have"
        )
    if check and not environment.needs_building:
        from benchkit.experiment.environment_check import check_environment

        check_environment(environment)
    return environment


def _load(path: Path, folders: Sequence[Path], seen: tuple[Path, ...]) -> list[EnvironmentFile]:
    """Return the file and all that it extends, the last base first."""
    file = read_environment_file(path)
    base = file.content.get("extends")
    if base in (None, CURRENT):
        return [file]
    known = {
        name: found
        for name, found in list_environments(folders).items()
        if found.resolve() != path.resolve()
    }
    if base == path.stem and base not in known:
        raise BadEnvironment(f"{file.where('extends')}: extends itself")
    parent = known.get(base)
    if parent is None:
        hint = did_you_mean(base, known, "no file of that name beside it")
        raise BadEnvironment(f"{file.where('extends')}: extends {base!r}: {hint}")
    if parent.resolve() in (found.resolve() for found in seen):
        circle = " -> ".join([*(found.stem for found in seen), path.stem, base])
        raise BadEnvironment(f"{file.where('extends')}: extends in a circle: {circle}")
    return [*_load(parent, folders, (*seen, path)), file]


def _assemble(path: Path, files: Sequence[EnvironmentFile]) -> Environment:
    """Lay the files over one another, and remember where each key was said."""
    merged: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    folder, conda = path.parent, None
    for file in files:
        content = {key: value for key, value in file.content.items() if key != "extends"}
        said = [name for name in ("packages", "conda") if content.get(name) is not None]
        if said:
            # One way to say what is installed takes back the other; so does its folder.
            for name in ("packages", "conda"):
                merged.pop(name, None)
            folder = file.path.parent
            conda = folder / content["conda"] if said == ["conda"] else None
        if _another_cluster(merged.get("cluster"), content.get("cluster")):
            # Options are those of a class: another class has others.
            merged["cluster"], merged["clusters"] = {}, {}
        for key, value in content.items():
            if value is None:
                merged.pop(key, None)
            elif isinstance(value, Mapping):
                merged[key] = _laid_over(merged.get(key, {}), value, dask=key == "dask")
            else:
                merged[key] = value
        origins.update({keys: f"{file.path}:{line}" for keys, line in file.lines.items()})
    return Environment(
        name=path.stem,
        description=merged.get("description", ""),
        dask=merged.get("dask", {}),
        variables=merged.get("variables", {}),
        cluster=merged.get("cluster", {}),
        clusters=merged.get("clusters", {}),
        path=path,
        python=merged.get("python"),
        packages=tuple(merged["packages"]) if "packages" in merged else None,
        conda=conda if "conda" in merged else None,
        folder=folder,
        origins=origins,
    )


def _another_cluster(base: Mapping | None, over: Mapping | None) -> bool:
    if not base or not over:
        return False
    if "address" in over or "address" in base:
        return True
    return "class" in over and over["class"] != base.get("class", LOCAL_CLUSTER)


def _laid_over(base: Mapping[str, Any], over: Mapping[str, Any], *, dask: bool) -> dict[str, Any]:
    """Return `over` laid over `base`; for Dask ``work_stealing`` is ``work-stealing``."""
    merged = dict(base)
    for key, value in over.items():
        if dask:
            twins = [k for k in merged if k.replace("_", "-") == key.replace("_", "-")]
            key = twins[0] if twins else key
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _laid_over(merged[key], value, dask=dask) if both else value
    return merged
