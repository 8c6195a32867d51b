"""Results of a worker in memory and on disk, as distributed's `SpillBuffer` keeps them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["SpillingResults"]


class SpillingResults(OrderedDict[Any, Any]):
    """Keep the most recently used results in memory, up to a limit."""

    def __init__(
        self, limit: float, size_of: Callable[[Any], int], move: Callable[[int, bool], None]
    ) -> None:
        super().__init__()
        self.limit, self.size_of, self.move = limit, size_of, move
        self.in_memory = 0
        self.on_disk: dict[Any, int] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.in_memory += self.size_of(key)
        self._evict()

    def __delitem__(self, key: Any) -> None:
        if self.on_disk.pop(key, None) is None:
            self.in_memory -= self.size_of(key)
        super().__delitem__(key)

    def use(self, keys: Iterable[Any]) -> None:
        """Read results back into memory that a task or another worker needs."""
        for key in keys:
            self.move_to_end(key)
            size = self.on_disk.pop(key, None)
            if size is not None:
                self.in_memory += size
                self.move(size, True)
        self._evict()

    def _evict(self) -> None:
        if self.in_memory <= self.limit:
            return
        for key in self:
            if key not in self.on_disk:
                size = self.on_disk[key] = self.size_of(key)
                self.in_memory -= size
                self.move(size, False)
                if self.in_memory <= self.limit:
                    return
