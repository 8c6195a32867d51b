"""Read the source of functions, to show it and to detect changes."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any, cast

#: New name -> name under which source hashes were first computed. The hash of a workload contains
#: the names that its functions use: a helper that is renamed without an entry here starts the
#: history of every workload that uses it anew. Never remove an entry.
FIRST_NAMES = {
    "ABSENT_RESOURCE": "NOBODY",
    "ClusterError": "ClusterTrouble",
    "INTENDED_ERROR": "MEANT",
    "InvalidParameterError": "BadParameter",
    "MAX_GROWTH": "STEEPEST",
    "TASKS_PER_TOPIC": "TOGETHER",
    "_logged_events": "_told",
    "_release": "_let_go",
    "_restore_workers": "_give_back",
    "_tasks_with_absent_resource": "_tasks_of_nobody",
    "allocated": "eaten",
    "await_graph": "known_since",
    "benchkit.measure.data.random": "benchkit.measure.generate",
    "graph_family": "a_family",
    "large_task": "culprit",
    "log_number": "tell",
    "logged_numbers": "numbers_told",
    "logged_times": "events_told",
    "logged_workers": "who_told",
    "memory_ratio": "grain",
    "reports": "told",
    "run_in_new_thread": "apart",
    "sample_object": "an_object",
}


def first_name(name: str) -> str:
    """Return the name that a module, function or attribute had when hashes were introduced."""
    return FIRST_NAMES.get(name, name)


def source_of(function: Callable[..., Any]) -> str:
    """Return the source of a function."""
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except (OSError, TypeError):
        return ""


def normalized_source(function: Callable[..., Any]) -> str:
    """Return the syntax tree of a function as text: no docstrings, positions or decorators."""
    try:
        tree = ast.parse(source_of(function))
    except SyntaxError:  # for example a lambda inside a line
        return source_of(function)
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(getattr(body[0], "value", None), ast.Constant)
            and isinstance(cast("ast.Constant", body[0].value).value, str)
        ):
            node.body = body[1:] or [ast.Pass()]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.decorator_list = []  # tags and deadlines do not change what is computed
        _restore_first_names(node)
        if not getattr(node, "type_params", True):  # new in Python 3.12; older histories lack it
            delattr(node, "type_params")
    # Python 3.13 leaves empty lists out: the history of each workload would begin anew.
    options = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(tree, **options)


def _restore_first_names(node: ast.AST) -> None:
    for field in ("id", "attr", "name", "module", "arg", "value"):  # value: of a string
        name = getattr(node, field, None)
        if isinstance(name, str) and name in FIRST_NAMES:
            setattr(node, field, FIRST_NAMES[name])


def constants_of(function: Callable[..., Any]) -> str:
    """Return the literal values of the global names that a function uses."""
    # returned: A line per constant, sorted: `SLEEP_S = 0.5`.
    values = getattr(function, "__globals__", {})
    return "".join(
        f"{first_name(name)} = {values[name]!r}\n"
        for name in sorted(names_used(function), key=first_name)
        if name in values and not name.startswith("__") and _is_plain(values[name])
    )


def _is_plain(value: object) -> bool:
    if not isinstance(value, (bool, int, float, str, bytes, tuple, list, dict)):
        return False
    try:
        ast.literal_eval(repr(value))  # a repr of functions has memory addresses
    except (SyntaxError, ValueError):
        return False
    return True


def names_used(function: Callable[..., Any]) -> set[str]:
    """Return the global names that a function, or a function inside it, uses."""
    code = getattr(function, "__code__", None)
    if code is None:
        try:
            tree = ast.parse(source_of(function))
        except SyntaxError:
            return set()
        return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names: set[str] = set()
    stack = [code]
    while stack:
        current = stack.pop()
        names.update(current.co_names)
        stack.extend(const for const in current.co_consts if inspect.iscode(const))
    return names
