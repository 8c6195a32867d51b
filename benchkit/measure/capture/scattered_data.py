"""Count the data that clients put on workers: the scheduler counts them like results of tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dask.utils import key_split
from distributed.utils import key_split_group

from benchkit.measure.capture.cluster_hooks import listen, stop_listening


class ScatteredData:
    """Bytes of scattered data, and numbers of their keys by the names of prefix and group."""

    def __init__(self, scheduler: Any, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.by_prefix: Counter[str] = Counter()
        self.by_group: Counter[str] = Counter()
        self.nbytes = 0
        listen(scheduler, "update_data", name, self._count)

    def _count(self, arguments: dict[str, Any]) -> None:
        """Count the copies of all keys in bytes, and the keys that are not yet in memory."""
        for key, workers in arguments["who_has"].items():
            self.nbytes += len(workers) * (arguments["nbytes"].get(key) or 0)
            task = self.scheduler.tasks.get(key)
            if task is None or task.state != "memory":
                self.by_prefix[key_split(key)] += 1
                self.by_group[key_split_group(key)] += 1

    def remove(self) -> None:
        """Stop counting."""
        stop_listening(self.scheduler, "update_data", self.name)
