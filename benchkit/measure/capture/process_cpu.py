"""CPU seconds of the processes that measure: the scheduler's and the client's."""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time

from benchkit.measure.capture.memory_sampler import machine_number, process_number

__all__ = ["cpu_between", "process_cpu"]


def process_cpu() -> tuple[int, int, float]:
    """Return the CPU seconds of this process, cumulative.

    Returns
    -------
    machine, process : int
        Numbers, see `machine_number` and `process_number`.
    seconds : float
        User and system time.
    """
    return machine_number(), process_number(), process_time()


def cpu_between(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> list[tuple[int, int, float]]:
    """Return the CPU seconds that processes used between two moments.

    Parameters
    ----------
    before, after : sequence of tuple
        What `process_cpu` returned in each process; a process may be in it twice.

    Returns
    -------
    list of (int, int, float)
        Numbers of machine and process, and seconds, for each process that is in both.
    """
    first = {(int(row[0]), int(row[1])): row[2] for row in before}
    last = {(int(row[0]), int(row[1])): row[2] for row in after}
    return [(*key, last[key] - first[key]) for key in first if key in last]
