"""What a run would have taken without the other processes of its machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchkit.errors import BenchkitError, NotRecorded
from benchkit.formatting import format_quantity
from benchkit.predict.answer import Base
from benchkit.predict.contention import SHORTEST_S, stretch_of_tasks
from benchkit.predict.processors import Processors
from benchkit.predict.replay import replay
from benchkit.predict.workflow import Workflow
from benchkit.store.run import Run
from benchkit.store.task_graph import event_actions

#: Seconds for which a task that computes waits for the GIL, for each second that it computes: the
#: other threads of its worker that ask for the GIL have no processor. Python loops of 10 to 100 ms
#: waited for 0.25 to 0.75 s of each second while they had a thirteenth of a processor.
GIL_WAITS = 0.5
#: Half-width of the interval, as a logarithm, besides the waits for the GIL: chosen
#: with a dozen runs that others slowed; no script measures it yet.
REACH = 0.15


@dataclass(frozen=True)
class CorrectedDuration:
    """The duration of a run without the waits for processors that other processes took."""

    seconds: float  # seconds, low, high: In s, with its interval
    low: float
    high: float

    def __str__(self) -> str:
        low, high = (format_quantity(value, "s") for value in (self.low, self.high))
        return f"{format_quantity(self.seconds, 's')} ({low} to {high})"


def disturbance(run: Run) -> tuple[str, ...]:
    """Return a sentence if other processes slowed a run, with what it would take without them."""
    cores = run.other_cores
    if not cores:
        return ()
    try:
        text = f"without them it would take about {corrected_duration(run)}"
    except BenchkitError as error:
        reason = str(error).removeprefix(f"run {run.id[:13]}: ").removeprefix(f"run {run.id}: ")
        text = f"what it would take without them is not known: {reason}"
    return (f"The run was disturbed: other processes used {cores:.1f} processor cores; {text}.",)


def corrected_duration(run: Run) -> CorrectedDuration:
    """Return the duration that a run would have had without other processes on its machine."""
    duration = run.metrics.get("duration", 0.0)
    if not duration > 0:
        raise NotRecorded(f"run {run.id}: it has no duration: its outcome is {run.outcome}")
    if not run.other_cores:
        return CorrectedDuration(duration, duration, duration)
    run.threads()  # raises NotRecorded
    processors = Processors(run)
    if not processors.are_known:
        raise NotRecorded(f"run {run.id}: waits for a processor: see the run's quality")
    workflow = Workflow.of(run)
    shape = workflow.shape.workers, workflow.shape.threads
    replayed = replay(workflow, *shape).duration
    Base.of(run, workflow, replayed, 0.0)  # raises UsageError
    given, ran, gil = _without_waits(run, workflow, processors)
    durations = []
    for share in (2 * GIL_WAITS, GIL_WAITS, 0.0):
        free = replace(given, seconds=given.seconds - np.minimum(gil, share * ran))
        alone = replay(free, *shape)
        shared = _sharing(free, ran, shape, alone.start, alone.stop)
        durations.append(replay(shared, *shape).duration)
    scale = duration / replayed
    low, seconds, high = (min(duration, value * scale) for value in sorted(durations))
    reach = np.exp(max(REACH, abs(np.log(scale))))
    return CorrectedDuration(seconds, float(low / reach), float(min(duration, high * reach)))


def _sharing(
    given: Workflow,
    ran: np.ndarray,
    shape: tuple[int, int],
    start: np.ndarray,
    stop: np.ndarray,
) -> Workflow:
    """Return a replay's input in which the run's own processes share the processors."""
    # ran: Seconds that each task used a processor.
    busy, end = float(given.seconds.sum()), float(np.nanmax(stop, initial=0.0))
    if not busy or not end:
        return given
    load = *shape, busy, end
    quiet = replace(given.contention, background=0.0, held=float("nan"), computing=ran.sum() / busy)
    stretch = stretch_of_tasks(quiet.curve(load, 0.0), start, stop)
    more = quiet.between_tasks(load, 0.0)
    return replace(
        given,
        seconds=given.seconds + ran * (stretch - 1),
        handoff=given.handoff * more,
        dispatch=given.dispatch * more,
    )


def _without_waits(
    run: Run, given: Workflow, processors: Processors
) -> tuple[Workflow, np.ndarray, np.ndarray]:
    """Return a replay's input without waits for processors, and two times of each task.

    The seconds that it ran, and those that it may have waited for the GIL of threads that did not.
    """
    graph = given.graph
    node = np.flatnonzero(np.isfinite(graph.start))
    waited, ran = np.zeros(len(graph)), np.zeros(len(graph))
    waited[node], ran[node] = processors.of_tasks(
        graph.thread[node], graph.start[node], graph.stop[node]
    )
    seconds = np.maximum(given.seconds - waited, 0.0)
    ran = np.minimum(ran, seconds)
    lacked = waited / np.maximum(waited + ran, SHORTEST_S)
    gil = np.minimum(seconds - ran, lacked * ran)
    end = graph.start[node]
    begin = np.clip(np.fmax(graph.thread_free, graph.ready)[node], 0.0, end)  # it could have run
    idle = _share_left(
        processors.of_worker_loops(graph.worker[node], begin, end)
        + processors.of_scheduler(begin, end),
        end - begin,
    )
    events = run.tree["task_events"].to_dataset()
    chosen = events["action"].values == event_actions(events).index("transfer")
    task = events["task"].values[chosen]
    begin, end = events["start"].values[chosen], events["stop"].values[chosen]
    workers = run.tree["tasks"].to_dataset()["worker"].values[task]
    sent = _share_left(processors.of_worker_loops(workers, begin, end), end - begin)
    stops = np.where(np.isfinite(graph.start), graph.stop, 0.0)
    gates = []
    for gate in given.gates:
        since = float(stops[gate.after]) if gate.after >= 0 else 0.0
        seconds_left = _client_seconds(processors, since, since + gate.seconds)
        gates.append(gate._replace(seconds=seconds_left))
    duration = run.metrics["duration"]
    free = replace(
        given,
        seconds=seconds,
        handoff=given.handoff * idle,
        dispatch=given.dispatch * idle,
        bandwidth=given.bandwidth / sent if sent else np.inf,
        latency=given.latency * sent,
        gates=gates,
        tail=_client_seconds(processors, duration - given.tail, duration),
    )
    return free, ran, gil


def _share_left(waited: np.ndarray, length: np.ndarray) -> float:
    """Return the share of times that remains without waits."""
    total = float(length.sum())
    return 1 - float(np.minimum(waited, length).sum()) / total if total > 0 else 1.0


def _client_seconds(processors: Processors, start: float, stop: float) -> float:
    """Return the seconds between two moments without waits of the client and the scheduler."""
    begin, end = np.array([start]), np.array([stop])
    waited = processors.of_client(begin, end) + processors.of_scheduler(begin, end)
    return max(0.0, stop - start - float(waited[0]))
