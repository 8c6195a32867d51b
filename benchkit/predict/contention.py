"""How much longer tasks take because processes share processors, and threads the GIL.

The processor seconds of a task are those of a free machine; what else passes while it computes is
waiting. On two cores, computations with arrays took the same processor seconds on 1 x 1, 2 x 1 and
1 x 2 (workers x threads), those that hold the GIL 11 to 29 % more on 1 x 2. They waited for 0 to
90 % more: the scheduler needs processors too, and the event loop of a worker, which works while a
thread of the worker has no task.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import xarray as xr
from scipy.special import gammaln, xlog1py, xlogy

from benchkit.store.build.processes import increases
from benchkit.store.run import Run

#: A thread that computes in Python gives the GIL away after 5 ms (`sys.getswitchinterval`): then
#: the timer of the worker's event loop is late by more than this.
GIL_LAG_S = 0.0045
#: Seconds between two measurements of that timer (`LAG_TICK_S` of the capture).
TICK_S = 0.05
#: Names of the machine of the client: its number of processors is recorded.
LOCAL_HOSTS = {"127.0.0.1", "localhost", "::1"}


def is_new_heartbeat(workers: xr.Dataset) -> np.ndarray:
    """Return which values of a run's group ``workers`` are new heartbeats."""
    found = np.zeros((workers.sizes["time"], workers.sizes["worker"]), bool)
    for name in ("cpu_time", "monitor_time", "tick_max", "gc_time"):
        if name in workers:
            values = workers[name].values
            found[1:] |= (values[1:] != values[:-1]) & np.isfinite(values[1:])
            found[:1] |= np.isfinite(values[:1])
    return found


def task_seconds(run: Run) -> tuple[float, float]:
    """Return the seconds in which the threads of tasks used a processor, and waited."""
    if run.simulated:  # its tasks share nothing
        return 0.0, run.metrics["compute_time"]
    fine = run.fine_metrics()
    if not fine.empty:
        own = fine[(fine["context"] == "execute") & (fine["unit"] == "seconds")]
        seconds = own.groupby("activity")["value"].sum()
        if "thread-cpu" in seconds:
            return float(seconds["thread-cpu"]), float(seconds.get("thread-noncpu", 0.0))
    cpu, computing = (run.metrics.get(name, np.nan) for name in ("cpu_time", "compute_time"))
    cpu = min(cpu, computing)
    return cpu, computing - cpu


def machine_seconds(workers: xr.Dataset) -> float:
    """Return the processor seconds that all processes of the workers' machines used."""
    counts = (
        workers["machine_cpu_time"].values if "machine_cpu_time" in workers else np.zeros((0, 0))
    )
    machines = workers["machine_id"].values if counts.size else np.zeros(0)
    return float(np.nansum(increases(counts[:, machines >= 0], machines[machines >= 0])))


def cores_of(run: Run, workers: xr.Dataset) -> float:
    """Return the processors of the machine of all workers."""
    hosts = set(workers["host"].values.tolist())
    try:
        cores = json.loads(run.tree.attrs["host_json"])["cores"]
    except (KeyError, TypeError, ValueError):
        return np.inf
    return float(cores) if cores and hosts <= LOCAL_HOSTS else np.inf


def late_beats(
    workers: xr.Dataset, duration: float, computing: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each heartbeat whether a timer was late, and its calls while tasks computed."""
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


#: Shares of the computing time with the GIL between which a run is to decide.
GIL_SHARES = np.linspace(0.0, 1.0, 101)
#: Where tasks wait for processors as long as this, a late timer may have waited for one, too.
FEW_PROCESSORS = 1.1
#: Share of the computing time in which the threads of a worker wait for each other, as by the GIL,
#: although none holds it (they share the allocator and page faults), and where nothing is known.
MIN_SHARE, USUAL_SHARE = 0.35, 0.4
#: Where processors are few, one that is not a task takes this many times its share from tasks:
#: Linux prefers threads that have slept, and tasks find less in the processor's caches afterwards.
PREFERENCE = 1.2
#: Share of the computing time with the GIL by late timers from which tasks share all of it.
LATE_SHARE = 0.2
#: Largest error of the share that gilknocker measured.
SHARE_ERROR = 0.25
#: Processor seconds of scheduler and client per task.
SCHEDULER_SECONDS = 0.6e-3
#: Tasks that hold the GIL all the time use this share more of processor seconds with each doubling
#: of a worker's threads: they take turns, and each finds less in the processor's caches.
MORE_SECONDS = 0.22
#: Processor seconds of sender and receiver per byte of a transfer on one machine.
CPU_PER_BYTE = 2e-9
#: Share of the processor seconds of an event loop in which it has the GIL.
LOOP_SHARE = 0.5
#: Sharing may explain this many times the waits for processors that chance explains.
MAX_WAITS = 2.0
#: The distribution of up to this many other tasks and threads is computed; if their mean number is
#: above half of it, the mean is enough.
MAX_OTHERS = 60
#: Processes that are no workers: scheduler and client.
OTHER_PROCESSES = 2
#: Largest share of a processor, or of the GIL, that others use.
MAX_LOAD = 0.9
#: Iterations after which the waits of tasks and others agree.
N_ITERATIONS = 10
#: Idle seconds to divide by where no thread is ever idle.
SHORTEST_S = 1e-9


#: Number of workers and threads of each, seconds of all tasks together, and duration in s.
Load: TypeAlias = "tuple[int, int, float, float]"


@dataclass(frozen=True)
class Contention:
    """What the tasks of a run share."""

    cores: float  # Processors of the machine of all workers; infinite: unknown, or several machines
    computing: float  # Share of the tasks' seconds in which they used a processor
    # Processor seconds of all else because of tasks: scheduler, client, event loops, transfers.
    others: float
    # Share of the computing time that the threads of a worker cannot use at the same time.
    gil: float
    # loops, transfers: The parts of `others` in the processes of workers without transfers, and of
    # transfers.
    loops: float
    transfers: float
    background: float  # Processors that all else used which is not there because of tasks
    # Between which values `gil` is: how sure it is depends on what was recorded.
    gil_range: tuple[float, float] = (0.0, 1.0)
    # Share of the computing time for which tasks hold the GIL, by gilknocker; NaN: not measured.
    held: float = float("nan")

    @property
    def gil_is_unknown(self) -> bool:
        """Whether nothing recorded says for how long tasks hold the GIL."""
        return self.gil_range == (0.0, 1.0)

    @classmethod
    def of(cls, run: Run) -> Contention:
        """Return what the tasks of a run share."""
        workers, duration = run.tree["workers"].to_dataset(), run.metrics["duration"]
        cpu, waits = task_seconds(run)
        is_known = cpu + waits > 0
        n_workers = workers.sizes["worker"]
        nthreads = round(float(workers["nthreads"].values.mean()))
        others = max(0.0, machine_seconds(workers) - cpu) if is_known else 0.0
        loops = min(others, max(0.0, run.metrics.get("cpu_time", 0.0) - cpu))
        transfers = min(loops, CPU_PER_BYTE * run.metrics.get("network_bytes", 0.0))
        # Scheduler and client also compute while nothing happens, and so do other processes.
        idle = max(0.0, others - loops - SCHEDULER_SECONDS * run.metrics.get("n_tasks", 0.0))
        found = cls(
            cores=cores_of(run, workers),
            computing=cpu / (cpu + waits) if is_known else 1.0,
            others=others - idle,
            gil=0.0,
            loops=loops - transfers,
            transfers=transfers,
            background=idle / duration,
            held=_measured_share(run, n_workers, cpu, loops),
        )
        seconds = cpu + waits if is_known else np.inf
        load = n_workers, nthreads, seconds, duration
        if nthreads > 1 and is_known:
            # Threads wait for the GIL, and for locks of memory; what more they wait is their own.
            stretch = np.array([found.stretch(load, gil) for gil in GIL_SHARES])
            n_running = _mean_running((1, nthreads, seconds / n_workers, duration))
            stretch /= found._more_seconds(np.array(n_running), GIL_SHARES)
            gil = float(GIL_SHARES[np.abs(stretch * found.computing - 1.0).argmin()])
            return replace(found, gil=gil, gil_range=(gil, gil))
        if not np.isnan(found.held):
            gil = MIN_SHARE + (1 - MIN_SHARE) * found.held
            least, most = np.clip([gil - SHARE_ERROR, gil + SHARE_ERROR], 0.0, 1.0).tolist()
            return replace(found, gil=gil, gil_range=(least, most))
        computing = min(1.0, seconds / (n_workers * duration)) * found.computing
        is_late, n_ticks = late_beats(workers, duration, computing)
        if not len(is_late) or found.stretch(load, 0.0) > FEW_PROCESSORS:
            return replace(found, gil=USUAL_SHARE)
        missed = (1 - GIL_SHARES)[:, None] ** n_ticks
        likelihood = np.where(is_late, 1 - missed, missed).prod(axis=1)
        held = min(1.0, float(np.average(GIL_SHARES, weights=likelihood)) / LATE_SHARE)
        return replace(found, gil=MIN_SHARE + (1 - MIN_SHARE) * held)

    def stretch(self, load: Load, gil: float) -> float:
        """Return how many times as long as on a free machine tasks compute."""
        curve = self.curve(load, gil)
        return float(np.interp(_mean_running(load), np.arange(len(curve)), curve))

    def curve(self, load: Load, gil: float, sent: float = 0.0) -> np.ndarray:
        """Return how many times as long as on a free machine tasks compute, by how many run."""
        response, processors = self._parts(load, gil, sent)
        stretch: np.ndarray = response * processors
        return stretch

    def between_tasks(self, load: Load, gil: float, sent: float = 0.0) -> float:
        """Return how many times as long as on a free machine it takes from a task to the next.

        Scheduler and event loops wait for processors, and the loop of a worker for the GIL.
        """
        n_workers, nthreads, seconds, duration = load
        parts = self._parts(load, gil, sent)
        n_running = _mean_running(load)
        shared, waits = (np.interp(n_running, np.arange(len(part)), part) for part in parts)
        # A thread waits while others hold the GIL: not while they sleep.
        busy = min(1.0, self.computing * shared) * min(
            1.0, seconds / (n_workers * nthreads * duration)
        )
        held = (nthreads - 1) * busy * self._share_held(gil)
        return float(waits / (1 - min(MAX_LOAD, held)))

    def _share_held(self, gil: float | np.ndarray) -> float | np.ndarray:
        """Return for which share of its computing time a task holds the GIL."""
        without_locks: float | np.ndarray = np.maximum(0.0, gil - MIN_SHARE) / (1 - MIN_SHARE)
        return without_locks if np.isnan(self.held) else self.held

    def _more_seconds(self, n_running: np.ndarray, gil: float | np.ndarray) -> np.ndarray:
        """Return the factor of the processor seconds of a task among this many in a process."""
        factor: np.ndarray = 1 + MORE_SECONDS * self._share_held(gil) * np.log2(n_running)
        return factor

    def _parts(self, load: Load, gil: float, sent: float) -> tuple[np.ndarray, np.ndarray]:
        """Return how many times as long tasks take by the GIL, and by processors, as `curve`."""
        n_workers, nthreads, seconds, duration = load
        n_threads = n_workers * nthreads
        n_running = np.arange(n_threads + 1)
        if n_threads > 2 * MAX_OTHERS:  # the values between these are almost on a line
            n_running = np.geomspace(MAX_OTHERS, n_threads, MAX_OTHERS).round().astype(int)
            n_running = np.unique(np.append(np.arange(MAX_OTHERS), n_running))
        moved = max(-self.transfers, CPU_PER_BYTE * sent)
        # The event loop uses the GIL, too: for transfers at any time, else between two tasks of a
        # thread, while other threads have theirs.
        loop_s = self.loops * (1 - 1 / nthreads) + self.transfers + moved
        loop = min(MAX_LOAD, LOOP_SHARE * loop_s / (n_workers * duration))
        # Mean value analysis of a closed network: a station with a queue (the GIL), one without.
        queue, responses = 0.0, []
        for n_sharing in range(1, nthreads + 1):
            at_gil = gil * (1 + queue) / (1 - loop)
            responses.append(at_gil + 1 - gil)
            queue = n_sharing * at_gil / responses[-1]
        more = self._more_seconds(np.arange(len(responses)) + 1.0, gil) * np.array(responses)
        response: np.ndarray = np.interp(n_running / n_workers, range(1, len(more) + 1), more)
        if np.isinf(self.cores):
            return _at_all(n_running, response), np.ones(n_threads + 1)
        # Scheduler and client, transfers, and the event loops, which work while threads are idle.
        rest = self.background + max(0.0, self.others - self.loops + moved) / duration
        rest = min(MAX_LOAD * self.cores, rest)
        n_idle = n_threads - n_running
        loops = min(1.0, self.loops / max(n_threads * duration - seconds, SHORTEST_S)) * n_idle
        count = np.arange(MAX_OTHERS)
        n_active = 1 + np.add.outer(count, count)
        counted = (n_active + (PREFERENCE - 1) * count) / self.cores
        waits = np.where(n_active > self.cores, counted, 1.0)
        share = np.clip(self.computing / response, 0, 1)[:, None]
        n_others = np.maximum(n_running - 1, 0)
        tasks = _binomial(count, np.minimum(n_others, MAX_OTHERS - 1)[:, None], share)
        mean_tasks = n_others * share[:, 0]
        stretch = np.ones(len(n_running))
        # Others wait for processors as tasks do: the more wait, the more there are at a time.
        for _ in range(N_ITERATIONS):
            n_rest = np.minimum(rest * stretch, n_workers + OTHER_PROCESSES)
            n_rest += np.minimum(loops * stretch, n_idle)
            rest_pmf = _poisson(count, n_rest[:, None])
            stretch = np.einsum("ki,kj,ij->k", tasks, rest_pmf, waits)
            mean = np.maximum(1.0, (1 + mean_tasks + PREFERENCE * n_rest) / self.cores)
            stretch = np.where(mean_tasks + n_rest > MAX_OTHERS / 2, mean, stretch)
        return _at_all(n_running, response), _at_all(n_running, stretch)


def stretch_of_tasks(curve: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return how many times as long as on a free machine each task computes."""
    # start, stop: When each task runs; NaN: it does not.
    ran = np.isfinite(start) & (stop > start)
    times = np.concatenate([start[ran], stop[ran]])
    order = np.argsort(times, kind="stable")
    times = times[order]
    count = np.cumsum(np.repeat([1.0, -1.0], ran.sum())[order])
    sums = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(times))])
    found = np.ones(len(start))
    if len(times):
        both = np.interp(stop[ran], times, sums) - np.interp(start[ran], times, sums)
        found[ran] = np.maximum(1.0, both / (stop - start)[ran])
    stretch: np.ndarray = np.interp(found, np.arange(len(curve)), curve)
    return stretch


# Probabilities of counts, as by `scipy.stats`, whose import takes longer than all other work.


def _binomial(count: np.ndarray, n: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the probability of each count of n, of which each is counted with the same share."""
    others = np.maximum(n - count, 0)
    log = gammaln(n + 1.0) - gammaln(count + 1.0) - gammaln(others + 1.0)
    log += xlogy(count, share) + xlog1py(others, -share)
    found: np.ndarray = np.where(count <= n, np.exp(log), 0.0)
    return found


def _poisson(count: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the probability of each count if this is the mean."""
    found: np.ndarray = np.exp(xlogy(count, mean) - gammaln(count + 1.0) - mean)
    return found


def _at_all(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values at 0, 1, 2, ... up to the last number."""
    found: np.ndarray = np.interp(np.arange(numbers[-1] + 1), numbers, values)
    return found


def _mean_running(load: Load) -> float:
    """Return how many tasks run while one runs, on average."""
    n_workers, nthreads, seconds, duration = load
    n_threads = n_workers * nthreads
    return 1 + (n_threads - 1) * min(1.0, seconds / (n_threads * duration))


def _measured_share(run: Run, n_workers: int, cpu: float, loops: float) -> float:
    """Return for which share of their computing time tasks held the GIL; NaN: not measured."""
    if not cpu or "gil_contention_mean" not in run.metrics:
        return float("nan")
    held = run.metrics["gil_contention_mean"] * n_workers * run.metrics["duration"]
    return min(1.0, max(0.0, held - LOOP_SHARE * loops) / cpu)
