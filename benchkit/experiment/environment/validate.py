"""Whether Dask's settings and the clusters of an environment are ones its own packages know.

Asks the schema, the defaults and the source of the arm's own Dask and distributed, and the
signature of its own cluster class. Starts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from benchkit.errors import InvalidEnvironmentError, did_you_mean
from benchkit.experiment.environment import probe
from benchkit.experiment.environment.environment import Environment
from benchkit.measure.cluster.check import cluster_problems
from benchkit.measure.cluster.spec import LOCAL_CLUSTER

__all__ = ["check_clusters", "check_environment", "check_settings", "own_settings"]

#: Other projects that read Dask's configuration; theirs cannot be checked.
_OTHERS = ("coiled", "gateway", "jobqueue", "kubernetes", "cloudprovider", "benchkit", "xarray")


@lru_cache(maxsize=1)
def own_settings() -> dict[str, Any]:
    """Return what `probe.settings` finds with the packages of this interpreter."""
    return {**probe.settings(), "packages": {"distributed": metadata.version("distributed")}}


def check_environment(environment: Environment) -> None:
    """Check settings and clusters of an environment with the packages of this interpreter.

    Raises
    ------
    InvalidEnvironmentError
        With file and line: a setting or an option that does not exist, or a cluster class that
        cannot be imported.
    """
    if environment.dask:
        check_settings(environment, own_settings())
    check_clusters(environment, cluster_problems(environment.cluster, environment.clusters))


def check_settings(environment: Environment, settings: Mapping[str, Any]) -> None:
    """Check the settings below `dask` against what `probe.settings` found.

    Parameters
    ----------
    environment : Environment
        What is checked.
    settings : mapping
        ``known`` and ``open`` names, and ``packages``, of the environment's own Python.

    Raises
    ------
    InvalidEnvironmentError
        A setting that the environment's Dask does not know.
    """
    known = {_plain(name): name for name in settings["known"]}
    open_ = {_plain(name) for name in settings["open"]}
    packages = settings["packages"]
    roots = {name.split(".")[0] for name in known}
    who = f"distributed {packages['distributed']}"
    for root, inner in environment.dask.items():
        if _plain(root) not in roots and _is_of_another(root, roots, packages):
            continue
        for keys in _names({root: inner}, (), open_):
            name, place = ".".join(keys), environment.where("dask", *keys)
            if "." in keys[-1]:
                nested = ": {".join([*keys[:-1], *keys[-1].split(".")])
                raise InvalidEnvironmentError(
                    f"{place}: {keys[-1]!r} should be nested: {nested}: ..."
                )
            if _plain(name) not in known and _plain(name) not in roots:
                hint = _hint(name, known)
                raise InvalidEnvironmentError(f"{place}: {who} has no setting {name!r}: {hint}")


def _names(
    values: Mapping[str, Any], keys: tuple[str, ...], open_: set[str]
) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield (*keys, key)
        if isinstance(value, Mapping) and _plain(".".join((*keys, key))) not in open_:
            yield from _names(value, (*keys, key), open_)


def _plain(name: str) -> str:
    """Return a name as Dask compares it: ``work_stealing`` is ``work-stealing``."""
    return name.replace("_", "-")


def _is_of_another(root: str, roots: Iterable[str], packages: Mapping[str, str]) -> bool:
    """Whether a name at the top belongs to another project: one we know, or one installed."""
    if root in _OTHERS:
        return True
    if did_you_mean(root, roots, ""):
        return False
    names = (root.replace("-", "_"), f"dask_{root.replace('-', '_')}")
    return any(
        _plain(name) in packages or (name.isidentifier() and find_spec(name) is not None)
        for name in names
    )


def _hint(name: str, known: Mapping[str, str]) -> str:
    """Name the nearest setting: by the whole name, else one that ends alike elsewhere."""
    last = _plain(name).rsplit(".", 1)[-1]
    elsewhere = [other for other in known if other.rsplit(".", 1)[-1] == last and "." in other]
    if len(elsewhere) == 1:
        return f"did you mean {known[elsewhere[0]]!r}?"
    return did_you_mean(_plain(name), known, "`benchkit env show current` lists those there are")


def check_clusters(environment: Environment, troubles: list[tuple[list[str], str]]) -> None:
    """Raise the first of these troubles, with the file and line of the option that it names.

    Raises
    ------
    InvalidEnvironmentError
        There is one.
    """
    if not troubles:
        return
    keys, message = troubles[0]
    named = re.search(r"has no option '([^']+)'", message)
    if named:
        option = named[1]
    elif message.startswith("memory_limit"):
        option = "memory_limit"
    else:
        option = "class"
    cls = str(environment.cluster.get("class", LOCAL_CLUSTER))
    if cls.startswith("coiled.") and "cannot be imported" in message:
        message += "; pip install 'benchkit[coiled]' brings it"
    raise InvalidEnvironmentError(f"{environment.where(*keys, option)}: {message}")
