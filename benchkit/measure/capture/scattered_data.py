"""Count the data that clients put on the cluster, which the scheduler counts like results of tasks.

Only level "light" needs it: the task stream records the ends of tasks alone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from dask.utils import key_split
from distributed.utils import key_split_group

__all__ = ["ScatteredData"]

#: Attribute of the scheduler: the counters by capture name, because several clients may measure.
_COUNTERS = "benchkit_scattered"
#: Entries of the scheduler's tables of handlers that lead to `Scheduler.update_data`.
_HANDLERS = (("handlers", "update_data"), ("stream_handlers", "update-data"))


class ScatteredData:
    """Numbers of scattered keys by the names of their prefix and of their group.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler on which `update_data` is wrapped until `remove`.
    name : str
        Name of the capture.
    """

    def __init__(self, scheduler: Any, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.by_prefix: Counter[str] = Counter()
        self.by_group: Counter[str] = Counter()
        counters = vars(scheduler).setdefault(_COUNTERS, {})
        counters[name] = self
        if len(counters) == 1:
            _wrap(scheduler, counters)

    def count(self, keys: Any) -> None:
        """Count the keys that are not yet in memory.

        Parameters
        ----------
        keys : iterable of hashable
            Keys of scattered data.
        """
        for key in keys:
            task = self.scheduler.tasks.get(key)
            if task is None or task.state != "memory":
                self.by_prefix[key_split(key)] += 1
                self.by_group[key_split_group(key)] += 1

    def remove(self) -> None:
        """Stop counting."""
        own = vars(self.scheduler)
        counters = own.get(_COUNTERS, {})
        if counters.pop(self.name, None) is not None and not counters:
            del own[_COUNTERS], own["update_data"]
            _set_handlers(self.scheduler, self.scheduler.update_data)


def _wrap(scheduler: Any, counters: dict[str, ScatteredData]) -> None:
    original = scheduler.update_data

    def update_data(*args: Any, **arguments: Any) -> Any:
        for counter in list(counters.values()):
            with suppress(Exception):
                counter.count(arguments["who_has"])
        return original(*args, **arguments)

    vars(scheduler)["update_data"] = update_data
    _set_handlers(scheduler, update_data)


def _set_handlers(scheduler: Any, function: Any) -> None:
    for table, op in _HANDLERS:
        handlers = getattr(scheduler, table, {})
        if op in handlers:
            handlers[op] = function
