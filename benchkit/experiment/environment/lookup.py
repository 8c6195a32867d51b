"""Find environments by name, and merge their YAML files with those that they extend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchkit.errors import InvalidEnvironmentError, did_you_mean
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.file import EnvironmentFile, read_environment_file
from benchkit.experiment.environment.validate import check_environment
from benchkit.experiment.paths import folders_of
from benchkit.measure.cluster.spec import LOCAL_CLUSTER
from benchkit.measure.engines import DASK
from benchkit.measure.secrets import redact


def environment_files(folders: Sequence[Path]) -> list[Path]:
    """Return the environment files of folders, in their order."""
    return [
        path
        for folder in folders
        for path in sorted([*Path(folder).glob("*.yaml"), *Path(folder).glob("*.yml")])
    ]


def list_environments(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the environment files of folders."""
    files: dict[str, Path] = {}
    for path in environment_files(folders):
        files.setdefault(path.stem, path)
    return files


def find_environment(name: str, folders: Sequence[Path], *, check: bool = True) -> Environment:
    """Load an environment by name, or by the path of its file."""
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
            f"{environment.where('python')}: python without packages: add the packages to install"
        )
    if check and not environment.needs_building:
        check_environment(environment)
    return environment


def as_environment(
    environment: str | Environment, folders: str | Path | Sequence[str | Path] = ()
) -> Environment:
    """Return an environment, read by its name if it is a text."""
    if isinstance(environment, Environment):
        return environment
    return find_environment(environment, folders_of("environments", folders))


def _load(path: Path, folders: Sequence[Path], visited: tuple[Path, ...]) -> list[EnvironmentFile]:
    """Return the file and the files that it extends, the outermost base first."""
    file = read_environment_file(path)
    base = file.content.get("extends")
    if base in (None, CURRENT):
        return [file]
    others = [other for other in environment_files(folders) if other.resolve() != path.resolve()]
    known = {other.stem: other for other in reversed(others)}
    if base == path.stem and base not in known:
        raise InvalidEnvironmentError(f"{file.where('extends')}: extends itself")
    parent = known.get(base)
    if parent is None:
        hint = did_you_mean(base, known, "no file of that name next to it")
        raise InvalidEnvironmentError(f"{file.where('extends')}: extends {base!r}: {hint}")
    if parent.resolve() in (other.resolve() for other in visited):
        cycle = " -> ".join([*(other.stem for other in visited), path.stem, base])
        raise InvalidEnvironmentError(f"{file.where('extends')}: circular extends: {cycle}")
    return [*_load(parent, folders, (*visited, path)), file]


def _assemble(path: Path, files: Sequence[EnvironmentFile]) -> Environment:
    """Merge the files, and record the file and line of each key."""
    merged: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    folder, conda = path.parent, None
    for file in files:
        content = {key: value for key, value in file.content.items() if key != "extends"}
        sources = [name for name in ("packages", "conda") if content.get(name) is not None]
        if sources:
            # packages and conda replace each other, together with their folder.
            for name in ("packages", "conda"):
                merged.pop(name, None)
            folder = file.path.parent
            conda = folder / content["conda"] if sources == ["conda"] else None
        if _is_other_cluster(merged.get("cluster"), content.get("cluster")):
            # Options of another cluster class are not inherited.
            merged["cluster"], merged["clusters"] = {}, {}
        for key, value in content.items():
            if value is None:
                merged.pop(key, None)
            elif isinstance(value, Mapping):
                merged[key] = _merge(merged.get(key, {}), value, dask=key == "dask")
            else:
                merged[key] = value
        origins.update({keys: f"{file.path}:{line}" for keys, line in file.lines.items()})
    return Environment(
        name=path.stem,
        description=redact(merged.get("description", "")),
        dask=merged.get("dask", {}),
        variables=merged.get("variables", {}),
        cluster=merged.get("cluster", {}),
        clusters=merged.get("clusters", {}),
        engine=merged.get("engine", DASK),
        preload=tuple(merged.get("preload", ())),
        path=path,
        python=merged.get("python"),
        packages=tuple(merged["packages"]) if "packages" in merged else None,
        conda=conda if "conda" in merged else None,
        folder=folder,
        origins=origins,
    )


def _is_other_cluster(base: Mapping[str, Any] | None, over: Mapping[str, Any] | None) -> bool:
    if not base or not over:
        return False
    if "address" in over or "address" in base:
        return True
    return "class" in over and over["class"] != base.get("class", LOCAL_CLUSTER)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any], *, dask: bool) -> dict[str, Any]:
    """Return `base` updated with `over`; for Dask ``work_stealing`` is ``work-stealing``."""
    merged = dict(base)
    for key, value in over.items():
        if dask:
            twins = [k for k in merged if k.replace("_", "-") == key.replace("_", "-")]
            key = twins[0] if twins else key
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value, dask=dask) if both else value
    return merged
