"""Extension of IPython: ``%%benchkit`` measures a cell, and names of workloads are completed."""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Any, NoReturn

from benchkit.errors import BenchkitError, UsageError
from benchkit.experiment.paths import collect_workloads
from benchkit.experiment.record import interleave


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%benchkit: {message}; %%benchkit --help lists the options")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%benchkit", description="Measure the cell on the current Dask client.")
    parser.add_argument("workload", nargs="?", default="notebook", help="name of the runs")
    parser.add_argument("-n", "--repeat", type=int, default=1, help="number of runs")
    parser.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--store", help="store of the runs; default: as for benchkit")
    return parser


def measure_cell(line: str, cell: str, shell: Any) -> Any:
    """Run a cell on the current client, record it, and return its runs."""
    try:
        options = _parser().parse_args(shlex.split(line))
        tags = dict(tag.split("=", 1) for tag in options.tag if "=" in tag)
        if len(tags) != len(options.tag):
            raise UsageError("%%benchkit: --tag NAME=VALUE, such as --tag variant=A")
        runs = []
        for turn in interleave(["cell"], options.repeat, warm_up=False):
            arguments = {"workload": options.workload, "tags": tags, "store": options.store}
            with turn.record(**arguments) as recorder:
                result = shell.run_cell(cell)
                result.raise_error()
            runs.append(recorder.run)
    except SystemExit:  # --help
        return None
    except BenchkitError as error:
        print(f"error: {error}")
        return None
    if len(runs) == 1:
        return runs[0]
    columns = ["id", "workload", "outcome", "duration"]
    return recorder.store.runs(experiment=turn.experiment)[columns]


def add_magic(shell: Any) -> None:
    """Add ``%%benchkit`` to a session of IPython."""

    def benchkit(line: str, cell: str) -> Any:
        """Measure the cell on the current Dask client."""
        return measure_cell(line, cell, shell)

    shell.register_magic_function(benchkit, magic_kind="cell")


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


def add_completion(shell: Any) -> None:
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
