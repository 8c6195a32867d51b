"""``%%benchkit``: measure a cell of a notebook as a run, after ``%load_ext benchkit``."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from benchkit.errors import BenchkitError, UsageError
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


def register(shell: Any) -> None:
    """Add ``%%benchkit`` to a session of IPython."""

    def benchkit(line: str, cell: str) -> Any:
        """Measure the cell on the current Dask client."""
        return measure_cell(line, cell, shell)

    shell.register_magic_function(benchkit, magic_kind="cell")
