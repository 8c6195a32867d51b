"""How much longer tasks take because processes share processors, and threads the GIL.

The processor seconds of a task are those of a free machine; what else passes while it computes is
waiting. On two cores, 12 computations took the same processor seconds on 1 x 1, 2 x 1 and 1 x 2
(workers x threads), and waited for 0 to 80 % more, as the scheduler and the event loops of the
workers need processors too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy import stats

from benchkit.store.build.processes import increases
from benchkit.store.run import Run

__all__ = ["MOST_WAITS", "Contention", "is_new_heartbeat"]

#: A thread that computes in Python gives the GIL away after 5 ms (`sys.getswitchinterval`): then
#: the timer of the worker's event loop is late by more than this.
GIL_LAG_S = 0.0045
#: Seconds between two measurements of that timer (`LAG_TICK_S` of the capture).
TICK_S = 0.05
#: Shares of the computing time with the GIL between which a run is to decide.
GIL_SHARES = np.linspace(0.0, 1.0, 101)
#: Where tasks wait for processors as long as this, a late timer may have waited for one, too.
FEW_PROCESSORS = 1.1
#: Names of the machine of the client: its number of processors is recorded.
LOCAL_HOSTS = {"127.0.0.1", "localhost", "::1"}
#: Share of the computing time in which the threads of a worker wait for each other, as by the GIL,
#: although no timer is late: they share the allocator, page faults and short parts in Python. From
#: `LATE_SHARE` with the GIL on, as late timers say it, they shared all of it. It was 0.05 to 0.9
#: for arrays and 0.8 to 1 for tables and Python (25 workloads on two cores).
LEAST_SHARE, USUAL_SHARE, LATE_SHARE = 0.45, 0.7, 0.2
#: Waits of tasks for processors that sharing may explain / those by chance.
MOST_WAITS = 2.0
#: Most other threads and processes that are counted at the same time.
MOST_OTHERS = 60


@dataclass(frozen=True)
class Contention:
    """What the tasks of a run share.

    Parameters
    ----------
    cores : float
        Processors of the machine of all workers; infinite: unknown, or several machines.
    computing : float
        Share of the tasks' seconds in which they used a processor.
    others : float
        Processor seconds of all else on the machine: scheduler, client, event loops.
    gil : float
        Share of the computing time for which tasks hold the GIL.
    """

    cores: float
    computing: float
    others: float
    gil: float

    @classmethod
    def of(cls, run: Run) -> Contention:
        """Return what the tasks of a run share.

        Parameters
        ----------
        run : Run
            A run with workers.

        Returns
        -------
        Contention
            What was not recorded is assumed: all tasks compute, nothing else does.
        """
        workers, duration = run.tree["workers"].to_dataset(), run.metrics["duration"]
        cpu, waits = _task_seconds(run)
        is_known = cpu + waits > 0
        n_workers, nthreads = workers.sizes["worker"], round(float(workers["nthreads"].mean()))
        found = cls(
            cores=_cores(run, workers),
            computing=cpu / (cpu + waits) if is_known else 1.0,
            others=max(0.0, _machine_seconds(workers) - cpu) if is_known else 0.0,
            gil=0.0,
        )
        busy = min(1.0, (cpu + waits) / (n_workers * nthreads * duration)) if is_known else 1.0
        computing = min(1.0, nthreads * busy * found.computing)
        is_late, n_ticks = _late_beats(workers, duration, computing)
        if nthreads > 1 and is_known:
            # Threads wait for the GIL, and for locks of memory; what more they wait is their own.
            stretch = [found._stretch(n_workers, nthreads, busy, duration, g) for g in GIL_SHARES]
            nearest = np.abs(np.array(stretch) * found.computing - 1.0).argmin()
            return replace(found, gil=float(GIL_SHARES[nearest]))
        if "gil_contention_mean" in run.metrics:
            held = run.metrics["gil_contention_mean"] / max(computing, 1e-3)
        elif not len(is_late) or found._stretch(n_workers, 1, busy, duration, 0) > FEW_PROCESSORS:
            return replace(found, gil=USUAL_SHARE)
        else:
            missed = (1 - GIL_SHARES)[:, None] ** n_ticks
            likelihood = np.where(is_late, 1 - missed, missed).prod(axis=1)
            held = float(np.average(GIL_SHARES, weights=likelihood)) / LATE_SHARE
        gil = LEAST_SHARE + (1 - LEAST_SHARE) * min(1.0, held)
        return replace(found, gil=gil)

    def stretch(
        self, n_workers: int, nthreads: int, seconds: float, duration: float, gil: float
    ) -> float:
        """Return how many times as long as on a free machine tasks compute.

        Parameters
        ----------
        n_workers, nthreads : int
            Workers, and threads of each.
        seconds : float
            Seconds of all tasks.
        duration : float
            Duration of the run in s.
        gil : float
            Share of the computing time with the GIL.

        Returns
        -------
        float
            At least 1.
        """
        busy = min(1.0, seconds / (n_workers * nthreads * duration))
        return self._stretch(n_workers, nthreads, busy, duration, gil)

    def _stretch(
        self, n_workers: int, nthreads: int, busy: float, duration: float, gil: float
    ) -> float:
        # Mean value analysis of a closed network: a station with a queue (the GIL), one without.
        queue, responses = 0.0, []
        for n_threads in range(1, min(nthreads, MOST_OTHERS) + 1):
            at_gil = gil * (1 + queue)
            responses.append(at_gil + 1 - gil)
            queue = n_threads * at_gil / responses[-1]
        n_computing = 1 + (len(responses) - 1) * busy
        response = float(np.interp(n_computing, range(1, len(responses) + 1), responses))
        if np.isinf(self.cores):
            return response
        n_others = min(n_workers * nthreads - 1, MOST_OTHERS)
        tasks = stats.binom.pmf(range(n_others + 1), n_others, busy * self.computing / response)
        rest = stats.poisson.pmf(range(MOST_OTHERS), self.others / duration)
        runnable = 1 + np.arange(n_others + MOST_OTHERS)
        waits = np.maximum(1.0, runnable / self.cores)
        return response * float((np.convolve(tasks, rest) * waits).sum())


def is_new_heartbeat(workers: xr.Dataset) -> np.ndarray:
    """Return which values of a run's group ``workers`` are new heartbeats.

    Parameters
    ----------
    workers : Dataset
        The group; between its heartbeats a worker's values are repeated.

    Returns
    -------
    ndarray of bool
        By time and worker.
    """
    found = np.zeros((workers.sizes["time"], workers.sizes["worker"]), bool)
    for name in ("cpu_time", "monitor_time", "tick_max", "gc_time"):
        if name in workers:
            values = workers[name].values
            found[1:] |= (values[1:] != values[:-1]) & np.isfinite(values[1:])
            found[:1] |= np.isfinite(values[:1])
    return found


def _task_seconds(run: Run) -> tuple[float, float]:
    """Return the seconds in which the threads of tasks used a processor, and waited."""
    fine = run.fine_metrics()
    if not fine.empty:
        own = fine[(fine["context"] == "execute") & (fine["unit"] == "seconds")]
        seconds = own.groupby("activity")["value"].sum()
        if "thread-cpu" in seconds:
            return float(seconds["thread-cpu"]), float(seconds.get("thread-noncpu", 0.0))
    cpu, computing = (run.metrics.get(name, np.nan) for name in ("cpu_time", "compute_time"))
    cpu = min(cpu, computing)
    return cpu, computing - cpu


def _machine_seconds(workers: xr.Dataset) -> float:
    """Return the processor seconds that all processes of the workers' machines used."""
    counts = (
        workers["machine_cpu_time"].values if "machine_cpu_time" in workers else np.zeros((0, 0))
    )
    machines = workers["machine_id"].values if counts.size else np.zeros(0)
    return float(np.nansum(increases(counts[:, machines >= 0], machines[machines >= 0])))


def _cores(run: Run, workers: xr.Dataset) -> float:
    """Return the processors of the machine of all workers; infinite if it is unknown."""
    hosts = set(workers["host"].values.tolist())
    try:
        cores = json.loads(run.tree.attrs["host_json"])["cores"]
    except (KeyError, TypeError, ValueError):
        return np.inf
    return float(cores) if cores and hosts <= LOCAL_HOSTS else np.inf


def _late_beats(
    workers: xr.Dataset, duration: float, computing: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return of each heartbeat if a timer was late, and how often it ran while tasks computed."""
    is_late, n_ticks = [], []
    if "tick_max" in workers:
        times, lags = workers["time"].values, workers["tick_max"].values
        for column, is_new in zip(lags.T, is_new_heartbeat(workers).T, strict=True):
            beats = np.flatnonzero(is_new & np.isfinite(column) & (times > 0))
            begins = np.maximum(np.append(0.0, times[beats])[:-1], 0.0)
            within = np.minimum(times[beats], duration) - begins
            kept = within > TICK_S
            is_late.append(column[beats][kept] > GIL_LAG_S)
            n_ticks.append(within[kept] / TICK_S * computing)
    return np.concatenate([*is_late, np.zeros(0, bool)]), np.concatenate([*n_ticks, np.zeros(0)])
