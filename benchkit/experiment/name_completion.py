"""Completion of names of workloads inside ``benchkit.run("...`` in IPython and notebooks."""

from __future__ import annotations

import re
from typing import Any

from benchkit.errors import BenchkitError
from benchkit.experiment.paths import collect_workloads

#: Functions of benchkit -> number of arguments before the names of workloads.
_FUNCTIONS = {"run": 0, "nightly": 0, "bisect": 0, "ab": 1}
#: A function, its complete arguments (texts and lists) and an open text, at the end of the code.
_OPEN_TEXT = re.compile(
    r"""(?<![\w.])([\w.]+)\(((?:\s*(?:\[[^\[\]]*\]|"[^"]*"|'[^']*')\s*,)*)\s*["']([^"']*)$"""
)
_IDENTIFIER = "benchkit.name_completion"


def complete_names(code: str, namespace: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the open text at the end of the code, and the names that start with it."""
    # names: Names of workloads and variants, sorted; empty where benchkit expects none.
    import benchkit

    match = _OPEN_TEXT.search(code)
    if match is None:
        return "", []
    owner, _, name = match[1].rpartition(".")
    is_attribute = owner != "" and namespace.get(owner) is benchkit
    function = getattr(benchkit, name, None) if is_attribute else namespace.get(match[1])
    known = [name for name in _FUNCTIONS if function is getattr(benchkit, name)]
    if not known or (_FUNCTIONS[known[0]] and not match[2]):
        return match[3], []
    try:
        variants = collect_workloads().variants()
    except BenchkitError:  # a folder of workloads that cannot be read: `run` reports it
        return match[3], []
    names = {text for variant in variants for text in (variant.name, variant.workload.name)}
    return match[3], sorted(name for name in names if name.startswith(match[3]))


def register(shell: Any) -> None:
    """Add the completion of names to a session of IPython."""
    try:
        from IPython.core.completer import SimpleCompletion, context_matcher
    except ImportError:  # IPython before 8.6
        return

    @context_matcher(identifier=_IDENTIFIER, priority=100)
    def match_names(context: Any) -> dict[str, Any]:
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        lines[-1] = lines[-1][: context.cursor_position]
        fragment, names = complete_names("\n".join(lines), shell.user_ns)
        completions = [SimpleCompletion(text=name, type="workload") for name in names]
        return {"completions": completions, "matched_fragment": fragment, "suppress": True}

    matchers = shell.Completer.custom_matchers
    if all(getattr(matcher, "matcher_identifier", "") != _IDENTIFIER for matcher in matchers):
        matchers.append(match_names)
