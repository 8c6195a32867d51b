"""Docstrings of everything that a module exports: sections of numpydoc, and examples that run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numpydoc.validate import validate

import benchkit

ROOT = Path(__file__).parents[1]
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


def faults_of(name: str) -> list[str]:
    """Return what is wrong with the docstrings of a module, a line each."""
    module = importlib.import_module(name)
    faults = [
        f"{item}: {code} {text}"
        for item in exported(module)
        for code, text in validate(item)["errors"]
        if code in CHECKS
    ]
    n_failed = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed
    return faults + [f"{name}: an example fails"] * n_failed


@pytest.fixture(scope="module")
def all_faults() -> dict[str, list[str]]:
    """Return the faults by module, from a new process: captures replace modules in this one."""
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=240, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", modules())
def test_docstrings_have_sections_and_examples_run(name, all_faults):
    assert all_faults[name] == []


def test_exported_finds_functions_classes_and_methods():
    names = set(exported(importlib.import_module("benchkit.store.store")))

    assert {"benchkit.store.store.Store", "benchkit.store.store.Store.add"} <= names


if __name__ == "__main__":
    print(json.dumps({name: faults_of(name) for name in modules()}))
