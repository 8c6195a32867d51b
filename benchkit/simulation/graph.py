"""Task graphs: keys, dependencies, seconds and bytes of each task, and what the client requests."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from graphlib import TopologicalSorter
from typing import Any


class StableText(str):
    """Text whose hash is the same in all processes and releases of Python.

    Sets of keys then have the same order everywhere, and so does the simulation.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __new__(cls, text: str, seed: int = 0) -> StableText:
        """Return the text with its hash."""
        self = super().__new__(cls, text)
        data = text.encode("utf-8", "surrogatepass")
        # Two checksums, because sets use the low bits and CRC-32 of similar texts differ in few.
        self._hash = zlib.crc32(data, seed) * 0x9E3779B1 + zlib.adler32(data, seed + 1)
        return self

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self  # releases before 2023.9.2 convert keys by `str`


def stable_key(key: Any, seed: int) -> Any:
    """Return a key with the same value and with stable hashes of its texts."""
    if isinstance(key, str):
        return StableText(key, seed)
    return tuple(stable_key(part, seed) for part in key) if isinstance(key, (tuple, list)) else key


@dataclass
class Submission:
    """Tasks that the client submits together."""

    tasks: list[int]  # Indices of the tasks
    wanted: list[int]  # Indices of the tasks whose results the client requests
    # Seconds until the scheduler receives it, after the end of the task `after` or, if that is -1,
    # the start of the clock; not before the client has the result and made earlier submissions.
    delay_s: float = 0.0
    # Indices of the tasks that the client releases with this submission.
    released: list[int] = field(default_factory=list)
    after: int = -1
    # Recorded seconds in which the scheduler unpacked, materialized and ordered the graph; None: by
    # number of tasks.
    handling_s: float | None = None


@dataclass
class VirtualGraph:
    """A task graph; tasks are numbered in the order of `keys`."""

    keys: list[Any]  # Keys of the tasks
    dependencies: list[list[int]]  # Indices of the dependencies of each task
    seconds: list[float]  # Seconds of computing of each task
    nbytes: list[int]  # Bytes of the result of each task
    submissions: list[Submission] = field(default_factory=list)  # In order, with ascending tasks
    # Tasks that Dask marks as producers of data (from release 2025.1 on).
    producers: list[int] = field(default_factory=list)
    name: str = ""  # Name of the run
    # Number of submissions before the clock starts: data that the workload has prepared.
    n_before: int = 0
    tail_s: float = 0.0  # Seconds from the last result to the end of the run: the client's work
    # Numbers of the workers that may run a task, by its index, where not all may.
    workers: dict[int, list[int]] = field(default_factory=dict)
    priority: dict[int, int] = field(default_factory=dict)  # Priority of a task, where not 0
    note: str = ""  # What differs from the original, for a graph of another system

    def __post_init__(self) -> None:
        if not self.submissions:
            used = {index for row in self.dependencies for index in row}
            last = [index for index in range(len(self.keys)) if index not in used]
            self.submissions = [Submission(list(range(len(self.keys))), last)]

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> VirtualGraph:
        """Return a graph from the result of `to_dict`, also after JSON."""
        submissions = [Submission(**entry) for entry in content["submissions"]]
        keys = [_as_tuple(key) for key in content["keys"]]
        options = {
            name: {int(index): value for index, value in content[name].items()}
            for name in ("workers", "priority")
        }
        return cls(**{**content, **options, "keys": keys, "submissions": submissions})

    def critical_path(self) -> float:
        """Return the seconds of the longest chain of tasks: a lower bound of the duration."""
        finish = [0.0] * len(self.keys)
        for index in self.in_order():
            ready = max((finish[other] for other in self.dependencies[index]), default=0.0)
            finish[index] = ready + self.seconds[index]
        return max(finish, default=0.0)

    def in_order(self) -> Iterable[int]:
        """Return the indices of the tasks, dependencies first."""
        # First the tasks without dependencies, in their order.
        sorter = TopologicalSorter(dict.fromkeys(range(len(self.keys)), ()))
        for index, row in enumerate(self.dependencies):
            sorter.add(index, *row)
        return sorter.static_order()


def _as_tuple(key: Any) -> Any:
    return tuple(_as_tuple(part) for part in key) if isinstance(key, list) else key


#: Beginnings of the names of tasks of P2P shuffles, rechunks and joins in distributed 2023.4 to
#: 2026.8: `shuffle-transfer-`, `shuffle-barrier-` (of all), `rechunk-p2p-`, `hash-join-transfer-`,
#: `hashjoinp2p-`, `p2pshuffle-`, ...
_P2P = re.compile(r"(shuffle|rechunk|hash-?join)-?(transfer|barrier|p2p)|p2p")


def first_p2p(names: Iterable[str]) -> str | None:
    """Return the first name of a key, group or prefix that moves data outside of the graph."""
    return next((name for name in names if _P2P.match(name)), None)


class UnsupportedGraph(ValueError):
    """A graph has tasks that cannot be simulated."""


def check_graph(keys: Iterable[Any]) -> None:
    """Refuse graphs with tasks of P2P shuffles."""
    name = first_p2p(str(key[0] if isinstance(key, tuple) else key).lstrip("('") for key in keys)
    if name is not None:
        raise UnsupportedGraph(
            f"task {name}: P2P shuffles move data outside of the graph and cannot be simulated; "
            "use the method tasks"
        )
