"""Record tests as runs with pytest: `--benchkit` (or `--benchmark`), and fixtures for clusters.

A test is recorded during its call if it has the mark ``benchkit`` or takes the fixture
``small_client`` or ``client``, and inside blocks of the fixtures ``benchkit_record`` and
``benchmark_*``. Its run has the node id as workload. Without the option nothing is recorded, and
nothing of benchkit is imported but this package and its fixtures.

The fixtures have the names of coiled/benchmarks' suite, so that its test modules run unmodified;
see `benchkit.pytest_plugin.reference`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Generator
from typing import Any

import pytest

from benchkit.pytest_plugin.recording import (
    PROPERTY,
    TestRecorder,
    environment_name,
    experiment_id,
    is_recorded,
    recorder_of,
)
from benchkit.pytest_plugin.session import SESSION

__all__: list[str] = []

#: Parameter that repeats a test, and the part of a node id that it adds.
_REPEAT = "benchkit_repetition"
_REPEAT_IN_ID = re.compile(r"-?repeat\d+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("benchkit", "performance runs of Dask")
    group.addoption(
        "--benchkit",
        action="store_true",
        help="Record the tests that have the mark benchkit or use one of benchkit's fixtures.",
    )
    group.addoption(
        "--benchkit-store", metavar="DIR", help="Store of the runs; default: as for benchkit."
    )
    group.addoption(
        "--benchkit-environment",
        metavar="NAME",
        help="Environment: its cluster is used, its name is in the runs; default: current.",
    )
    group.addoption(
        "--benchkit-repeat",
        metavar="N",
        type=int,
        help="Record each test N times, in turns within a module; default: 1.",
    )
    parser.addini("benchkit_store", "Store of the runs.")
    parser.addini("benchkit_environment", "Environment of the runs.")
    parser.addini("benchkit_repeat", "Number of runs of each test.")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> Generator[None, object, object]:
    """Add `--benchmark`, unless a conftest.py has an option of that name."""
    SESSION["config"] = early_config
    try:
        result = yield
    except Exception as error:
        from benchkit.measure.errors import BenchkitError

        cause = getattr(error, "cause", None)  # of the failed import of a conftest.py
        if isinstance(cause, BenchkitError):
            raise pytest.UsageError(f"--benchkit-environment: {cause}") from error
        raise
    try:
        parser.addoption("--benchmark", action="store_true", help="The same as --benchkit.")
    except ValueError:
        pass
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks and read the options."""
    SESSION["config"] = config
    for line in (
        "benchkit: record the test with `pytest --benchkit`",
        "client(name, upload_file=None, worker_plugin=None): cluster of the fixture `client`",
        "shuffle_tasks: shuffle by tasks",
        "shuffle_p2p: P2P shuffle",
    ):
        config.addinivalue_line("markers", line)
    option = config.option
    option.benchkit = option.benchkit or bool(getattr(option, "benchmark", False))
    option.benchkit_store = option.benchkit_store or config.getini("benchkit_store") or None
    option.benchkit_environment = environment_name(config)
    repeat = option.benchkit_repeat
    if repeat is None:
        text = config.getini("benchkit_repeat") or "1"
        repeat = int(text) if text.isdecimal() else 0
    if repeat < 1:
        raise pytest.UsageError("benchkit-repeat: give a number of runs, 1 or more")
    option.benchkit_repeat = repeat


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give the processes of xdist one experiment."""
    node.workerinput["benchkit_experiment"] = experiment_id(node.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the tests that are recorded."""
    repeat = metafunc.config.option.benchkit_repeat
    if metafunc.config.option.benchkit and repeat > 1 and is_recorded(metafunc):
        metafunc.fixturenames.append(_REPEAT)
        names = [f"repeat{number}" for number in range(1, repeat + 1)]
        metafunc.parametrize(_REPEAT, range(repeat), ids=names)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order repeated tests by module, repetition, test: interleaved runs see the same machine."""
    modules: dict[str, int] = {}
    order = [
        (modules.setdefault(item.nodeid.partition("::")[0], len(modules)), _repetition(item))
        for item in items
    ]
    if any(repetition for _, repetition in order):
        ordered = sorted(zip(order, range(len(items)), items, strict=True), key=lambda row: row[:2])
        items[:] = [item for _, _, item in ordered]


def _repetition(item: pytest.Item) -> int:
    callspec = getattr(item, "callspec", None)
    return int(callspec.params.get(_REPEAT, 0)) if callspec else 0


def workload_name(item: pytest.Item) -> str:
    """Return the workload of a test: its node id, without the number of the repetition."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or _REPEAT not in callspec.params:
        return item.nodeid
    base, bracket, parameters = item.nodeid.partition("[")
    parameters = _REPEAT_IN_ID.sub("", parameters.rstrip("]")).strip("-")
    return f"{base}{bracket}{parameters}]" if parameters else base


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record the function of a test, whatever calls it: pytest, unittest or an event loop."""
    recorder = recorder_of(item, workload_name(item), _repetition(item))
    is_marked = item.get_closest_marker("benchkit") is not None
    records = is_marked or recorder.client is not None or recorder.open is not None
    if not (isinstance(item, pytest.Function) and records):
        return (yield)
    function = item.obj
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def recorded(*args: Any, **kwargs: Any) -> Any:
            async with recorder.block(is_call=True):
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with recorder.block(is_call=True):
                return function(*args, **kwargs)

    item.obj = recorded
    if item.instance is not None:  # unittest calls a coroutine by the name of its method
        setattr(item.instance, item.name, recorded)
    try:
        return (yield)
    finally:
        item.obj = function


@pytest.fixture
def benchkit_recorder(request: pytest.FixtureRequest) -> TestRecorder:
    """Return what records the blocks of the test."""
    item = request.node
    return recorder_of(item, workload_name(item), _repetition(item))


@pytest.fixture
def benchkit_record(benchkit_recorder: TestRecorder) -> Callable[..., Any]:
    """Return a context manager, called with a client or nothing, that records its block.

    It serves `with` and `async with`.
    """
    return benchkit_recorder.block


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many runs were stored."""
    runs: set[str] = set()
    for reports in terminalreporter.stats.values():
        for report in reports:
            properties = getattr(report, "user_properties", ())
            runs |= {value for name, value in properties if name == PROPERTY}
    if runs:
        from benchkit.formatting import counted

        terminalreporter.write_line(
            f"benchkit: {counted(len(runs), 'run')} stored; `benchkit list runs` lists them"
        )
        n_processes = getattr(terminalreporter.config.option, "numprocesses", None) or 1
        if n_processes > 1:
            terminalreporter.write_line(
                f"benchkit: -n {n_processes}: clusters on one machine disturb each other: the "
                f"runs have the tag parallel={n_processes}"
            )


pytest_plugins = ["benchkit.pytest_plugin.fixtures"]
