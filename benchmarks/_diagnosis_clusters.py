"""Clusters of `benchmarks/diagnosis.py`: a kept one for faults that leave nothing behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import _diagnosis_tasks as tasks
import dask
from distributed import Client, LocalCluster

__all__ = ["CLUSTER", "Clusters"]

CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}


class Clusters:
    """Opens clusters; the usual one stays open for the next run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._kept: Client | None = None

    @contextmanager
    def client(
        self, options: Mapping[str, Any], config: Mapping[str, Any], *, leaves: bool
    ) -> Iterator[Client]:
        """Yield the client of a cluster.

        Parameters
        ----------
        options, config : mapping
            What differs from `CLUSTER`, and from the configuration of Dask.
        leaves : bool
            Whether the run changes the cluster: then it gets one of its own.
        """
        if options or config or leaves:
            with _opened({**CLUSTER, **options}, config) as client:
                yield client
            return
        if self._kept is None:
            self._kept = self._stack.enter_context(_opened(CLUSTER, {}))
        yield self._kept
        if self._kept and len(self._kept.scheduler_info()["workers"]) != CLUSTER["n_workers"]:
            self.close()

    def close(self) -> None:
        """Close the kept cluster; the next run gets a new one."""
        self._kept = None
        self._stack.close()


@contextmanager
def _opened(options: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Client]:
    with dask.config.set(dict(config)):
        with (
            LocalCluster(
                **options, dashboard_address=None, silence_logs=logging.CRITICAL
            ) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(options["n_workers"])
            client.run(tasks.spin, 0.05)  # imports
            yield client
