"""Docstrings: sections of numpydoc on the public surface only, and examples that run."""

import ast
import doctest
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numpydoc.validate import validate

import benchkit

ROOT = Path(__file__).parents[1]
#: Parameters missing or unknown in the docstring; missing or empty section Returns.
CHECKS = {"PR01", "PR02", "RT01", "RT03"}
#: Packages whose `__all__` users import from.
PACKAGES = ["benchkit", "benchkit.measure", "benchkit.show.plots"]
#: Their names that only the notebook of a measurement imports.
INTERNAL = {"Collection", "collect", "execute"}
#: What the names of these packages return, the methods of a run, and the tools of agents, who read
#: the docstrings.
RETURNED = {
    "benchkit.analysis.compare.comparison": ["Comparison"],
    "benchkit.predict.whatif": ["what_if"],
    "benchkit.analysis.regression.history": ["History"],
    "benchkit.cli.agents.tools": ["StoreTools"],
    "benchkit.show.dashboard.embed": ["RunPanel"],
    "benchkit.show.render.notebook": ["NotebookPage", "history", "night", "run"],
}
#: Headings of sections that repeat what annotations say.
SECTIONS = re.compile(
    r"^ *(Parameters|Returns|Yields|Raises|Attributes|Warns|See Also)\n *-{3,}$", re.M
)


def modules() -> list[str]:
    found = pkgutil.walk_packages(benchkit.__path__, "benchkit.")
    return ["benchkit", *(m.name for m in found if not m.name.endswith("__main__"))]


def public_things() -> Iterator[Any]:
    """Yield the functions, classes and public methods that users call."""
    names = [(p, set(importlib.import_module(p).__all__) - INTERNAL) for p in PACKAGES]
    for module, exported in [*names, *RETURNED.items()]:
        for name in exported:
            value = getattr(importlib.import_module(module), name)
            if inspect.isfunction(value):
                yield value
            if not inspect.isclass(value):
                continue
            for base in inspect.getmro(value):
                if base.__module__.partition(".")[0] != "benchkit":
                    continue
                yield base
                for method, function in vars(base).items():
                    plain = getattr(function, "__func__", function)
                    if not method.startswith("_") and inspect.isfunction(plain):
                        yield plain


def public_names() -> dict[str, set[str]]:
    """Return the qualified names of the public surface by module."""
    names: dict[str, set[str]] = {}
    for thing in public_things():
        names.setdefault(thing.__module__, set()).add(thing.__qualname__)
    return names


def faults_of_public_names() -> list[str]:
    """Return what is wrong with the docstrings of the public surface, a line each."""
    return [
        f"{module}.{name}: {code} {text}"
        for module, names in public_names().items()
        for name in sorted(names)
        for code, text in validate(f"{module}.{name}")["errors"]
        if code in CHECKS
    ]


def failed_examples() -> list[str]:
    """Return the modules with an example that fails."""
    checked = {name: importlib.import_module(name) for name in modules()}
    flags = doctest.NORMALIZE_WHITESPACE
    results = {name: doctest.testmod(module, optionflags=flags) for name, module in checked.items()}
    return [name for name, result in results.items() if result.failed]


def documented(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield qualified name and docstring of each function and class below a node."""
    for child in ast.iter_child_nodes(tree):
        name = prefix
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            yield name, ast.get_docstring(child) or ""
            name += "." if isinstance(child, ast.ClassDef) else ".<locals>."
        yield from documented(child, name)


@pytest.fixture(scope="module")
def checked() -> dict[str, Any]:
    """Return the faults and the public names, from a new process: captures replace modules here."""
    command = [sys.executable, __file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_public_names_have_sections(checked):
    assert checked["faults"] == []


def test_examples_run(checked):
    assert checked["examples"] == []


def test_internal_names_have_no_sections(checked):
    found = []
    for path in sorted((ROOT / "benchkit").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        public = set(checked["public"].get(module, ()))
        for name, docstring in documented(ast.parse(path.read_text())):
            if name not in public and SECTIONS.search(docstring):
                found.append(f"{module}.{name}")

    assert found == [], "one sentence and comments are enough for what no user calls"


def test_public_things_contain_methods_of_base_classes(checked):
    names = {name for names in checked["public"].values() for name in names}

    assert {"Store.add", "Run", "record", "workload", "task_stream", "Comparison"} <= names
    assert {"run_limits", "RunPlots.task_stream", "Store.runs"} & names


if __name__ == "__main__":
    public = {module: sorted(names) for module, names in public_names().items()}
    result = {"faults": faults_of_public_names(), "examples": failed_examples(), "public": public}
    print(json.dumps(result))
