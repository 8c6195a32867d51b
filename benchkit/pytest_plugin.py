"""Record tests as runs with `pytest --benchkit`, so that a test suite moves one test at a time.

A test is recorded during its call if it has the mark ``benchkit``, and inside a ``with`` block of
the fixture ``benchkit_record``. Its run has the node id as workload. Without the option both do
nothing, and nothing of benchkit is imported but this file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

__all__: list[str] = []

_PROPERTY = "benchkit_run"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("benchkit", "performance runs of Dask")
    group.addoption(
        "--benchkit",
        action="store_true",
        help="Record the tests that have the mark benchkit or use the fixture benchkit_record.",
    )
    group.addoption(
        "--benchkit-store", metavar="DIR", help="Store of the runs; default: as for benchkit."
    )
    group.addoption(
        "--benchkit-environment",
        metavar="NAME",
        default="current",
        help="Name of the environment in the runs; default: current.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", "benchkit: record the test with `pytest --benchkit`")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Record the call of a marked test."""
    if pyfuncitem.get_closest_marker("benchkit") is None:
        return (yield)
    with _recorded(pyfuncitem):
        return (yield)


@pytest.fixture
def benchkit_record(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Any]]:
    """Return a context manager, called with a client or nothing, that records its block."""
    return lambda client=None: _recorded(request.node, client)


@contextmanager
def _recorded(item: pytest.Item, client: Any = None) -> Iterator[Any]:
    options = item.config.option
    if not options.benchkit:
        yield None
        return
    from distributed import Client

    from benchkit.errors import UsageError
    from benchkit.experiment.record import record

    if client is None:
        values = getattr(item, "funcargs", {}).values()
        client = next((value for value in values if isinstance(value, Client)), None)
    try:
        recorder = record(
            client,
            workload=item.nodeid,
            store=options.benchkit_store,
            environment=options.benchkit_environment,
        )
    except UsageError as error:
        hint = "a test that creates its client uses `with benchkit_record(client):`"
        pytest.fail(f"{error}; {hint}", pytrace=False)
    try:
        with recorder:
            yield recorder
    finally:
        if recorder.run is not None:
            item.user_properties.append((_PROPERTY, recorder.run.id))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many runs were stored."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    runs = [
        value
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    if runs:
        from benchkit.formatting import counted

        terminalreporter.write_line(
            f"benchkit: {counted(len(runs), 'run')} stored; `benchkit list runs` lists them"
        )
