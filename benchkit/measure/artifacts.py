"""Collect optional artifacts of a run: Dask's performance report, a cluster dump, memray.

Each adds overhead to the run and is therefore selected by name: ``full+memray``. Files are written
to the recording's folder. An artifact that fails becomes a warning of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchkit.measure.arguments import check_text
from benchkit.measure.deadline import deadline
from benchkit.measure.errors import UsageError, did_you_mean, error_summary
from benchkit.measure.secrets import redact, redact_file

LEVELS = ("full", "light", "off")
EXTRAS = ("performance-report", "cluster-dump", "memray")
#: Limit in s for starting or ending an artifact; both happen while the run's clock is off.
ARTIFACT_TIMEOUT_S = 120.0


def parse_capture(text: str) -> tuple[str, tuple[str, ...]]:
    """Split a capture option into its level and its extras.

    Examples
    --------
    >>> parse_capture("light+memray")
    ('light', ('memray',))
    """
    level, *extras = check_text(text, "capture").split("+")
    for name, choices in ((level, LEVELS), *((extra, EXTRAS) for extra in extras)):
        if name not in choices:
            hint = did_you_mean(name, choices, f"there are {', '.join(choices)}")
            kind = "capture level" if choices is LEVELS else "extra"
            raise UsageError(f"capture {text!r}: no {kind} named {name!r}: {hint}")
    return level, tuple(dict.fromkeys(extras))


@contextmanager
def collect_extras(
    client: Any, names: tuple[str, ...], folder: Path, add_error: Callable[[str], None]
) -> Iterator[None]:
    """Collect extras of the body of a `with`; their errors go to `add_error`."""
    closers: list[tuple[str, Callable[[], Any]]] = []
    for name in names:
        with _report_errors(name, add_error), deadline(ARTIFACT_TIMEOUT_S, name):
            closers.append((name, _STARTERS[name](client, folder)))
    try:
        yield
    finally:
        for name, close in reversed(closers):
            with _report_errors(name, add_error), deadline(ARTIFACT_TIMEOUT_S, name):
                close()


@contextmanager
def _report_errors(name: str, add_error: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        add_error(f"{name}: {error_summary(error)}")


def _performance_report(client: Any, folder: Path) -> Callable[[], Any]:
    from distributed import performance_report

    stack = ExitStack()
    with client.as_current():
        stack.enter_context(performance_report(filename=str(folder / "performance-report.html")))

    def close() -> None:
        with client.as_current():
            stack.close()
        redact_file(folder / "performance-report.html")

    return close


def _cluster_dump(client: Any, folder: Path) -> Callable[[], Any]:
    return lambda: dump_cluster(client, folder)


def dump_cluster(client: Any, folder: Path) -> None:
    """Write ``cluster-dump.msgpack.gz`` without secrets: it has the whole configuration of Dask."""
    from distributed.cluster_dump import load_cluster_dump, write_state

    # Only its user can read this folder.
    with TemporaryDirectory(prefix="benchkit-dump-") as private:
        client.dump_cluster_state(str(Path(private) / "dump"))
        state = redact(load_cluster_dump(str(Path(private) / "dump.msgpack.gz")))

    client.sync(
        write_state, lambda: asyncio.sleep(0, state), str(folder / "cluster-dump"), "msgpack"
    )


def _memray(client: Any, folder: Path) -> Callable[[], Any]:
    from distributed.diagnostics.memray import memray_workers

    def extend_path() -> None:
        """Add the folder of the worker's Python to PATH: distributed starts memray by name."""
        import os
        import sys

        folder = os.path.dirname(sys.executable)
        if folder not in os.environ.get("PATH", "").split(os.pathsep):
            os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])

    client.run(extend_path)
    stack = ExitStack()
    with client.as_current():
        stack.enter_context(memray_workers(str(folder / "memray")))

    def close() -> None:
        with client.as_current():
            stack.close()
        for page in (folder / "memray").rglob("*.html"):
            redact_file(page)

    return close


_STARTERS = {
    "performance-report": _performance_report,
    "cluster-dump": _cluster_dump,
    "memray": _memray,
}
