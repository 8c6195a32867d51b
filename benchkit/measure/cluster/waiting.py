"""Wait until a cluster has all the workers that it was asked for."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from distributed import Client

from benchkit.measure.cluster.description import worker_infos
from benchkit.measure.cluster.spec import ClusterSpec, takes_option
from benchkit.measure.deadline import call_with_timeout
from benchkit.measure.errors import ClusterError

__all__ = ["await_workers", "requested_workers"]

#: A cluster that does not say how many workers it will have is complete when their number has not
#: changed for so many seconds.
STEADY_S = 10.0
#: Seconds to wait for the logs of a cluster whose workers do not come.
_LOGS_TIMEOUT_S = 15.0
_LAST_LINES = 3


def requested_workers(cluster: Any, spec: ClusterSpec) -> int | None:
    """Return the number of workers that a cluster was asked for.

    Parameters
    ----------
    cluster : Cluster
        The cluster, which need not be complete.
    spec : ClusterSpec
        What it was started from.

    Returns
    -------
    int or None
        From the option ``n_workers``, else from the cluster's own list, as of SSHCluster: it has a
        worker per host. None if neither says it.
    """
    if isinstance(spec.kwargs.get("n_workers"), int):
        return int(spec.kwargs["n_workers"])
    listed = getattr(cluster, "worker_spec", None)
    if not listed:
        return None
    # An entry can stand for a group of workers: the processes of one job, or of one host.
    return sum(len(entry.get("group") or [entry]) for entry in listed.values())


def await_workers(client: Client, cluster: Any, spec: ClusterSpec, timeout_s: float) -> None:
    """Wait until all workers have connected.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    cluster : Cluster
        The cluster.
    spec : ClusterSpec
        What it was started from.
    timeout_s : float
        Limit in s.

    Raises
    ------
    ClusterError
        Not all workers connected in time, or none; with the last lines of the cluster's logs.
    """
    requested = requested_workers(cluster, spec)
    if requested is None:
        _await_steady(client, cluster, spec, timeout_s)
        return
    if "n_workers" in spec.kwargs and not takes_option(spec.factory(), "n_workers"):
        cluster.scale(requested)  # dask-gateway accepts the number only after the start
    try:
        client.wait_for_workers(requested, timeout=timeout_s)
    except TimeoutError as error:
        text = (
            f"{len(worker_infos(client))} of {requested} workers connected within {timeout_s:g} s"
        )
        raise ClusterError(f"{spec.label}: {text}{_logs(cluster)}") from error


def _await_steady(client: Client, cluster: Any, spec: ClusterSpec, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    n_workers, since = 0, time.monotonic()
    while not n_workers or time.monotonic() - since < STEADY_S:
        if time.monotonic() > end:
            text = f"{n_workers or 'no'} workers connected within {timeout_s:g} s"
            raise ClusterError(f"{spec.label}: {text}{_logs(cluster)}")
        time.sleep(0.2)
        now = len(worker_infos(client))
        if now != n_workers:
            n_workers, since = now, time.monotonic()


def _logs(cluster: Any) -> str:
    """Return the last lines of the logs of scheduler and jobs, for the end of a message."""
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
        if line.strip()
    ]
    return f"; the last lines of its logs: {' | '.join(lines[-_LAST_LINES:])}" if lines else ""
