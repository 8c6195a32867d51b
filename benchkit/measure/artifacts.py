"""What may be kept beside a run on request: Dask's performance report, a cluster dump, memray.

Each costs time that the capture does not, and is therefore asked for by name: ``full+memray``.
Files go into the recording's folder; one that cannot be had is noted, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchkit.measure.deadline import deadline
from benchkit.measure.errors import UsageError, did_you_mean

__all__ = ["EXTRAS", "LEVELS", "keep_extras", "parse_capture"]

LEVELS = ("full", "light", "off")
EXTRAS = ("performance-report", "cluster-dump", "memray")
#: Seconds that starting or ending one may take; none of it is on the run's clock.
PATIENCE_S = 120.0


def parse_capture(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the level and the extras of a capture in words.

    Parameters
    ----------
    text : str
        A level, and extras after ``+``: ``full+performance-report+memray``.

    Raises
    ------
    UsageError
        There is no such level or extra.

    Examples
    --------
    >>> parse_capture("light+memray")
    ('light', ('memray',))
    """
    level, *extras = text.split("+")
    for word, known in ((level, LEVELS), *((extra, EXTRAS) for extra in extras)):
        if word not in known:
            hint = did_you_mean(word, known, f"there are {', '.join(known)}")
            kind = "level of capture" if known is LEVELS else "extra"
            raise UsageError(f"capture {text!r}: no {kind} is called {word!r}: {hint}")
    return level, tuple(dict.fromkeys(extras))


@contextmanager
def keep_extras(
    client: Any, names: tuple[str, ...], folder: Path, note: Callable[[str], None]
) -> Iterator[None]:
    """Keep extras of what runs inside; what goes wrong with them is noted and stops nothing.

    Parameters
    ----------
    client : Client
        Of the cluster.
    names : tuple of str
        Which ones, of `EXTRAS`.
    folder : Path
        Where the files go.
    note : callable
        Told in a line what could not be kept.
    """
    ends: list[tuple[str, Callable[[], Any]]] = []
    for name in names:
        with _noted(name, note), deadline(PATIENCE_S, name):
            ends.append((name, _BEGIN[name](client, folder)))
    try:
        yield
    finally:
        for name, end in reversed(ends):
            with _noted(name, note), deadline(PATIENCE_S, name):
                end()


@contextmanager
def _noted(name: str, note: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        note(f"{name}: {type(error).__name__}: {error}".splitlines()[0])


def _performance_report(client: Any, folder: Path) -> Callable[[], Any]:
    from distributed import performance_report

    stack = ExitStack()
    with client.as_current():
        stack.enter_context(performance_report(filename=str(folder / "performance-report.html")))

    def end() -> None:
        with client.as_current():
            stack.close()

    return end


def _cluster_dump(client: Any, folder: Path) -> Callable[[], Any]:
    return lambda: client.dump_cluster_state(str(folder / "cluster-dump"))


def _memray(client: Any, folder: Path) -> Callable[[], Any]:
    from distributed.diagnostics.memray import memray_workers

    def find_programs() -> None:
        """Let a worker find the programs of its own environment: Dask calls memray by name."""
        import os
        import sys

        here = os.path.dirname(sys.executable)
        if here not in os.environ.get("PATH", "").split(os.pathsep):
            os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])

    client.run(find_programs)
    stack = ExitStack()
    with client.as_current():
        stack.enter_context(memray_workers(str(folder / "memray")))

    def end() -> None:
        with client.as_current():
            stack.close()

    return end


_BEGIN = {
    "performance-report": _performance_report,
    "cluster-dump": _cluster_dump,
    "memray": _memray,
}
