"""Answer what a change would bring: replay the recorded graph on a changed cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchkit.errors import UsageError
from benchkit.formatting import counted, format_quantity
from benchkit.predict.contention import Contention, stretch_of_tasks
from benchkit.predict.replay import ReplayInput, Schedule, replay
from benchkit.predict.workflow import event_seconds, replay_input, spilling_share
from benchkit.store.run import Run
from benchkit.store.task_graph import TaskGraph
from benchkit.table import Table


@dataclass(frozen=True)
class Prediction:
    """The duration that a changed run would have."""

    change: str  # The change, as options of `benchkit whatif`
    seconds: float  # seconds, low, high: Predicted duration in s and its interval
    low: float
    high: float
    ratio: float  # Of the predicted duration to the measured one


@dataclass(frozen=True, eq=False)
class Answer:
    """Predictions for changes of one run."""

    run_id: str  # The run
    duration: float  # Measured duration in s
    # Error of the replay of the run itself, as a share of its duration; predictions are
    # corrected by it.
    error: float
    predictions: list[Prediction]  # One per change
    note: str = ""  # What was not recorded, and makes intervals wide

    def to_records(self) -> list[dict[str, Any]]:
        """Return a flat object per change, for ``--json``."""
        common = {
            "run": self.run_id,
            "measured": self.duration,
            "replay_error": self.error,
            "note": self.note,
        }
        return [{**common, **vars(each)} for each in self.predictions]

    def to_table(self) -> Table:
        """Return the predictions as a table."""
        return Table(
            [
                {
                    "change": each.change,
                    "duration": format_quantity(each.seconds, "s"),
                    "interval": " to ".join(format_quantity(v, "s") for v in (each.low, each.high)),
                    "ratio": f"{each.ratio:.2f} x",
                }
                for each in self.predictions
            ]
        )

    @property
    def sentence(self) -> str:
        """Measured duration and the error of the replay, in one line."""
        return (
            f"measured {format_quantity(self.duration, 's')}; the replay of the run itself is "
            f"off by {self.error:+.1%}, and the intervals contain that error"
            f"{self.note and '; '}{self.note}"
        )

    def __repr__(self) -> str:
        return f"{self.to_table().to_text()}\n{self.sentence}"

    def _repr_html_(self) -> str:
        return f"{self.to_table().to_html()}<p>{self.sentence}</p>"


#: Largest error of the replay of the run itself, as a ratio, above which it predicts nothing.
MAX_ERROR = 0.3
#: Smallest half-width of an interval: what the same run repeated would differ by.
MIN_REACH = 0.05
#: Half-width, as a logarithm, that holds 90 % of predictions of another shape of the cluster
#: (`benchmarks/whatif.py`). Tasks that compute were measured up to twice the threads.
SHAPE_REACH = 0.15
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
#: Largest cluster to predict; `benchkit simulate` has a limit of 10,000 workers, too.
MAX_THREADS = 100_000
#: Tasks of these groups move data outside of the graph's dependencies.
P2P_PREFIXES = ("shuffle-transfer", "shuffle-p2p", "rechunk-transfer", "rechunk-p2p", "p2p-")


class WhatIf:
    """The replay of one run, to be changed."""

    def __init__(self, run: Run) -> None:
        self.run, self.graph = run, run.task_graph()
        _refuse(run, self.graph)
        self.duration = run.metrics["duration"]
        nthreads = run.tree["workers"].to_dataset()["nthreads"].values
        self.n_workers, self.nthreads = len(nthreads), round(float(nthreads.mean()))
        self.disk = event_seconds(run, self.graph, ("disk-read", "disk-write"))
        self.given, self.fetched = replay_input(run, self.graph, self.disk)
        self.contention = Contention.of(run)
        self.base = replay(self.given, self.n_workers, self.nthreads)
        #: Share of the tasks' seconds in which they compute or wait for a processor or the GIL.
        self.computing = self._recorded(self.contention.gil)[0]
        self.error = self.base.duration / self.duration - 1
        if abs(self.error) > MAX_ERROR:
            raise UsageError(
                f"run {run.id[:13]}: the replay of the run itself takes "
                f"{format_quantity(self.base.duration, 's')} instead of "
                f"{format_quantity(self.duration, 's')}: the model does not hold for it"
            )

    def predict(
        self,
        *,
        workers: int | None = None,
        threads: int | None = None,
        transfers: float | None = None,
        bandwidth: float | None = None,
        groups: Mapping[str, float] | None = None,
        no_spill: bool = False,
        durations: np.ndarray | None = None,
        at_once: bool = False,
    ) -> Prediction:
        """Return the duration with all of these changes together.

        `durations` are those of all tasks. `at_once`: the client waits for no result before it
        makes the next graph.
        """
        given = self.given
        shown: list[str] = []
        for name, number in (("workers", workers), ("threads", threads), ("bandwidth", bandwidth)):
            if number is not None and not 0 < number < np.inf:
                raise UsageError(f"{name} {number:g}: it must be a number larger than 0")
        for name, number in (("transfers", transfers), *(groups or {}).items()):
            if number is not None and not 0 <= number < np.inf:
                raise UsageError(f"{name} {number:g}: the factor must be a number, 0 or larger")
        shape = workers or self.n_workers, threads or self.nthreads
        if shape[0] * shape[1] > MAX_THREADS:
            raise UsageError(
                f"{counted(shape[0], 'worker')} with {counted(shape[1], 'thread')}: more than "
                f"{MAX_THREADS:,} threads cannot be predicted"
            )
        if workers is not None:
            shown.append(f"--workers {workers}")
        if threads is not None:
            shown.append(f"--threads {threads}")
        if bandwidth is not None:
            shown.append(f"--bandwidth x{bandwidth:g}")
            given = replace(given, bandwidth=given.bandwidth * bandwidth)
        if transfers is not None:
            shown.append(f"--transfers {transfers:g}")
            per_byte = transfers / given.bandwidth
            given = replace(
                given,
                bandwidth=1 / per_byte if per_byte else np.inf,
                latency=given.latency * transfers,
            )
        seconds = given.seconds if durations is None else durations
        if at_once:
            made = np.cumsum([after for _, after in given.gates])
            given = replace(given, gates=[(-1, moment) for moment in made.tolist()])
        if no_spill:
            shown.append("--no-spill")
            seconds = seconds - self.disk
        for name, factor in (groups or {}).items():
            shown.append(f'--group "{name}={factor:g}"')
            chosen = _nodes_of(self.graph, name)
            seconds = np.where(chosen, seconds * factor, seconds)
        given = replace(given, seconds=seconds)
        self._check_memory(shape[0], no_spill=no_spill)
        low, predicted, high = self._replays(given, shape)
        scale = self.duration / self.base.duration
        reach = max(MIN_REACH, abs(np.log(scale)))
        if shape != (self.n_workers, self.nthreads):
            n_doublings = abs(np.log2(shape[0] * shape[1] / (self.n_workers * self.nthreads)))
            reach = max(reach, SHAPE_REACH * max(1.0, n_doublings) ** self.computing)
        return Prediction(
            change=" ".join(shown) or "no change",
            seconds=predicted * scale,
            low=float(low * scale * np.exp(-reach)),
            high=float(high * scale * np.exp(reach)),
            ratio=predicted * scale / self.duration,
        )

    def _check_memory(self, n_workers: int, *, no_spill: bool) -> None:
        """Raise a UsageError if results would not fit the memory of this number of workers."""
        what = f"run {self.run.id[:13]}: no prediction for {counted(n_workers, 'worker')}"
        spills = self.disk.sum() > MAX_DISK * max(self.given.seconds.sum(), self.duration)
        if n_workers != self.n_workers and spills and not no_spill:
            raise UsageError(f"{what}: it spilled, and other workers would spill other results")
        limit = float(np.median(self.run.tree["workers"].to_dataset()["memory_limit"].values))
        samples = self.run.tree["scheduler"].to_dataset()
        managed = samples["managed"].values if "managed" in samples else np.zeros(0)
        most = float(np.nan_to_num(managed).max(initial=0.0))
        fits = spilling_share(self.run) * limit * n_workers
        if n_workers < self.n_workers and 0 < fits < most:
            raise UsageError(
                f"{what}: its results had {format_quantity(most, 'B')} at the same time, and they "
                f"would spill beyond {format_quantity(fits, 'B')}"
            )

    def _recorded(self, gil: float) -> tuple[float, np.ndarray]:
        """Return the share of the tasks' seconds that sharing can change, and by what it did."""
        shape = self.n_workers, self.nthreads
        curve = self.contention.curve((*shape, self.given.seconds.sum(), self.duration), gil)
        stretch = stretch_of_tasks(curve, self.graph.start, self.graph.stop)
        mean = _mean(stretch, self.given.seconds)
        return min(1.0, self.contention.computing * mean), stretch

    def _replays(self, given: ReplayInput, shape: tuple[int, int]) -> tuple[float, float, float]:
        """Return the duration at best, the predicted one, and at worst.

        Unknown is the bandwidth of a run that fetched nothing, and for how long tasks hold the GIL.
        """
        alone = replay(given, *shape)
        predicted = self._shared(given, shape, alone, self.contention.gil, N_ROUNDS)
        durations = [predicted]
        if not self.fetched and shape[0] > 1 and np.isfinite(given.bandwidth):
            slow = given.bandwidth / BANDWIDTH_FACTOR
            for bandwidth, latency in ((np.inf, 0.0), (slow, given.latency)):
                slow_or_free = replace(given, bandwidth=bandwidth, latency=latency)
                durations.append(replay(slow_or_free, *shape).duration)
        if shape[1] != self.nthreads:
            durations += [
                self._shared(given, shape, alone, gil, 1) for gil in self.contention.gil_range
            ]
        return min(durations), predicted, max(durations)

    def _shared(
        self,
        given: ReplayInput,
        shape: tuple[int, int],
        schedule: Schedule,
        gil: float,
        rounds: int,
    ) -> float:
        """Return the duration with processors and the GIL shared; `schedule` is that without."""
        if shape == (self.n_workers, self.nthreads):
            return schedule.duration
        computing, recorded = self._recorded(gil)
        recorded_load = self.n_workers, self.nthreads, self.given.seconds.sum(), self.duration
        before = self.contention.between_tasks(recorded_load, gil)
        for _ in range(rounds):  # the shorter the run, the more the scheduler computes in it
            wall = schedule.duration * self.duration / self.base.duration
            sent = schedule.fetched - self.base.fetched
            busy = float((schedule.stop - schedule.start).sum())
            curve = self.contention.curve((*shape, busy, wall), gil, sent)
            stretch = stretch_of_tasks(curve, schedule.start, schedule.stop)
            more = self.contention.between_tasks((*shape, busy, wall), gil, sent) / before
            changed = replace(
                given,
                seconds=given.seconds * (1 + computing * (stretch / recorded - 1)),
                handoff=given.handoff * more,
                dispatch=given.dispatch * more,
            )
            before_s, schedule = schedule.duration, replay(changed, *shape)
            if abs(schedule.duration - before_s) < SETTLED * before_s:
                break
        return schedule.duration


def _mean(stretch: np.ndarray, seconds: np.ndarray) -> float:
    """Return the mean over the seconds of tasks."""
    return float(stretch @ seconds / seconds.sum()) if seconds.sum() else 1.0


def what_if(
    run: Run,
    *,
    workers: int | Sequence[int] | None = None,
    threads: int | Sequence[int] | None = None,
    transfers: float | None = None,
    bandwidth: float | None = None,
    groups: Mapping[str, float] | None = None,
    no_spill: bool = False,
) -> Answer:
    """Return the durations that changes of a run would bring.

    Parameters
    ----------
    run : Run
        A run with a task graph.
    workers, threads : int or sequence of int, optional
        Numbers of workers, and of threads of each worker; all combinations are predicted.
    transfers, bandwidth, groups, no_spill
        See `WhatIf.predict`; they apply to each prediction.

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
    model = WhatIf(run)
    predictions = [
        model.predict(
            workers=n_workers,
            threads=nthreads,
            transfers=transfers,
            bandwidth=bandwidth,
            groups=groups,
            no_spill=no_spill,
        )
        for n_workers in _several(workers)
        for nthreads in _several(threads)
    ]
    others = any(nthreads not in (None, model.nthreads) for nthreads in _several(threads))
    note = GIL_UNKNOWN if others and model.computing and model.contention.gil_is_unknown else ""
    return Answer(run.id, model.duration, model.error, predictions, note)


def _several(value: int | Sequence[int] | None) -> Sequence[int | None]:
    return [value] if value is None or isinstance(value, int) else list(value)


def _nodes_of(graph: TaskGraph, name: str) -> np.ndarray:
    """Return which tasks belong to a task group, or to a prefix of groups."""
    names = graph.group_names
    exact = [n == name for n in names]
    chosen = exact if any(exact) else [n.rpartition("-")[0] == name for n in names]
    if not any(chosen):
        raise UsageError(f"task group {name!r}: the run has none; it has {', '.join(names[:8])}")
    flags: np.ndarray = np.append(chosen, False)[graph.group]
    return flags


def _refuse(run: Run, graph: TaskGraph) -> None:
    """Raise a UsageError with the reason why a replay would say nothing about this run."""
    what = f"run {run.id[:13]}: no prediction"
    p2p = [name for name in graph.group_names if name.startswith(P2P_PREFIXES)]
    if p2p:
        raise UsageError(
            f"{what}: {p2p[0]} is a P2P shuffle, which moves data outside of the graph"
        )
    if run.tree["tasks"].attrs.get("n_dropped"):
        raise UsageError(f"{what}: tasks are missing from its task stream")
    if not np.isfinite(graph.start).any():
        raise UsageError(f"{what}: no task of its graph ran")
    if run.metrics.get("n_workers_lost"):
        raise UsageError(f"{what}: it lost workers")
    if run.metrics.get("seceded_time"):
        raise UsageError(f"{what}: its tasks left their threads (secede, worker_client)")
    if not graph.ok[np.isfinite(graph.start)].all():
        raise UsageError(f"{what}: its tasks failed")
