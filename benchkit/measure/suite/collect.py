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

__all__ = [
    "InProcess",
    "PREFIX",
    "TestWorkload",
    "absolute_folder",
    "collect_tests",
    "error_line",
    "is_suite",
    "node_arguments",
    "run_pytest",
]

PREFIX = "pytest:"
#: Marks that are no property of a test to select by.
_BUILT_IN_MARKS = ("filterwarnings", "parametrize", "skipif", "usefixtures")
#: Exit code of pytest for wrong arguments, and for a conftest.py that cannot be imported.
_USAGE_ERROR = 4


@dataclass(eq=False)
class TestWorkload(Workload):
    """A test as a workload; its category is the file of the test, without the suffix.

    Parameters
    ----------
    main : callable
        Function of the test.
    category, short_name : str
        File, and node id, which is the whole name.
    parameters, tags, requires, max_threads, features, cluster
        See `benchkit.measure.workload`; the tags are the marks of the test.
    deadline_s, version, metrics, seed, owner
        See `benchkit.measure.workload`.
    steps : dict of str to callable
        Steps by name, without arguments.
    """

    __test__ = False

    steps: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.steps.setdefault("run", self.main)

    def call(self, step: str, **available: Any) -> Any:
        """Call a step without arguments.

        Parameters
        ----------
        step : str
            Name of the step.
        **available
            Not used: the fixtures of the test give its arguments.

        Returns
        -------
        Any
            Result of the step; None if there is no such step.
        """
        return self.steps[step]() if step in self.steps else None

    @property
    def name(self) -> str:
        """Node id of the test."""
        return self.short_name

    @classmethod
    def of(cls, node_id: str, function: Callable[..., Any], **options: Any) -> TestWorkload:
        """Return the workload of a test.

        Parameters
        ----------
        node_id : str
            Node id of the test.
        function : callable
            Function of the test.
        **options
            Further fields of the workload.

        Returns
        -------
        TestWorkload
            The workload.
        """
        return cls(function, node_id.partition(".")[0], node_id, **options)

    def _functions(self) -> list[Callable[..., Any]]:
        return [self.main]


def is_suite(folder: str | Path) -> bool:
    """Return whether a folder of workloads is a suite of tests.

    Parameters
    ----------
    folder : str or path
        Folder, or path of pytest with the prefix ``pytest:``.

    Returns
    -------
    bool
        True with the prefix.
    """
    return str(folder).startswith(PREFIX)


def absolute_folder(folder: str | Path) -> str:
    """Return the absolute path of a folder of workloads or of a suite.

    Parameters
    ----------
    folder : str or path
        Folder, or path of pytest with the prefix ``pytest:``.

    Returns
    -------
    str
        A suite keeps its prefix.

    Raises
    ------
    UsageError
        The file or folder of a suite does not exist.
    """
    if not is_suite(folder):
        return str(Path(folder).resolve())
    path, colons, test = str(folder).removeprefix(PREFIX).partition("::")
    if not path or not Path(path).exists():
        raise UsageError(f"--pytest {path}: no such file or folder of tests")
    return f"{PREFIX}{Path(path).resolve()}{colons}{test}"


def collect_tests(suite: str) -> tuple[list[TestWorkload], list[tuple[str, str]]]:
    """Collect the tests of a suite as pytest does.

    Parameters
    ----------
    suite : str
        Suite, as `absolute_folder` returns it.

    Returns
    -------
    workloads : list of TestWorkload
        In the order of pytest.
    broken : list of (str, str)
        Node ids that cannot be collected, and the reasons.

    Raises
    ------
    UsageError
        pytest is not installed, rejects its arguments, or finds nothing.
    """
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
        """Run the tests in this process, whatever the suite's own options are.

        Parameters
        ----------
        early_config : pytest.Config
            Configuration with the plugins that are installed.
        args : list of str
            Arguments of the command, after the suite's own options.
        """
        if early_config.pluginmanager.hasplugin("xdist"):
            args += ["-n", "0"]

    def pytest_configure(self, config: Any) -> None:
        """Do not record with the fixtures, which the suite's own options may ask for.

        Parameters
        ----------
        config : pytest.Config
            Configuration with all options.
        """
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
    """Run pytest in this process.

    Parameters
    ----------
    arguments : sequence of str
        Arguments of the command.
    plugin : InProcess
        Plugin with hooks, in addition to those that are installed.

    Returns
    -------
    code : int
        Exit code of pytest.
    text : str
        What pytest printed.

    Raises
    ------
    UsageError
        pytest is not installed.
    """
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
    """Return the line of pytest's output that has the error.

    Parameters
    ----------
    text : str
        Output, or the representation of a failure.

    Returns
    -------
    str
        The first line that pytest marks as an error; otherwise the last line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    marked += [line.partition(": error: ")[2] for line in lines if ": error: " in line]
    marked += [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return next(iter([*marked, *reversed(lines)]), "pytest gave no reason")


def node_arguments(node_id: str, suites: Iterable[str | Path]) -> list[str]:
    """Return the arguments with which pytest selects one test of a suite.

    Parameters
    ----------
    node_id : str
        Node id of the test, relative to the root folder of the suite.
    suites : iterable of str or path
        Suites, as `absolute_folder` returns them.

    Returns
    -------
    list of str
        Arguments of the command.

    Raises
    ------
    UnknownWorkload
        No suite has the file of the test.
    """
    file = node_id.partition("::")[0]
    for root in _roots(suites):
        if (root / file).is_file():
            return [f"--rootdir={root}", f"{root}/{node_id}"]
    raise UnknownWorkload(node_id, [])


def _roots(suites: Iterable[str | Path]) -> Iterator[Path]:
    for suite in suites:
        path = Path(str(suite).removeprefix(PREFIX).partition("::")[0])
        yield from (path, *path.parents)
