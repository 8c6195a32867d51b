"""Reuse clusters that take minutes to start; restart their workers before each run.

Local clusters are not reused: a new cluster starts faster than a restart, which can hang.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from benchkit.measure.cluster.restart import restart_workers
from benchkit.measure.cluster.running import RunningCluster, open_cluster
from benchkit.measure.cluster.spec import ClusterSpec

#: A restart takes seconds; a cluster that hangs for longer is replaced by a new one.
RESTART_TIMEOUT_S = 120.0
_clusters: dict[str, tuple[ExitStack, RunningCluster]] = {}


@contextmanager
def reused_cluster(spec: ClusterSpec) -> Iterator[RunningCluster]:
    """Open a cluster with fresh workers; keep it if it is neither local nor an address.

    The next call with the same spec gets the same cluster with restarted workers, or a new
    cluster if it does not respond or did not get all its workers back. These clusters are closed
    when the process ends.
    """
    if spec.is_local or spec.address is not None:
        with open_cluster(spec) as cluster:
            yield cluster
        return
    key = json.dumps(spec.to_dict(), sort_keys=True, default=str)
    running = _restart(key)
    if running is None:
        stack = ExitStack()
        running = stack.enter_context(open_cluster(spec))
        _clusters[key] = stack, running
    yield running


def _restart(key: str) -> RunningCluster | None:
    """Return the open cluster with new workers; close it and return None if that fails."""
    if key not in _clusters:
        return None
    _, running = _clusters[key]
    if not running.description["nannies"]:  # a restart would end its workers for good
        _drop(key)
        return None
    n_workers = running.description["n_workers"]
    try:
        restart_workers(running.client, n_workers, timeout_s=RESTART_TIMEOUT_S)
    except Exception:
        _drop(key)
        return None
    return replace(running, description={**running.description, "workers": "restarted"})


def _drop(key: str) -> None:
    stack, _ = _clusters.pop(key)
    with suppress(Exception):
        stack.close()


def close_reused_clusters() -> None:
    """Close all clusters that are open for reuse."""
    for key in list(_clusters):
        _drop(key)


atexit.register(close_reused_clusters)
