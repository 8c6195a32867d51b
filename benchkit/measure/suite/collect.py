"""Collect tests of pytest as workloads: one workload for each node id.

A suite is a path of pytest with a prefix, such as ``pytest:/project/tests/benchmarks``. It takes
the place of a folder of workload files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchkit.measure.errors import UnknownWorkload, UsageError
from benchkit.measure.workloads import Workload

PREFIX = "pytest:"
#: Marks that are no property of a test to select by.
_BUILT_IN_MARKS = ("filterwarnings", "parametrize", "skipif", "usefixtures")
#: Exit code of pytest for wrong arguments, and for a conftest.py that cannot be imported.
_USAGE_ERROR = 4


@dataclass(eq=False)
class TestWorkload(Workload):
    """A test as a workload; its category is the file of the test, without the suffix."""

    __test__ = False

    # Steps by name, without arguments.
    steps: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.steps.setdefault("run", self.main)

    def call(self, step: str, **available: Any) -> Any:
        """Call a step without arguments."""
        return self.steps[step]() if step in self.steps else None

    @property
    def name(self) -> str:
        """Node id of the test."""
        return self.short_name

    @classmethod
    def of(cls, node_id: str, function: Callable[..., Any], **options: Any) -> TestWorkload:
        """Return the workload of a test."""
        return cls(function, node_id.partition(".")[0], node_id, **options)

    def _functions(self) -> list[Callable[..., Any]]:
        return [self.main]


def is_suite(folder: str | Path) -> bool:
    """Return whether a folder of workloads is a suite of tests."""
    return str(folder).startswith(PREFIX)


def absolute_folder(folder: str | Path) -> str:
    """Return the absolute path of a folder of workloads or of a suite."""
    if not is_suite(folder):
        return str(Path(folder).resolve())
    path, colons, test = str(folder).removeprefix(PREFIX).partition("::")
    if not path or not Path(path).exists():
        raise UsageError(f"--pytest {path}: no such file or folder of tests")
    return f"{PREFIX}{Path(path).resolve()}{colons}{test}"


def collect_tests(suite: str) -> tuple[list[TestWorkload], list[tuple[str, str]]]:
    """Collect the tests of a suite as pytest does."""
    path = suite.removeprefix(PREFIX)
    collector = _Collector()
    code, text = run_pytest(["--collect-only", path], collector)
    if code == _USAGE_ERROR:
        raise UsageError(f"--pytest {path}: {error_line(text)}")
    if not collector.workloads and not collector.broken:
        raise UsageError(f"--pytest {path}: pytest finds no tests there")
    return list(collector.workloads.values()), collector.broken


class InProcess:
    """Plugin of pytest for a session in this process that records nothing by itself."""

    def pytest_load_initial_conftests(self, early_config: Any, args: list[str]) -> None:
        """Run the tests in this process, whatever the suite's own options are."""
        if early_config.pluginmanager.hasplugin("xdist"):
            args += ["-n", "0"]

    def pytest_configure(self, config: Any) -> None:
        """Do not record with the fixtures, which the suite's own options may ask for."""
        config.option.benchkit = False


class _Collector(InProcess):
    """Plugin of pytest that keeps the tests of a session."""

    def __init__(self) -> None:
        self.workloads: dict[str, TestWorkload] = {}
        self.broken: list[tuple[str, str]] = []
        self._order: dict[str, int] = {}

    def pytest_itemcollected(self, item: Any) -> None:
        self._order.setdefault(item.nodeid, len(self._order))

    def pytest_collection_finish(self, session: Any) -> None:
        # Plugins such as pytest-randomly shuffle the tests.
        for item in sorted(session.items, key=lambda item: self._order.get(item.nodeid, 0)):
            if hasattr(item, "function"):
                marks = dict.fromkeys(mark.name for mark in item.iter_markers())
                tags = tuple(name for name in marks if name not in _BUILT_IN_MARKS)
                workload = TestWorkload.of(item.nodeid, item.function, tags=tags)
                self.workloads[item.nodeid] = workload

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.broken.append((report.nodeid, error_line(report.longreprtext)))


def run_pytest(arguments: Sequence[str], plugin: InProcess) -> tuple[int, str]:
    """Run pytest in this process."""
    try:
        import pytest
    except ImportError:
        raise UsageError(
            "--pytest: no pytest in this environment: add it to its packages, or pip install pytest"
        ) from None
    # With its entry point, the plugin of benchkit would have another name.
    options = ["-p", "no:benchkit", "-p", "benchkit.pytest_plugin", "-p", "no:cacheprovider", "-s"]
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = int(pytest.main([*arguments, *options], plugins=[plugin]))
    return code, output.getvalue()


def error_line(text: str) -> str:
    """Return the line of pytest's output that has the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    marked += [line.partition(": error: ")[2] for line in lines if ": error: " in line]
    marked += [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return next(iter([*marked, *reversed(lines)]), "pytest gave no reason")


def node_arguments(node_id: str, suites: Iterable[str | Path]) -> list[str]:
    """Return the arguments with which pytest selects one test of a suite."""
    file = node_id.partition("::")[0]
    for root in _roots(suites):
        if (root / file).is_file():
            return [f"--rootdir={root}", f"{root}/{node_id}"]
    raise UnknownWorkload(node_id, [])


def _roots(suites: Iterable[str | Path]) -> Iterator[Path]:
    for suite in suites:
        path = Path(str(suite).removeprefix(PREFIX).partition("::")[0])
        yield from (path, *path.parents)
