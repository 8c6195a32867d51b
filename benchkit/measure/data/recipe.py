"""Declare a recipe: a function with parameters that makes a dataset.

Handles names, sizes, parameters and keys of datasets; `dataset` handles folders. The recipes that
benchkit ships are next to its workloads, in ``workloads/_recipes``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from benchkit.measure.errors import InvalidParameterError, MissingPackage, UsageError, did_you_mean

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True)
class Recipe:
    """A function that makes a dataset; declare it with `recipe`."""

    name: str  # Name of the recipe: a-z, 0-9 and _
    version: int  # Part of the key: a higher number makes all datasets again
    # Writes files to a folder and returns entries of the manifest; see `recipe`.
    function: Callable[..., Mapping[str, Any]]
    # Parameters of the named sizes.
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def bind(self, size: str | None = None, **given: Any) -> dict[str, Any]:
        """Return all parameters: defaults, replaced by those of the size, replaced by `given`."""
        if size is not None and size not in self.sizes:
            hint = did_you_mean(size, self.sizes, f"there are {', '.join(self.sizes) or 'none'}")
            raise InvalidParameterError(f"recipe {self.name}: no size {size!r}: {hint}")
        params = {
            name: parameter.default
            for name, parameter in list(inspect.signature(self.function).parameters.items())[1:]
        }
        for name, value in {**self.sizes.get(size or "", {}), **given}.items():
            if name not in params:
                hint = did_you_mean(name, params, f"it has {', '.join(params)}")
                raise InvalidParameterError(f"recipe {self.name} has no parameter {name!r}: {hint}")
            kind = type(params[name])  # 1 and 1.0 must give the same key
            try:
                params[name] = kind(value)
            except (TypeError, ValueError) as error:
                raise InvalidParameterError(
                    f"recipe {self.name}: {name}={value!r}: write a value of type {kind.__name__}"
                ) from error
        return params

    def key(self, params: Mapping[str, Any]) -> str:
        """Return the folder name of a dataset: recipe and hash of version and parameters."""
        text = json.dumps([self.name, self.version, dict(params)], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


_RECIPES: dict[str, Recipe] = {}


def recipe(
    name: str, *, version: int, sizes: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[[Callable[..., Mapping[str, Any]]], Recipe]:
    """Declare that a function makes a dataset.

    The function gets an empty folder and, as keywords with defaults, its parameters. It writes
    files there and returns entries of the manifest: ``rows`` (by table), ``tables`` (glob pattern
    of each table's Parquet files), ``seed``, ``generators`` (versions of what made the data).

    Parameters
    ----------
    name : str
        Name of the recipe: a-z, 0-9 and _.
    version : int
        Increase it when the same parameters give other data.
    sizes : mapping of mapping, optional
        Parameters of the named sizes ``tiny``, ``ci``, ``laptop``, ``cluster``.

    Returns
    -------
    decorator
        Returns a `Recipe`.

    Raises
    ------
    UsageError
        The name is invalid.

    Examples
    --------
    >>> @recipe("ones", version=1, sizes={"tiny": {"count": 3}})
    ... def ones(folder, *, count=10):
    ...     (folder / "ones.txt").write_text("1" * count)
    ...     return {"rows": {"ones": count}}
    >>> ones.bind("tiny")
    {'count': 3}
    """
    if not _NAME.match(name):
        raise UsageError(f"{name!r} is not a valid recipe name: use a-z, 0-9 and _, a letter first")

    def declare(function: Callable[..., Mapping[str, Any]]) -> Recipe:
        _RECIPES[name] = Recipe(name, version, function, dict(sizes or {}))
        return _RECIPES[name]

    return declare


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name; the shipped recipes are declared if there is none yet."""
    if name not in _RECIPES:
        declared = dict(_RECIPES)
        for path in shipped_recipes():
            runpy.run_path(str(path))
        _RECIPES.update(declared)  # a user's recipe may have the name of a shipped recipe
    if name not in _RECIPES:
        hint = did_you_mean(name, _RECIPES, f"there are {', '.join(sorted(_RECIPES)) or 'none'}")
        raise UsageError(f"no recipe named {name!r}: {hint}")
    return _RECIPES[name]


def shipped_recipes() -> list[Path]:
    """Return the files of the shipped recipes: in the package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "shipped"
    root = inside if inside.is_dir() else package.parent
    return sorted((root / "workloads" / "_recipes").glob("[!_]*.py"))


def need(package: str, name: str) -> None:
    """Check that a package which a recipe needs is installed."""
    try:
        import_module(package)
    except ImportError as error:
        raise MissingPackage(
            f"recipe {name} needs {package}, not installed here: pip install {package}"
        ) from error


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of packages, for a manifest."""
    return {package: str(import_module(package).__version__) for package in packages}
