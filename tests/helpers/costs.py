"""Print where the time of tests goes: `PYTHONPATH=tests python -m pytest -n 3 -p helpers.costs`.

Seconds of processor time, which other work on the machine changes little; those of a process that
a test started count when the process has ended.
"""

import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

import pytest

#: Rows of the tables of files and of single tests.
MAX_ROWS = 40
COLUMNS = ("tests", "slow", "own CPU", "CPU of processes", "processes", "waits")
_started = 0


def _count_processes(event: str, arguments: tuple[Any, ...]) -> None:
    global _started
    _started += event in ("subprocess.Popen", "os.fork", "os.posix_spawn")


sys.addaudithook(_count_processes)


def _now() -> list[float]:
    own, others = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    servers = sys.modules.get("helpers.command_server")
    forked = servers.CommandServer.cpu_s if servers else 0.0
    return [
        own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime + forked, _started,
        time.perf_counter(),
    ]  # fmt: skip


@contextmanager
def _measured(item: pytest.Item) -> Generator[None]:
    before = _now()
    try:
        yield
    finally:
        item.user_properties.append(("cost", [b - a for a, b in zip(before, _now(), strict=True)]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Measure fixtures."""
    item.user_properties.append(("slow", item.get_closest_marker("slow") is not None))
    with _measured(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Measure the test."""
    with _measured(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Measure the ends of fixtures."""
    with _measured(item):
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print tables by folder, file and test."""
    files: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(COLUMNS))
    folders: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(COLUMNS))
    tests: dict[str, list[float]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "teardown":
                continue
            costs = [value for key, value in report.user_properties if key == "cost"]
            own, others, started, wall = map(sum, zip(*costs, strict=True))
            row: list[float] = [1, dict(report.user_properties)["slow"], own, others, started]
            tests[report.nodeid] = row = [*row, max(0.0, wall - own - others)]
            file = report.nodeid.partition("::")[0]
            files[file] = [a + b for a, b in zip(files[file], row, strict=True)]
            name = "/".join(PurePath(file).parts[:2])
            folders[name] = [a + b for a, b in zip(folders[name], row, strict=True)]
    for table in (folders, files, tests):
        terminalreporter.write_line("  ".join(f"{name:>16}" for name in COLUMNS))
        rows = sorted(table.items(), key=lambda item: -sum(item[1][2:4]))
        for name, row in rows[:MAX_ROWS]:
            terminalreporter.write_line("  ".join(f"{value:>16.1f}" for value in row) + f"  {name}")
    total = [sum(column) for column in zip(*folders.values(), strict=True)]
    terminalreporter.write_line("  ".join(f"{value:>16.1f}" for value in total) + "  all")
