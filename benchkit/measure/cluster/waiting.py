"""Wait until a cluster has all requested workers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchkit.measure.cluster.description import worker_infos
from benchkit.measure.cluster.spec import ClusterSpec, takes_option
from benchkit.measure.deadline import call_with_timeout
from benchkit.measure.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

#: Beginning of the lines that report progress on stderr.
WAITING = "waiting for workers"
#: Seconds until the first such line; each next one follows after twice the time, at most a minute.
REPORT_S = 10.0
_MAX_REPORT_S = 60.0

#: A cluster that does not say how many workers it will have is complete when their number has not
#: changed for so many seconds.
STEADY_S = 10.0
#: Seconds between two checks for errors of a cluster whose workers are awaited.
_CHECK_S = 1.0
#: Seconds to wait for the logs of a cluster whose workers do not come.
_LOGS_TIMEOUT_S = 15.0
_LAST_LINES = 2


def requested_workers(cluster: Any, spec: ClusterSpec) -> int | None:
    """Return the number of workers that were requested of a cluster."""
    listed = (getattr(cluster, "worker_spec", None) or {}).values()
    option = spec.kwargs.get("n_workers")
    counts = [sum(map(_workers_of, listed)), option if isinstance(option, int) else 0]
    return max(counts) or None


def _workers_of(entry: Mapping[str, Any]) -> int:
    """Return the number of workers of an entry: the processes of one job, or of one host."""
    if entry.get("group"):
        return len(entry["group"])
    ssh_options = (entry.get("options") or {}).get("kwargs") or {}
    return int(ssh_options.get("n_workers") or 1)


class DeployErrors(logging.Handler):
    """Errors of a cluster that starts its workers in the background, where nothing raises them.

    A context manager: it collects while the cluster starts. Such as of dask-jobqueue, which only
    logs that a job was refused.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def __enter__(self) -> DeployErrors:
        logging.getLogger("tornado.application").addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        logging.getLogger("tornado.application").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error of a record if it comes from the code that deploys clusters."""
        error = record.exc_info[1] if record.exc_info else None
        for frame, _ in traceback.walk_tb(error.__traceback__ if error else None):
            if frame.f_globals.get("__name__", "").startswith("distributed.deploy."):
                self.texts.append(str(error))
                return


def await_workers(
    client: Client,
    cluster: Any,
    spec: ClusterSpec,
    errors: DeployErrors,
    *,
    limit_s: float,
    end: float,
) -> None:
    """Wait until all workers have connected."""
    requested = requested_workers(cluster, spec)
    if "n_workers" in spec.kwargs and not takes_option(spec.factory(), "n_workers"):
        cluster.scale(requested)  # dask-gateway accepts the number only after the start
    n_workers, since = 0, time.monotonic()
    begin, pause = since, REPORT_S
    report = begin + pause
    while time.monotonic() < end and not errors.texts:
        if (now_s := time.monotonic()) >= report:
            _report_progress(client, spec, requested, now_s - begin, limit_s)
            pause = min(2 * pause, _MAX_REPORT_S)
            report = now_s + pause
        if requested is not None:
            with suppress(TimeoutError, asyncio.TimeoutError):  # two classes in Python 3.10
                client.wait_for_workers(requested, timeout=_CHECK_S)
                return
            continue
        time.sleep(0.2)
        if (now := len(worker_infos(client))) != n_workers:
            n_workers, since = now, time.monotonic()
        elif n_workers and time.monotonic() - since > STEADY_S:
            return
    infos = worker_infos(client).values()
    text = f"{len(infos) if requested else len(infos) or 'no'}"
    text += f" of {requested} workers connected" if requested else " workers connected"
    n_paused = sum(info.get("status") == "paused" for info in infos)
    text += f", {n_paused} of them paused because their memory is full," if n_paused else ""
    text += "" if errors.texts else f" within {limit_s:g} s"
    raise ClusterError(f"{spec.label}: {text}{_reasons(cluster, errors)}")


def _report_progress(
    client: Client, spec: ClusterSpec, requested: int | None, waited_s: float, limit_s: float
) -> None:
    total = f" of {requested}" if requested else ""
    line = (
        f"{WAITING} of {spec.label}: {len(worker_infos(client))}{total} connected after "
        f"{waited_s:.0f} s, limit {limit_s:g} s"
    )
    print(line, file=sys.stderr, flush=True)


def _reasons(cluster: Any, errors: DeployErrors) -> str:
    """Return the last lines of the errors, else of the logs, for the end of a message."""
    if errors.texts:
        lines = [line.strip() for line in errors.texts[0].splitlines()]
        lines = [line for line in lines if line and not line.endswith(":")]
        return f": {' | '.join(lines[-_LAST_LINES:])}"
    get_logs: Callable[[], Any] | None = getattr(cluster, "get_logs", None)
    if get_logs is None or inspect.iscoroutinefunction(get_logs):
        return ""
    logs = call_with_timeout(get_logs, _LOGS_TIMEOUT_S)
    if not isinstance(logs, dict):
        return ""
    lines = [
        f"{name}: {line.strip()}"
        for name, text in logs.items()
        for line in str(text).splitlines()
        if line.strip() and " - INFO - " not in line
    ]
    return f"; the last lines of its logs: {' | '.join(lines[-_LAST_LINES:])}" if lines else ""
