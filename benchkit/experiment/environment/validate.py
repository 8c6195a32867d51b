"""Check the Dask settings and clusters of an environment against its own packages.

Uses the schema, the defaults and the source of the Dask and distributed of the environment, and
the signature of its cluster class. No cluster is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from typing import Any

from benchkit.errors import InvalidEnvironmentError, did_you_mean, install_command
from benchkit.experiment.environment import probe
from benchkit.experiment.environment.environment import Environment
from benchkit.measure.cluster.check import cluster_problems
from benchkit.measure.cluster.spec import LOCAL_CLUSTER

#: Other projects with settings in Dask's configuration, which are not checked.
_OTHER_PROJECTS = {
    "benchkit",
    "cloudprovider",
    "coiled",
    "cuda",
    "gateway",
    "jobqueue",
    "kubernetes",
    "labextension",
    "sql",
    "xarray",
    "yarn",
}
#: Setting below ``dask: {benchkit: ...}`` with a list of further names that are not checked.
OTHER_SETTINGS = "other-settings"


@lru_cache(maxsize=1)
def own_settings() -> dict[str, Any]:
    """Return the Dask settings of this interpreter."""
    packages = {name: metadata.version(name) for name in ("dask", "distributed")}
    return {**probe.settings(), "packages": packages}


def check_environment(environment: Environment) -> None:
    """Check settings and clusters of an environment with the packages of this interpreter."""
    if environment.dask:
        check_settings(environment, own_settings())
    check_clusters(environment, cluster_problems(*measured_parts(environment)))


def measured_parts(environment: Environment) -> tuple[Any, ...]:
    """Return the arguments of `cluster_problems`."""
    return environment.cluster, environment.clusters, environment.engine, environment.preload


def check_settings(environment: Environment, settings: Mapping[str, Any]) -> None:
    """Check the settings below `dask` against the result of `probe.settings`."""
    known = {_normalize(name): name for name in settings["known"]}
    # Below `logging` are names of loggers, with dots.
    open_ = {_normalize(name) for name in (*settings["open"], "logging")}
    roots = {name.split(".")[0] for name in known}
    versions = settings["packages"]
    own = environment.dask.get("benchkit")
    declared = own.get(OTHER_SETTINGS, ()) if isinstance(own, Mapping) else ()
    if not isinstance(declared, (list, tuple)):
        where = environment.where("dask", "benchkit", OTHER_SETTINGS)
        raise InvalidEnvironmentError(f"{where}: {OTHER_SETTINGS} must be a list of names")
    others = _OTHER_PROJECTS.union(declared)
    for root, inner in environment.dask.items():
        if root in others:
            continue
        for keys in _names({root: inner}, (), open_):
            name, where = ".".join(keys), environment.where("dask", *keys)
            if "." in keys[-1]:
                nested = ": {".join([*keys[:-1], *keys[-1].split(".")])
                raise InvalidEnvironmentError(
                    f"{where}: {keys[-1]!r} should be nested: {nested}: ..."
                )
            if _normalize(name) not in known and _normalize(name) not in roots:
                hint = _hint(name, known)
                if name == "dask" and isinstance(inner, Mapping):
                    *_, deepest = _names(inner, (), open_)
                    hint = f"write {'.'.join(deepest)!r} directly below `dask:`"
                elif len(keys) == 1:
                    hint += (
                        "; settings of another project are declared by "
                        f"benchkit: {{{OTHER_SETTINGS}: [{name}]}}"
                    )
                package = "distributed" if root == "distributed" else "dask"
                raise InvalidEnvironmentError(
                    f"{where}: {package} {versions[package]} has no setting {name!r}: {hint}"
                )


def _names(
    values: Mapping[str, Any], keys: tuple[str, ...], open_: set[str]
) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*keys, key)
        if isinstance(value, Mapping) and _normalize(".".join((*keys, key))) not in open_:
            yield from _names(value, (*keys, key), open_)


def _normalize(name: str) -> str:
    """Return a name as Dask compares it: ``work_stealing`` is ``work-stealing``."""
    return name.replace("_", "-")


def _hint(name: str, known: Mapping[str, str]) -> str:
    """Return the most similar setting: with the same last part, else with a similar name."""
    last = _normalize(name).rsplit(".", 1)[-1]
    elsewhere = [other for other in known if other.rsplit(".", 1)[-1] == last and "." in other]
    if len(elsewhere) == 1:
        return f"did you mean {known[elsewhere[0]]!r}?"
    return did_you_mean(_normalize(name), known, "`benchkit env show current` lists all settings")


def check_clusters(environment: Environment, problems: list[tuple[list[str], str]]) -> None:
    """Raise an error for the first problem, with the file and line of its option."""
    if not problems:
        return
    keys, message = problems[0]
    named = re.search(r"has no option '([^']+)'", message)
    named = named or re.match(r"(memory_limit|n_workers|threads_per_worker|address)\b", message)
    option = named[1] if named else "class"
    cls = str(environment.cluster.get("class", LOCAL_CLUSTER))
    if cls.startswith("coiled.") and "cannot be imported" in message:
        message += f"; {install_command('coiled')} installs it"
    raise InvalidEnvironmentError(f"{environment.where(*keys, option)}: {message}")
