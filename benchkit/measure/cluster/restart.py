"""Restart the workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dask

if TYPE_CHECKING:
    from distributed import Client

#: Name of the delay after which a cluster closes the nanny of a worker that is absent.
_LOST_WORKER_TIMEOUT = "distributed.deploy.lost-worker-timeout"


def restart_workers(client: Client, n_workers: int, *, timeout_s: float) -> None:
    """Restart all workers of a cluster and wait for them.

    Notes
    -----
    A `SpecCluster` looks for each restarted worker 15 s after it left, and closes the nanny of one
    that is absent then: because it starts slowly, or because the next restart has just begun.
    These checks are put off for a day.
    """
    with dask.config.set({_LOST_WORKER_TIMEOUT: "1 day"}):
        client.restart(timeout=timeout_s)
    client.wait_for_workers(n_workers, timeout=timeout_s)
