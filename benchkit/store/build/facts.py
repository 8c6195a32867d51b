"""Facts of a capture about a run that are not in its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from benchkit.measure.capture.columns import SAMPLE_COLUMNS
from benchkit.measure.capture.process import CLOCK_STEP_S
from benchkit.measure.engines import DASK
from benchkit.measure.recording import Recording


@dataclass(frozen=True)
class CaptureFacts:
    """Facts that decide which metrics of a run are known."""

    full: bool = True  # Whether each task was recorded
    n_running_at_on: int = 0  # Tasks that ran when the clock started
    n_unfinished: int = 0  # Tasks still to do when the clock stopped
    n_actors: int = 0  # Actors on the workers; their calls are not tasks
    n_seceded: int = 0  # Tasks that left their thread while they waited
    # Whether the seconds that these tasks waited are known, so that the rest is computing.
    has_waits: bool = True
    n_other_captures: int = 0  # Other measurements on the same scheduler
    clock_step_s: float = 0.0  # Seconds by which the scheduler's clock was set during the run
    # CPU seconds of scheduler and client on the workers' machines, without processes that also run
    # workers.
    own_cpu_s: float | None = None
    scattered_bytes: float | None = None  # Bytes of data that clients put on the workers
    # Workers whose heartbeat for the start of the clock arrived after it.
    late_at_on: tuple[int, ...] = ()
    engine: str = DASK  # What executed the graphs
    unreported: tuple[str, ...] = ()  # What that engine does not report

    @property
    def clock_was_set(self) -> bool:
        """Whether the scheduler's wall clock was set during the run."""
        return abs(self.clock_step_s) > CLOCK_STEP_S

    @classmethod
    def of(cls, recording: Recording) -> CaptureFacts:
        """Return the facts of a recording."""
        state = recording.last("state", {})
        full = str(recording.head.get("capture", "full")).startswith("full")
        seceded = state.get("seceded") or ()
        n_unknown = int(state.get("n_seceded_unknown") or 0)
        # The waits are the tasks' durations, which only the whole task stream has, less computing.
        unknown = not full or n_unknown or any(row[2] != row[2] for row in seceded)
        dropped = seceded and state.get("n_dropped")
        names = ("n_running_at_on", "n_unfinished", "n_actors", "n_other_captures")
        return cls(
            full=full,
            n_seceded=len(seceded) + n_unknown,
            has_waits=not unknown and not dropped,
            clock_step_s=recording.tail.get("clock_step_s") or 0.0,
            own_cpu_s=_own_cpu_s(recording),
            scattered_bytes=state.get("scattered_bytes"),
            late_at_on=tuple(state.get("late_at_on") or ()),
            engine=recording.head.get("engine") or DASK,
            unreported=(
                *(recording.head.get("unreported") or ()),
                *recording.last("unreported", ()),
            ),
            **{name: int(state.get(name) or 0) for name in names},
        )


def _own_cpu_s(recording: Recording) -> float | None:
    """Return the CPU seconds of scheduler and client on the workers' machines.

    A process that also runs workers is not counted: its CPU is that of the workers.
    """
    processes = recording.tail.get("process_cpu")
    if not processes:
        return None
    width = len(SAMPLE_COLUMNS)
    rows = np.asarray(recording.block("samples", width)).reshape(-1, width)
    machines, workers = (
        set(rows[:, SAMPLE_COLUMNS.index(f"{name}_number")].tolist())
        for name in ("machine", "process")
    )
    return sum(
        float(seconds)
        for machine, process, seconds in processes
        if machine in machines and process not in workers
    )


#: Seconds that ending all workers takes at most; before 2024 a restart is logged after that.
RESTART_S = 5.0


def messages_of(events: xr.Dataset, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of a topic."""
    for message in events["message"].values[events["topic"].values == topic]:
        yield json.loads(str(message))


def restarted_workers(events: xr.Dataset, left: NDArray[np.float64]) -> set[int]:
    """Return the workers that a restart ended."""
    # left: (workers,), seconds after clock on at which each worker left; NaN if it stayed.
    workers = {
        worker
        for message in messages_of(events, "restart-workers")
        for worker in message.get("workers", ())
    }
    for moment in events["time"].values[events["topic"].values == "restart"]:
        ended = (left <= moment) & (left > moment - RESTART_S)
        workers.update(np.flatnonzero(ended).tolist())
    return {worker for worker in workers if worker >= 0}
