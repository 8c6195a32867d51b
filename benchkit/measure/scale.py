"""Compute shapes, chunks and partitions from a cluster's memory and threads.

Data bytes are proportional to the cluster's memory M; chunk bytes and artificial sleeps to the
memory of one thread m. Then the number of tasks per thread is constant, run time is about the same
from a laptop to hundreds of workers, and a small run stresses the same ratios.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from dask.utils import parse_bytes

from benchkit.measure.errors import ClusterError, InvalidParameterError

if TYPE_CHECKING:
    import dask.dataframe as dd

#: B of one thread on the reference clusters of coiled/benchmarks (two threads, nominal 8 GB).
REFERENCE_MEMORY_PER_THREAD = int(3.83 * 2**30)
#: Allowed relative difference from the requested bytes, because dimensions are whole numbers.
TOLERANCE = 0.10

Template = Sequence[int | str]
_DIMENSION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)?\s*x")


def linear(nbytes: float, template: Template, *, itemsize: int = 8) -> tuple[int, ...]:
    """Return the shape of an array of about `nbytes`.

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
            f"template {tuple(template)}: no dimension is 'x', so the size cannot change"
        )
    x = (nbytes / itemsize / fixed) ** (1 / count)
    shape = tuple(max(1, round(value * x)) if is_x else int(value) for value, is_x in factors)
    actual = math.prod(shape) * itemsize
    if abs(actual - nbytes) > TOLERANCE * nbytes:
        raise InvalidParameterError(
            f"template {tuple(template)}: shape {shape} has {actual:.3g} B, more than 10 % off the "
            f"{nbytes:.3g} B requested: use a larger scale or smaller fixed dimensions"
        )
    return shape


def _dimension(entry: int | str, itemsize: int) -> tuple[float, bool]:
    if isinstance(entry, int):
        return entry, False
    match = _DIMENSION.fullmatch(entry.strip())
    if match:
        return float(match.group(1) or 1), True
    try:
        return max(1, parse_bytes(entry) // itemsize), False
    except ValueError as error:
        raise InvalidParameterError(
            f"dimension {entry!r}: write a number, 'x', '2x', or a size such as '100MiB'"
        ) from error


@dataclass(frozen=True)
class Scale:
    """Size of a cluster, from which a workload derives the size of its data.

    Parameters
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
        """Read the size of a client's cluster; wait up to 60 s for its first worker.

        Parameters
        ----------
        client : distributed.Client
            Client of the cluster.
        fraction : float
            Share of the full size to run.

        Returns
        -------
        Scale
            Size of all workers that have connected.

        Raises
        ------
        ClusterError
            No worker connected, or workers have no memory limit.
        InvalidParameterError
            `fraction` is not in (0, 1].
        """
        if not 0 < fraction <= 1:
            raise InvalidParameterError(f"scale {fraction!r}: choose a number above 0 and up to 1")
        end = time.monotonic() + 60
        while not (states := client.sync(client.scheduler.identity)["workers"]):
            if time.monotonic() > end:
                raise ClusterError("the cluster has no workers: none connected within 60 s")
            time.sleep(0.1)
        memory = sum(state["memory_limit"] or 0 for state in states.values())
        if not memory:
            raise ClusterError("the workers have no memory limit: set memory_limit")
        threads = sum(state["nthreads"] for state in states.values())
        return cls(memory, threads, len(states), fraction)

    @property
    def memory_per_thread(self) -> float:
        """Memory of one thread in B (m)."""
        return self.memory / self.threads

    @property
    def memory_ratio(self) -> float:
        """Memory of one thread relative to the reference clusters; 0.26 for 1 GiB."""
        return self.memory_per_thread / REFERENCE_MEMORY_PER_THREAD

    @property
    def chunk_bytes(self) -> int:
        """Size in B of a chunk that is 1/32 of the memory of a thread."""
        return int(self.memory_per_thread / 32)

    @overload
    def linear(self, factor: float) -> int: ...
    @overload
    def linear(self, factor: float, template: Template) -> tuple[int, ...]: ...
    def linear(self, factor: float, template: Template | None = None) -> int | tuple[int, ...]:
        """Return a data size that is proportional to the memory of the cluster.

        Parameters
        ----------
        factor : float
            Share of the cluster's memory M.
        template : sequence of int or str, optional
            Template of the shape of an array; see `benchkit.measure.scale.linear`.

        Returns
        -------
        int or tuple of int
            ``factor * M * fraction`` in B; with a template, the shape of that size.
        """
        nbytes = factor * self.memory * self.fraction
        if template is not None:
            return linear(nbytes, template)
        return math.ceil(nbytes)  # rounded down, 0.2 x 2 GiB would be less than 0.1 x 4 GiB

    def quadratic(
        self, factor: float, reference_nbytes: float, template: Template
    ) -> tuple[int, ...]:
        """Return the shape for an algorithm whose work is quadratic in the size of its data.

        Run time is then constant when the cluster grows.

        Parameters
        ----------
        factor : float
            Share of the cluster's memory M.
        reference_nbytes : float
            Size in B on the reference cluster.
        template : sequence of int or str
            Template of the shape; see `benchkit.measure.scale.linear`.

        Returns
        -------
        tuple of int
            The shape of ``sqrt(reference_nbytes * factor * M * fraction)`` B.
        """
        nbytes = factor * self.memory * self.fraction
        return linear(reference_nbytes * math.sqrt(nbytes / reference_nbytes), template)

    def chunk(self, reference_bytes: int | str) -> int:
        """Return a chunk size that is proportional to the memory of a thread.

        Parameters
        ----------
        reference_bytes : int or str
            Chunk size of the reference suite, in B or as text such as ``"128 MiB"``.

        Returns
        -------
        int
            `reference_bytes` times `memory_ratio` in B, at least 1024.
        """
        nbytes = (
            parse_bytes(reference_bytes) if isinstance(reference_bytes, str) else reference_bytes
        )
        return max(1024, int(nbytes * self.memory_ratio))

    def seconds(self, at_reference: float) -> float:
        """Return the duration of an artificial sleep, proportional to the memory of a thread.

        Parameters
        ----------
        at_reference : float
            Duration in the reference suite, in s.

        Returns
        -------
        float
            `at_reference` times `memory_ratio`, in s.
        """
        return at_reference * self.memory_ratio


def timeseries(
    nbytes: float,
    *,
    start: str = "2000-01-01",
    freq: str = "1s",
    partition_freq: str = "1D",
    dtypes: Mapping[str, type | str] | None = None,
    seed: int = 0,
) -> dd.DataFrame:
    """Return a Dask DataFrame of random data of about `nbytes`.

    One partition is made and measured with `dask.sizeof` to get the number of partitions.

    Parameters
    ----------
    nbytes : float
        Requested size in memory, in B.
    start, freq, partition_freq : str
        Time of the first row, interval of rows, interval of partitions.
    dtypes : mapping of str to type, optional
        Columns; by default ``name`` (str), ``id`` (int), ``x`` and ``y`` (float).
    seed : int, default 0
        Seed of the data.

    Returns
    -------
    dask.dataframe.DataFrame
        At least one partition; the index is the time.
    """
    import dask.datasets
    import pandas as pd
    from dask.sizeof import sizeof

    columns = dict(dtypes or {"name": str, "id": int, "x": float, "y": float})
    begin, step = pd.Timestamp(start), pd.Timedelta(partition_freq)

    def make(n_partitions: int) -> dd.DataFrame:
        frame: dd.DataFrame = dask.datasets.timeseries(
            start=str(begin),
            end=str(begin + n_partitions * step),
            freq=freq,
            partition_freq=partition_freq,
            dtypes=columns,
            seed=seed,
        )
        return frame

    partition_bytes = sizeof(make(1).compute(scheduler="sync"))
    return make(max(1, round(nbytes / partition_bytes)))


def downscale(frame: dd.DataFrame, factor: float) -> dd.DataFrame:
    """Return a share of the partitions of a Dask DataFrame, sampled with seed 0, in their order.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        The full data.
    factor : float
        Share to keep: cluster memory divided by the memory that the full data are made for.

    Returns
    -------
    dask.dataframe.DataFrame
        At least one partition, at most all.
    """
    import random

    total = frame.npartitions
    count = min(total, max(1, round(total * factor)))
    sampled = sorted(random.Random(0).sample(range(total), count))
    sample: dd.DataFrame = frame.partitions[sampled]
    return sample
