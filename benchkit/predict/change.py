"""A change of a run: the options of `whatif` and `simulate`, and what they do to its workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import inf, isfinite
from numbers import Real
from typing import Any

import numpy as np

from benchkit.errors import UsageError, did_you_mean
from benchkit.formatting import counted, format_bytes, short_group, short_names
from benchkit.predict.chunks import CHUNKS_REACH, with_larger_chunks
from benchkit.predict.workflow import Workflow
from benchkit.simulation.model import MAX_SIZE, ClusterShape
from benchkit.store.task_graph import TaskGraph

#: Largest share of the time in which a scheduler computes: waits for it do not become infinite.
MAX_BUSY = 0.95
#: Largest cluster to predict.
MAX_THREADS = 100_000


@dataclass(frozen=True)
class Change:
    """What differs from the run; None: as it was."""

    workers: int | None = None  # Number of workers
    threads: int | None = None  # Threads of each worker
    memory: int | str | None = None  # Memory limit of each worker: B, or a text such as 2GiB
    # Bandwidth of each worker's link: B/s, or a text such as 200MB/s or 2x (a factor).
    bandwidth: float | str | None = None
    transfers: float | None = None  # Factor of the seconds of transfers; 0: they are free
    scheduler: float | None = None  # Factor of the seconds for which the scheduler computes
    groups: Mapping[str, float] = field(default_factory=dict)  # Factors of the durations of tasks
    # How many times as large chunks are: 2x, 4x, ...: tasks of a group are merged in pairs.
    chunks: int | str | None = None
    no_spill: bool = False  # No task waits for spilled data

    def __post_init__(self) -> None:
        for name in ("workers", "threads"):
            number = getattr(self, name)
            is_whole = isinstance(number, Real) and number % 1 == 0
            if number is not None and not (is_whole and 0 < number <= MAX_SIZE):
                raise UsageError(f"{name} {number}: must be a whole number from 1 to {MAX_SIZE}")
        own = {"transfers": self.transfers, "scheduler": self.scheduler}
        given = [(name, factor) for name, factor in own.items() if factor is not None]
        for name, factor in (*given, *self.groups.items()):
            if not isinstance(factor, Real) or not 0 <= factor < inf:
                raise UsageError(f"{name} {factor}: the factor must be a number, 0 or larger")
        self.bandwidth_of(1.0)
        _ = self.memory_bytes, self.chunk_factor

    @property
    def memory_bytes(self) -> int | None:
        """Memory limit of each worker in B."""
        if self.memory is None:
            return None
        from dask.utils import parse_bytes  # takes 0.1 s: only for a size that is given

        try:
            return int(parse_bytes(self.memory))
        except ValueError:
            raise UsageError(f"memory {self.memory!r}: must be a size, such as 4GiB") from None

    @property
    def chunk_factor(self) -> int:
        """How many times as large chunks are."""
        if self.chunks is None:
            return 1
        text = str(self.chunks).removesuffix("x")
        factor = int(text) if text.isdecimal() else 0
        if factor < 2 or factor.bit_count() != 1:
            raise UsageError(
                f"chunks {self.chunks!r}: must be 2x, 4x, 8x, ...: tasks are merged in pairs"
            )
        return factor

    @property
    def reach(self) -> float:
        """Half-width, as a logarithm, of the interval of what the change does to the tasks."""
        return CHUNKS_REACH if self.chunks else 0.0

    def bandwidth_of(self, before: float) -> float:
        """Return the bandwidth in B/s after the change."""
        given = self.bandwidth
        if given is None:
            return before
        found = -1.0
        try:
            if not isinstance(given, str):
                found = float(given)
            elif given.endswith("x"):
                found = before * float(given.removesuffix("x"))
            elif given.endswith("/s"):
                from dask.utils import parse_bytes

                found = float(parse_bytes(given.removesuffix("/s")))
        except ValueError:
            pass
        if not 0 < found or (isfinite(before) and not isfinite(found)):
            raise UsageError(f"bandwidth {given!r}: must be a factor such as 2x, or as in 200MB/s")
        return found

    def shape_of(self, before: ClusterShape) -> ClusterShape:
        """Return the cluster after the change."""
        limit = self.memory_bytes
        workers, threads = int(self.workers or before.workers), int(self.threads or before.threads)
        if workers * threads > MAX_THREADS:
            raise UsageError(
                f"{counted(workers, 'worker')} with {counted(threads, 'thread')}: more than "
                f"{MAX_THREADS:,} threads cannot be predicted"
            )
        return replace(
            before,
            workers=workers,
            threads=threads,
            memory_limit=before.memory_limit if limit is None else limit,
        )

    def applied(self, before: Workflow) -> Workflow:
        """Return the workflow after the change, without that of the cluster's size."""
        seconds = before.seconds - before.disk if self.no_spill else before.seconds
        for name, factor in self.groups.items():
            seconds = np.where(_nodes_of(before.graph, name), seconds * factor, seconds)
        bandwidth, latency = self.bandwidth_of(before.bandwidth), before.latency
        if self.transfers is not None:
            bandwidth = bandwidth / self.transfers if self.transfers else np.inf
            latency *= self.transfers
        after = replace(before, seconds=seconds, bandwidth=bandwidth, latency=latency)
        if self.scheduler is not None:
            after = _with_scheduler(after, self.scheduler)
        return with_larger_chunks(after, self.chunk_factor) if self.chunks else after

    def __str__(self) -> str:
        parts = []
        for entry in fields(self):
            value, option = getattr(self, entry.name), f"--{entry.name.replace('_', '-')}"
            if entry.name == "groups":
                parts += [f'--group "{name}={factor:g}"' for name, factor in value.items()]
            elif value is True:
                parts.append(option)
            elif value not in (None, False):
                is_size = entry.name == "memory" and not isinstance(value, str)
                parts.append(f"{option} {format_bytes(value) if is_size else value}")
        return " ".join(parts) or "no change"


def _with_scheduler(before: Workflow, factor: float) -> Workflow:
    """Return the workflow with a scheduler that computes for this many times as long."""
    seconds, busy = before.scheduler
    if not seconds:
        raise UsageError("scheduler: how long the scheduler computed was not recorded in this run")

    def way(factor: float) -> float:  # a message also waits for those before it
        return factor * seconds / (1 - min(MAX_BUSY, factor * busy))

    gates = [
        gate._replace(seconds=gate.received + factor * (gate.seconds - gate.received))
        for gate in before.gates
    ]
    dispatch = max(0.0, before.dispatch + way(factor) - way(1.0))
    return replace(before, dispatch=dispatch, gates=gates)


def changes(**options: Any) -> Iterator[Change]:
    """Yield a change per combination of the values of options that have several."""
    lists = {
        name: value if isinstance(value, (list, tuple, range, np.ndarray)) else [value]
        for name, value in options.items()
        if value is not None
    }
    for values in product(*lists.values()):
        yield Change(**dict(zip(lists, values, strict=True)))


def _nodes_of(graph: TaskGraph, name: str) -> np.ndarray:
    """Return which tasks belong to a task group, by any of its names, or to a prefix of groups."""
    names = graph.group_names
    shown = short_names(names)
    # A short name with a number is one group; without one, it is a prefix of all of its groups.
    chosen = [name == n or ("#" in name and name == shown[n]) for n in names]
    if not any(chosen):
        chosen = [name in (n.rpartition("-")[0], short_group(n)) for n in names]
    if not any(chosen):
        known = list(dict.fromkeys(map(short_group, names)))
        near = did_you_mean(name, known, f"it has {', '.join(known[:8])}")
        raise UsageError(f"task group {name!r}: the run has none; {near}")
    flags: np.ndarray = np.append(chosen, False)[graph.group]
    return flags
