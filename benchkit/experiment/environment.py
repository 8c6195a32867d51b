"""From a YAML file to an Environment: everything that may differ between two measurements.

Reads `extends`, Dask configuration, variables and clusters, and checks them. Does not build
anything: packages other than those of this interpreter are refused with a clear line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchkit.errors import BadEnvironment, did_you_mean
from benchkit.measure.cluster import ClusterSpec

__all__ = ["CURRENT", "Environment", "find_environment", "list_environments"]

#: The environment that benchkit runs in, with Dask's configuration as it is.
CURRENT = "current"

_KEYS: dict[str, type | tuple[type, ...]] = {
    "extends": str,
    "description": str,
    "python": str,
    "packages": list,
    "conda": str,
    "dask": dict,
    "variables": dict,
    "cluster": dict,
    "clusters": dict,
}
_NEEDS_BUILDING = ("python", "packages", "conda")


@dataclass(frozen=True)
class Environment:
    """What one arm runs in.

    Attributes
    ----------
    name : str
        File name without its ending; "current" for the one benchkit runs in.
    dask : dict
        Dask configuration, laid over the defaults through ``DASK_CONFIG``.
    variables : dict of str to str
        Environment variables of the client and of local workers.
    cluster : dict
        Class and options of the cluster; empty is a LocalCluster sized for the machine.
    clusters : dict of dict
        Named shapes a workload may ask for, laid over `cluster`.
    """

    name: str
    description: str = ""
    dask: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, Any] = field(default_factory=dict)
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as it is recorded with each run."""
        return {
            "name": self.name,
            "description": self.description,
            "dask": dict(self.dask),
            "variables": dict(self.variables),
            "cluster": dict(self.cluster),
            "clusters": {name: dict(shape) for name, shape in self.clusters.items()},
        }


def list_environments(folders: Sequence[Path]) -> dict[str, Path]:
    """Return name -> file of all environments in these folders, the first folder winning."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted([*Path(folder).glob("*.yaml"), *Path(folder).glob("*.yml")]):
            found.setdefault(path.stem, path)
    return found


def find_environment(name: str, folders: Sequence[Path]) -> Environment:
    """Load an environment by name, or by the path of its file.

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
    merged = _load(path, [*folders, path.parent], ())
    cluster = merged.get("cluster", {})
    try:
        ClusterSpec.from_dict(cluster).check()
    except BadEnvironment:
        raise
    except Exception as error:
        raise BadEnvironment(f"{path}: {error}") from error
    return Environment(
        name=path.stem,
        description=merged.get("description", ""),
        dask=merged.get("dask", {}),
        variables={str(k): str(v) for k, v in merged.get("variables", {}).items()},
        cluster=cluster,
        clusters=merged.get("clusters", {}),
        path=path,
    )


def _load(path: Path, folders: Sequence[Path], seen: tuple[str, ...]) -> dict[str, Any]:
    content = _read(path)
    parent_name = content.pop("extends", None)
    if parent_name is None:
        return content
    if parent_name in (*seen, path.stem):
        raise BadEnvironment(f"{path}: extends {parent_name!r}, which extends it in turn")
    parent = list_environments(folders).get(parent_name)
    if parent is None:
        hint = did_you_mean(parent_name, list_environments(folders), "no such file beside it")
        raise BadEnvironment(f"{path}: extends {parent_name!r}, which does not exist: {hint}")
    base = _load(parent, folders, (*seen, path.stem))
    description = content.get("description", base.get("description", ""))
    return {**_merge(base, content), "description": description}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise BadEnvironment(f"{path}{line}: not YAML: {problem}") from error
    if not isinstance(content, dict):
        raise BadEnvironment(f"{path}: holds {type(content).__name__}, not `key: value` lines")
    for key, value in content.items():
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS, f"it takes {', '.join(_KEYS)}")
            raise BadEnvironment(f"{path}: unknown key {key!r}: {hint}")
        if not isinstance(value, _KEYS[key]):
            wanted = {dict: "a mapping", list: "a list", str: "text"}[_KEYS[key]]  # type: ignore[index]
            raise BadEnvironment(f"{path}: {key} is {value!r}, and should be {wanted}")
    building = [key for key in _NEEDS_BUILDING if key in content]
    if building:
        raise BadEnvironment(
            f"{path}: {', '.join(building)}: benchkit cannot build environments yet; "
            "leave it out to use the packages of this interpreter"
        )
    return content


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged
