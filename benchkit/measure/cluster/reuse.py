"""Clusters that take minutes to start are kept from run to run; their workers are made new.

Knows when a cluster may be used again. Local clusters are not kept: a new one is quicker than a
restart, which can hang.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from benchkit.measure.cluster.spec import ClusterSpec, RunningCluster, open_cluster

__all__ = ["close_kept", "reused_cluster"]

RESTART_TIMEOUT_S = 120.0
_kept: dict[str, tuple[ExitStack, RunningCluster]] = {}


@contextmanager
def reused_cluster(spec: ClusterSpec) -> Iterator[RunningCluster]:
    """Open a cluster with fresh workers; one that is neither local nor an address is kept.

    The next call with the same spec gets the same cluster with restarted workers, or a new
    cluster if that one does not answer or did not get all its workers back. What is kept is
    closed when the process ends.

    Parameters
    ----------
    spec : ClusterSpec
        What to open.

    Raises
    ------
    InvalidClusterError, ClusterError
        See `benchkit.measure.cluster.spec.open_cluster`.
    """
    if spec.is_local or spec.address is not None:
        with open_cluster(spec) as opened:
            yield opened
        return
    key = json.dumps(spec.to_dict(), sort_keys=True, default=str)
    kept = _renewed(key)
    if kept is None:
        stack = ExitStack()
        kept = stack.enter_context(open_cluster(spec))
        _kept[key] = stack, kept
    yield kept


def _renewed(key: str) -> RunningCluster | None:
    """Return the kept cluster with new workers; None, and nothing kept, if it is of no use."""
    if key not in _kept:
        return None
    _, opened = _kept[key]
    n_workers = opened.description["n_workers"]
    try:
        opened.client.restart(timeout=RESTART_TIMEOUT_S)
        opened.client.wait_for_workers(n_workers, timeout=RESTART_TIMEOUT_S)
    except Exception:
        _drop(key)
        return None
    return replace(opened, description={**opened.description, "workers": "restarted"})


def _drop(key: str) -> None:
    stack, _ = _kept.pop(key)
    with suppress(Exception):
        stack.close()


def close_kept(*_: Any) -> None:
    """Close all clusters that are kept."""
    for key in list(_kept):
        _drop(key)


atexit.register(close_kept)
