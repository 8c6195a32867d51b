"""Describe environments as flat rows: list them, show their content, compare two."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask

from benchkit.analysis.compare.environment_diff import package_rank
from benchkit.errors import BenchkitError
from benchkit.experiment.environment.build import find_build
from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import find_environment, list_environments
from benchkit.experiment.environment.requirements import redacted
from benchkit.measure.provenance import effective_config
from benchkit.measure.secrets import redact
from benchkit.values import flatten


def environment_rows(folders: Sequence[Path], *, check: bool = False) -> list[dict[str, Any]]:
    """Return a row per environment of these folders; the environment of benchkit is first."""
    # returned: `name`, `description`, `python` and `dask` (installed version, or the requirement
    # before the build), `built` (None: nothing to build), `bytes`, `hash`, `error`.
    return [_row(name, folders, check) for name in [CURRENT, *list_environments(folders)]]


def _row(name: str, folders: Sequence[Path], check: bool) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        ("name", "description", "python", "dask", "built", "bytes", "hash", "error")
    )
    row |= {"name": name, "error": ""}
    try:
        environment = find_environment(name, folders, check=check)
        built = find_build(environment)
    except BenchkitError as error:
        return row | {"error": str(error)}
    row["description"] = environment.description
    row["built"] = built is not None if environment.needs_building else None
    if built is None:
        by_name = {requirement.name: requirement for requirement in environment.requirements()}
        release = by_name.get("dask") or by_name.get("distributed")
        version = (str(release.specifier) or release.source) if release else ""
        return row | {"python": environment.python or "", "dask": version.removeprefix("==")}
    if environment.needs_building:
        row |= {"bytes": built.nbytes, "hash": built.hash}
    return row | {"python": built.python_version, "dask": built.packages.get("dask", "")}


def show_rows(environment: Environment) -> list[dict[str, Any]]:
    """Return the content of an environment, with `extends` applied."""
    return [
        {"kind": kind, "name": name, "value": value, "from": _origin(environment, kind, name)}
        for (kind, name), value in _content(environment, find_build(environment)).items()
    ]


def differences(first: Environment, second: Environment) -> list[dict[str, Any]]:
    """Return the differences between two environments."""
    builds = (find_build(first), find_build(second))
    comparable = all(built is not None for built in builds)
    a, b = (
        _content(environment, built if comparable else None)
        for environment, built in zip((first, second), builds, strict=True)
    )
    rows = [
        {"kind": kind, "name": name, "a": a.get((kind, name)), "b": b.get((kind, name))}
        for kind, name in dict.fromkeys([*a, *b])
        if a.get((kind, name)) != b.get((kind, name))
        and (kind, name) not in _NOT_COMPARED
        # Requirements are not compared if the installed packages are known.
        and not (comparable and kind == "requirement")
    ]
    packages = [row for row in rows if row["kind"] == "package"]
    packages.sort(key=lambda row: package_rank(str(row["name"]), None in row.values()))
    return packages + [row for row in rows if row["kind"] != "package"]


#: Rows that differ between any two environments.
_NOT_COMPARED = {
    ("definition", name)
    for name in ("name", "description", "file", "bytes", "created", "hash", "python requirement")
}


def _content(environment: Environment, built: Built | None) -> dict[tuple[str, str], Any]:
    spec = environment.to_dict()
    content: dict[tuple[str, str], Any] = {("definition", "name"): environment.name}
    content["definition", "description"] = environment.description
    if environment.path:
        content["definition", "file"] = str(environment.path)
    if environment.python:
        content["definition", "python requirement"] = environment.python
    if "engine" in spec:
        content["definition", "engine"] = environment.engine
    for line in environment.preload:
        content["preload", line] = line
    if environment.conda:
        content["definition", "conda"] = environment.conda.name
    if built is not None:
        content["definition", "python"] = built.python_version
        if not built.is_own:
            content["definition", "hash"] = built.hash
            content["definition", "bytes"] = built.nbytes
            content["definition", "created"] = built.created
            if built.as_of:
                content["definition", "as of"] = built.as_of
    for line in spec["packages"] or ():
        content["requirement", line] = line
    if built is not None:
        content.update({("source", line): state for line, state in built.sources.items()})
        content.update({("package", name): version for name, version in built.packages.items()})
    for name, value in flatten(_config(environment, built)):
        content["config", name] = value
    for name, value in spec["variables"].items():
        content["variable", name] = value
    for name, value in flatten(spec["cluster"]):
        content["cluster", name] = value
    for name, value in flatten(spec["clusters"]):
        content["shape", name] = value
    return content


def _config(environment: Environment, built: Built | None) -> Mapping[str, Any]:
    """Return Dask's settings in force: defaults, then the user's files, then the environment's."""
    if environment.name == CURRENT:
        return effective_config()
    layers: list[Mapping[str, Any]] = []
    if built is not None:
        # The kernel sets DASK_CONFIG itself, and does not read the files of the prefix of this
        # interpreter.
        hidden = (os.environ.get("DASK_CONFIG"), *(() if built.is_own else (_prefix_files(),)))
        paths = [path for path in dask.config.paths if path not in hidden]
        layers = [built.settings()["defaults"], *dask.config.collect_yaml(paths=paths)]
    return redact(dask.config.merge(*layers, environment.dask))


def _prefix_files() -> str:
    return os.path.join(sys.prefix, "etc", "dask")


def _origin(environment: Environment, kind: str, name: str) -> str:
    if kind == "config":
        # Keys in files may be written with underscores.
        origins = {
            ".".join(keys[1:]).replace("_", "-"): origin
            for keys, origin in environment.origins.items()
            if keys[0] == "dask" and len(keys) > 1
        }
        return origins.get(name.replace("_", "-"), "default")
    roots = {"variable": "variables", "cluster": "cluster", "shape": "clusters"}
    if kind in roots:
        return environment.where(roots[kind], *name.split("."))
    if kind == "requirement":
        lines = [redacted(line) for line in environment.packages or ()]
        return environment.where("packages", str(lines.index(name)))
    return ""
