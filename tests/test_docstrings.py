"""Docstrings of everything that a module exports: sections of numpydoc, and examples that run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
from numpydoc.validate import validate

import benchkit

#: Parameters missing or unknown in the docstring; missing or empty section Returns.
CHECKS = {"PR01", "PR02", "RT01", "RT03"}


def modules() -> list[str]:
    found = pkgutil.walk_packages(benchkit.__path__, "benchkit.")
    return ["benchkit", *(m.name for m in found if not m.name.endswith("__main__"))]


def exported(module) -> Iterator[str]:
    """Yield the functions, classes and public methods that a module defines and exports."""
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) or inspect.isclass(value):
            yield f"{module.__name__}.{name}"
        if not inspect.isclass(value):
            continue
        for method, function in vars(value).items():
            plain = getattr(function, "__func__", function)
            if not method.startswith("_") and inspect.isfunction(plain):
                yield f"{module.__name__}.{name}.{method}"


@pytest.mark.parametrize("name", modules())
def test_docstrings_have_sections_and_examples_run(name):
    module = importlib.import_module(name)

    faults = [
        f"{item}: {code} {text}"
        for item in exported(module)
        for code, text in validate(item)["errors"]
        if code in CHECKS
    ]
    results = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)

    assert faults == []
    assert results.failed == 0


def test_exported_finds_functions_classes_and_methods():
    names = set(exported(importlib.import_module("benchkit.store.store")))

    assert {"benchkit.store.store.Store", "benchkit.store.store.Store.add"} <= names
