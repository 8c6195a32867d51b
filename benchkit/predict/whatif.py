"""Answer what a change would bring: replay the recorded graph on a changed cluster."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from benchkit.errors import UsageError
from benchkit.formatting import counted, format_quantity
from benchkit.predict.answer import Answer, Base, Prediction
from benchkit.predict.change import Change, changes
from benchkit.predict.chunks import CHUNKS_NOTE
from benchkit.predict.contention import SHORTEST_S, stretch_of_tasks
from benchkit.predict.disturbance import disturbance
from benchkit.predict.refusals import UnsupportedRun, refuse_without_sizes
from benchkit.predict.replay import Schedule, replay
from benchkit.predict.workflow import Gate, Workflow, distributed_options
from benchkit.simulation.model import ClusterShape
from benchkit.store.run import Run

#: Why an interval is wide.
GIL_UNKNOWN = (
    "how long tasks hold the GIL was not measured (gilknocker is not installed on the workers): "
    "intervals for other numbers of threads are wide"
)
#: An assumed bandwidth may be wrong by this factor.
BANDWIDTH_FACTOR = 5
#: Replays of another shape: the seconds of its tasks depend on its duration.
N_ROUNDS = 4
#: Relative change of the duration below which no further replay follows.
SETTLED = 0.002
#: Share of the tasks' seconds, or of the run if that is longer, in which tasks wait for spilled
#: data, above which it matters.
MAX_DISK = 0.02
#: Largest number of workers that is tried for a time.
MAX_WORKERS = 1024
#: Part of the memory beyond which results are spilled that a prediction may fill: the peaks of
#: workers differ, and a run predicted at 94 % took twice as long, because it spilled.
MEMORY_MARGIN = 0.75
#: Shares of a worker's memory beyond which results are spilled, by default: results, the process.
TARGET, SPILL = 0.6, 0.7


class Replayed:
    """The replay of a run, and what its tasks would share on other clusters."""

    def __init__(self, run: Run) -> None:
        self.run, self.given = run, Workflow.of(run)
        self.graph, self.shape = self.given.graph, self.given.shape
        self.duration = run.metrics["duration"]
        self.base = replay(self.given, self.shape.workers, self.shape.threads)
        #: Share of the tasks' seconds in which they compute or wait for a processor or the GIL.
        self.computing = self._recorded(self.given.contention.gil)[0]

    def _recorded(self, gil: float) -> tuple[float, np.ndarray]:
        """Return the share of the tasks' seconds that sharing can change, and by what it did."""
        contention, seconds = self.given.contention, self.given.seconds
        load = self.shape.workers, self.shape.threads, seconds.sum(), self.duration
        stretch = stretch_of_tasks(contention.curve(load, gil), self.graph.start, self.graph.stop)
        mean = float(stretch @ seconds / seconds.sum()) if seconds.sum() else 1.0
        return min(1.0, contention.computing * mean), stretch

    def on(self, given: Workflow, shape: ClusterShape) -> Workflow:
        """Return a workflow with the seconds and delays that it has on a cluster of a shape."""
        size = shape.workers, shape.threads
        return self._shared(given, size, replay(given, *size), given.contention.gil, N_ROUNDS)[0]

    def _shared(
        self,
        given: Workflow,
        size: tuple[int, int],
        schedule: Schedule,
        gil: float,
        rounds: int,
    ) -> tuple[Workflow, Schedule]:
        """Return workflow and schedule with processors and the GIL shared.

        `schedule` is that without; the size is the number of workers and of threads of each.
        """
        recorded_size = self.shape.workers, self.shape.threads
        changed = given
        if size == recorded_size:
            return changed, schedule
        contention = given.contention
        computing, recorded = self._recorded(gil)
        if given.merged is not None:
            weights = np.maximum(self.given.seconds, SHORTEST_S)
            totals = (np.bincount(given.merged, each) for each in (recorded * weights, weights))
            recorded = np.divide(*totals)
        recorded_load = *recorded_size, float(self.given.seconds.sum()), self.duration
        before = contention.between_tasks(recorded_load, gil)
        for _ in range(rounds):  # the shorter the run, the more the scheduler computes in it
            wall = schedule.duration * self.duration / self.base.duration
            sent = schedule.fetched - self.base.fetched
            load = *size, float((schedule.stop - schedule.start).sum()), wall
            curve = contention.curve(load, gil, sent)
            stretch = stretch_of_tasks(curve, schedule.start, schedule.stop)
            more = contention.between_tasks(load, gil, sent) / before
            changed = replace(
                given,
                seconds=given.seconds * (1 + computing * (stretch / recorded - 1)),
                handoff=given.handoff * more,
                dispatch=given.dispatch * more,
            )
            before_s, schedule = schedule.duration, replay(changed, *size)
            if abs(schedule.duration - before_s) < SETTLED * before_s:
                break
        return changed, schedule


class WhatIf(Replayed):
    """The replay of one run, to be changed."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.known = Base.of(run, self.given, self.base.duration, self.computing)
        self.error = self.known.error

    def predict(
        self, *, durations: np.ndarray | None = None, at_once: bool = False, **options: Any
    ) -> Prediction:
        """Return the duration with all options of a `Change` together.

        `durations` are those of all tasks. `at_once`: the client waits for no result before it
        makes the next graph.
        """
        change = Change(**options)
        given = change.applied(self.given)
        if durations is not None:
            given = replace(given, seconds=durations)
        if at_once:
            made = np.cumsum([gate.seconds for gate in given.gates]).tolist()
            given = replace(given, gates=[Gate(-1, moment) for moment in made])
        shape = change.shape_of(self.shape)
        if shape.workers != self.shape.workers or change.memory or change.chunks:
            refuse_without_sizes(self.run, str(change))
        self._check_memory(shape, no_spill=change.no_spill)
        return self.known.predict(str(change), shape, self._replays(given, shape), change.reach)

    def _check_memory(self, shape: ClusterShape, *, no_spill: bool) -> None:
        """Raise an UnsupportedRun if results would not fit the memory of a cluster."""
        what = f"on {counted(shape.workers, 'worker')}"
        disk = self.given.disk.sum()
        spills = disk > MAX_DISK * max(self.given.seconds.sum(), self.duration)
        if shape.workers != self.shape.workers and spills and not no_spill:
            raise UnsupportedRun(
                self.run.id, f"it spilled, and {what} other results would be spilled"
            )
        limit, n_workers = shape.memory_limit, shape.workers
        before = self.shape.memory_limit * self.shape.workers
        if not limit or limit * n_workers >= before or no_spill:
            return
        shares = spilling_shares(self.run)
        for name, most, share in zip(
            ("results", "process"), self._memory(n_workers), shares, strict=True
        ):
            if most > MEMORY_MARGIN * share * limit:
                raise UnsupportedRun(
                    self.run.id,
                    f"the {name} of a worker would have up to {format_quantity(most, 'B')} {what}: "
                    f"more than {MEMORY_MARGIN:.0%} of the {format_quantity(share * limit, 'B')} "
                    "beyond which results are spilled; `benchkit simulate` models that",
                )

    def _memory(self, n_workers: int) -> tuple[float, float]:
        """Return the highest bytes of results, and of its process, of one of several workers."""
        workers = self.run.tree["workers"].to_dataset()
        managed = max(
            _highest(self.run.tree["scheduler"].to_dataset(), "managed"), self._results_peak()
        )
        process = np.zeros(1)
        if "rss_peak" in workers:  # exact, where samples of `process` miss peaks
            process = np.nan_to_num(workers["rss_peak"].values).max(axis=0, initial=0.0)
        first = np.nan_to_num(workers["process"].values)[:1] if "process" in workers else 0.0
        idle = min(float(np.max(first, initial=0.0)), float(process.max()))
        moved = np.maximum(process - idle, 0.0).sum()  # of all workers at the same time, at most
        return managed / n_workers, idle + moved / n_workers if process.any() else 0.0

    def _results_peak(self) -> float:
        """Return the highest bytes of all results at a time, from the recorded tasks."""
        graph = self.graph
        ran = np.isfinite(graph.start)
        begins, ends = graph.stop[ran], np.fmax(graph.released[ran], graph.stop[ran])
        size = np.maximum(graph.nbytes[ran], 0).astype(float)
        order = np.argsort(np.concatenate([ends, begins]), kind="stable")  # releases first
        return float(np.cumsum(np.concatenate([-size, size])[order]).max(initial=0.0))

    def _replays(self, given: Workflow, shape: ClusterShape) -> tuple[float, float, float]:
        """Return the duration at best, the predicted one, and at worst.

        Unknown is the bandwidth of a run that fetched nothing, and for how long tasks hold the GIL.
        """
        size = shape.workers, shape.threads
        alone = replay(given, *size)
        contention = given.contention
        _, schedule = self._shared(given, size, alone, contention.gil, N_ROUNDS)
        durations = [schedule.duration]
        if not given.fetched and shape.workers > 1 and np.isfinite(given.bandwidth):
            slow = given.bandwidth / BANDWIDTH_FACTOR
            for bandwidth, latency in ((np.inf, 0.0), (slow, given.latency)):
                slow_or_free = replace(given, bandwidth=bandwidth, latency=latency)
                durations.append(replay(slow_or_free, *size).duration)
        if shape.threads != self.shape.threads:
            ends = contention.gil_range
            durations += [self._shared(given, size, alone, gil, 1)[1].duration for gil in ends]
        return min(durations), schedule.duration, max(durations)


def spilling_shares(run: Run) -> tuple[float, float]:
    """Return beyond which shares of a worker's memory results are spilled: results, process."""
    try:
        memory = distributed_options(run)["worker"]["memory"]
        target, spill = (float(memory[name] or np.inf) for name in ("target", "spill"))
        return min(target, spill), spill
    except (KeyError, TypeError, ValueError):
        return TARGET, SPILL


def _highest(samples: Any, name: str) -> float:
    return float(np.nan_to_num(samples[name].values).max(initial=0.0)) if name in samples else 0.0


def what_if(run: Run, *, within: float | str | None = None, **options: Any) -> Answer:
    """Return the durations that changes of a run would bring.

    Parameters
    ----------
    run : Run
        A run with a task graph.
    within : float or str, optional
        Seconds, or a text such as ``"2min"``: predict the smallest number of workers with which the
        run ends in this time.
    **options
        Fields of a `Change`; lists of values are combined.

    Returns
    -------
    Answer
        A prediction per combination.

    Raises
    ------
    NotRecorded
        The run has no task graph.
    UsageError
        The model does not hold for this run, or an argument is out of range.
    """
    chosen = list(changes(**options))
    model = WhatIf(run)
    notes = [*model.known.notes]
    if within is None:
        predictions = [model.predict(**vars(change)) for change in chosen]
    else:
        limit = _seconds_of(within)
        predictions = [_fewest_workers(model, change, limit) for change in chosen]
        if any(each.seconds > limit for each in predictions):
            notes.append(f"no number of workers ends it in {format_quantity(limit, 's')}")
    notes += [CHUNKS_NOTE] * any(change.chunks is not None for change in chosen)
    others = any(change.threads not in (None, model.shape.threads) for change in chosen)
    if others and model.computing and model.given.contention.gil_is_unknown:
        notes.append(GIL_UNKNOWN)
    return Answer(
        predictions,
        run.id,
        model.duration,
        model.error,
        "; ".join(notes),
        disturbed=disturbance(run),
    )


def _seconds_of(within: float | str) -> float:
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(within))
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0 < seconds < np.inf:
        raise UsageError(f"within {within!r}: must be a time, such as 60s or 2min")
    return seconds


def _fewest_workers(model: WhatIf, change: Change, limit: float) -> Prediction:
    """Return the prediction with the fewest workers that end in time, or else the fastest one."""
    if change.workers is not None:
        raise UsageError("within: it finds the number of workers: omit workers")

    @cache
    def with_workers(number: int) -> Prediction | None:
        try:
            return model.predict(**{**vars(change), "workers": number})
        except UnsupportedRun:  # the results do not fit so few workers
            return None

    def is_in_time(number: int) -> bool:
        found = with_workers(number)
        return found is not None and found.seconds <= limit

    most = 1
    while most < MAX_WORKERS and not is_in_time(most):
        most *= 2
    if not is_in_time(most):
        known = [found for n in range(most.bit_length()) if (found := with_workers(2**n))]
        if known:
            return min(known, key=lambda found: found.seconds)
        return model.predict(**{**vars(change), "workers": most})  # refuses with the reason
    fewest = bisect_left(range(most), True, max(1, most // 2), key=is_in_time)
    return model.predict(**{**vars(change), "workers": fewest})
