"""Finds environments by name: reads their YAML files and lays a file over those it extends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchkit.errors import InvalidEnvironmentError, did_you_mean
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.file import EnvironmentFile, read_environment_file
from benchkit.experiment.environment.validate import check_environment
from benchkit.measure.cluster.spec import LOCAL_CLUSTER

__all__ = ["find_environment", "list_environments"]


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
    InvalidEnvironmentError
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
        raise InvalidEnvironmentError(f"no environment named {name!r}: {hint}")
    environment = _assemble(path, _load(path, [*folders, path.parent], ()))
    if environment.python is not None and not environment.needs_building:
        raise InvalidEnvironmentError(
            f"{environment.where('python')}: python without packages: name the packages that "
            "this Python should have"
        )
    if check and not environment.needs_building:
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
        raise InvalidEnvironmentError(f"{file.where('extends')}: extends itself")
    parent = known.get(base)
    if parent is None:
        hint = did_you_mean(base, known, "no file of that name beside it")
        raise InvalidEnvironmentError(f"{file.where('extends')}: extends {base!r}: {hint}")
    if parent.resolve() in (found.resolve() for found in seen):
        circle = " -> ".join([*(found.stem for found in seen), path.stem, base])
        raise InvalidEnvironmentError(f"{file.where('extends')}: extends in a circle: {circle}")
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
