"""From a cluster's memory and threads to shapes, chunks and partitions.

Bytes grow with the cluster's memory M, chunk bytes and artificial sleeps with the memory of one
thread m. Then the number of tasks per thread is constant, runtime stays about the same from a
laptop to hundreds of workers, and a small run stresses the same ratios.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask.utils import parse_bytes

from benchkit.measure.errors import ClusterError, InvalidParameterError

__all__ = [
    "REFERENCE_MEMORY_PER_THREAD",
    "Scale",
    "downscale",
    "linear",
    "quadratic",
    "timeseries",
]

#: Memory of one thread on the reference clusters of coiled/benchmarks (two threads, 8 GB sold).
REFERENCE_MEMORY_PER_THREAD = int(3.83 * 2**30)
#: A shape may miss the bytes asked for by this much, because dimensions are whole numbers.
TOLERANCE = 0.10

Template = Sequence[int | str]
_DIMENSION = re.compile(r"\s*(\d*\.?\d*)\s*x\s*\Z")


def linear(nbytes: float, template: Template, *, itemsize: int = 8) -> tuple[int, ...]:
    """Return the shape of an array of about `nbytes`.

    Parameters
    ----------
    nbytes : float
        Wanted size in B.
    template : sequence of int or str
        One entry a dimension: a number, ``"x"`` or ``"3x"`` (solved for), or a size such as
        ``"100MiB"`` (that many bytes of items).
    itemsize : int, default 8
        Bytes of one item.

    Returns
    -------
    tuple of int

    Raises
    ------
    InvalidParameterError
        The template cannot be read, or no whole x comes within 10 % of `nbytes`.

    Examples
    --------
    >>> linear(8 * 10**8, ("x", 100))
    (1000000, 100)
    >>> linear(8 * 10**8, ("x", "x"))
    (10000, 10000)
    """
    fixed, factors, count = 1.0, [], 0
    for entry in template:
        value, is_x = _dimension(entry, itemsize)
        factors.append((value, is_x))
        fixed *= value
        count += is_x
    if not count:
        raise InvalidParameterError(
            f"template {tuple(template)}: no dimension is 'x': nothing to solve for"
        )
    x = (nbytes / itemsize / fixed) ** (1 / count)
    shape = tuple(max(1, round(value * x)) if is_x else int(value) for value, is_x in factors)
    got = math.prod(shape) * itemsize
    if abs(got - nbytes) > TOLERANCE * nbytes:
        raise InvalidParameterError(
            f"template {tuple(template)}: shape {shape} has {got:.3g} B, more than 10 % off the "
            f"{nbytes:.3g} B asked for: use a larger scale or smaller fixed dimensions"
        )
    return shape


def _dimension(entry: int | str, itemsize: int) -> tuple[float, bool]:
    if isinstance(entry, int):
        return entry, False
    match = _DIMENSION.match(entry)
    if match:
        return float(match.group(1) or 1), True
    try:
        return max(1, parse_bytes(entry) // itemsize), False
    except ValueError as error:
        raise InvalidParameterError(
            f"dimension {entry!r}: write a number, 'x', '2x', or a size such as '100MiB'"
        ) from error


def quadratic(
    nbytes: float, reference_nbytes: float, template: Template, *, itemsize: int = 8
) -> tuple[int, ...]:
    """Return the shape for an algorithm whose work grows with the square of its data.

    The size is ``B0 * sqrt(B / B0)``, so that runtime stays flat when the cluster grows.

    Parameters
    ----------
    nbytes : float
        Size in B that a linear law would give.
    reference_nbytes : float
        Size in B on the reference cluster, where both laws meet.
    template, itemsize
        See `linear`.
    """
    return linear(_quadratic(nbytes, reference_nbytes), template, itemsize=itemsize)


def _quadratic(nbytes: float, reference_nbytes: float) -> float:
    return reference_nbytes * math.sqrt(nbytes / reference_nbytes)


@dataclass(frozen=True)
class Scale:
    """What a workload sizes itself by.

    Attributes
    ----------
    memory : int
        Sum of the workers' memory limits in B (M).
    threads : int
        Worker threads (T).
    workers : int
        Workers.
    fraction : float
        Share of the full size to run, in (0, 1].
    """

    memory: int
    threads: int
    workers: int
    fraction: float = 1.0

    @classmethod
    def of(cls, client: Any, fraction: float = 1.0) -> Scale:
        """Read the sizes of a client's cluster, waiting up to 60 s for its first worker.

        Raises
        ------
        ClusterError
            No worker came, or workers have no memory limit.
        InvalidParameterError
            `fraction` is not in (0, 1].
        """
        if not 0 < fraction <= 1:
            raise InvalidParameterError(f"scale {fraction!r}: choose a number above 0 and up to 1")
        end = time.monotonic() + 60
        while not (states := client.sync(client.scheduler.identity)["workers"]):
            if time.monotonic() > end:
                raise ClusterError("the cluster has no workers: none came within 60 s")
            time.sleep(0.1)
        memory = sum(state["memory_limit"] or 0 for state in states.values())
        if not memory:
            raise ClusterError("the workers have no memory limit: set memory_limit to size by it")
        threads = sum(state["nthreads"] for state in states.values())
        return cls(memory, threads, len(states), fraction)

    @property
    def memory_per_thread(self) -> float:
        """Memory of one thread in B (m)."""
        return self.memory / self.threads

    @property
    def memory_ratio(self) -> float:
        """Memory of one thread over that of the reference clusters; 0.26 for 1 GiB."""
        return self.memory_per_thread / REFERENCE_MEMORY_PER_THREAD

    @property
    def chunk_bytes(self) -> int:
        """A chunk of which a thread can hold 32, in B."""
        return int(self.memory_per_thread / 32)

    def linear(self, factor: float, template: Template | None = None, *, itemsize: int = 8) -> Any:
        """Return ``factor * M * fraction`` in B, or the shape of that size for a template."""
        nbytes = factor * self.memory * self.fraction
        return int(nbytes) if template is None else linear(nbytes, template, itemsize=itemsize)

    def quadratic(
        self,
        factor: float,
        reference_nbytes: float,
        template: Template | None = None,
        *,
        itemsize: int = 8,
    ) -> Any:
        """Return the bytes or shape of the quadratic law for ``factor * M * fraction``."""
        nbytes = _quadratic(factor * self.memory * self.fraction, reference_nbytes)
        return int(nbytes) if template is None else linear(nbytes, template, itemsize=itemsize)

    def chunk(self, reference_bytes: int | str) -> int:
        """Return a chunk size of the reference suite, shrunk or grown by the grain, in B."""
        nbytes = (
            parse_bytes(reference_bytes) if isinstance(reference_bytes, str) else reference_bytes
        )
        return max(1024, int(nbytes * self.memory_ratio))

    def seconds(self, at_reference: float) -> float:
        """Return an artificial sleep of the reference suite, scaled by the grain, in s."""
        return at_reference * self.memory_ratio


def timeseries(
    nbytes: float,
    *,
    start: str = "2000-01-01",
    freq: str = "1s",
    partition_freq: str = "1D",
    dtypes: Mapping[str, type | str] | None = None,
    seed: int = 0,
) -> Any:
    """Return a Dask DataFrame of random data of about `nbytes`.

    One partition is made and measured with `dask.sizeof`; the number of partitions follows.

    Parameters
    ----------
    nbytes : float
        Wanted size in memory, in B.
    start, freq, partition_freq : str
        First moment, distance of rows, length of a partition.
    dtypes : mapping of str to type, optional
        Columns; by default ``name`` (str), ``id`` (int), ``x`` and ``y`` (float).
    seed : int, default 0
        Seed of the data.

    Returns
    -------
    dask.dataframe.DataFrame
    """
    import dask.datasets
    import pandas as pd
    from dask.sizeof import sizeof

    columns = dict(dtypes or {"name": str, "id": int, "x": float, "y": float})
    begin, step = pd.Timestamp(start), pd.Timedelta(partition_freq)

    def make(n_partitions: int) -> Any:
        return dask.datasets.timeseries(
            start=str(begin),
            end=str(begin + n_partitions * step),
            freq=freq,
            partition_freq=partition_freq,
            dtypes=columns,
            seed=seed,
        )

    one = sizeof(make(1).compute(scheduler="sync"))
    return make(max(1, round(nbytes / one)))


def downscale(frame: Any, factor: float) -> Any:
    """Return a share of the partitions of a Dask DataFrame, chosen with seed 0, in their order.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        The full data.
    factor : float
        Share to keep: cluster memory over the memory that the full data is meant for.
    """
    import random

    total = frame.npartitions
    count = min(total, max(1, round(total * factor)))
    chosen = sorted(random.Random(0).sample(range(total), count))
    return frame.partitions[chosen]
