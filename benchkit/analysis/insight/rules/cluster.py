"""Rules about the cluster: scheduler, workers, their threads, machines and network."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchkit.analysis.insight.blame import (
    BETWEEN_TASKS,
    CLIENT,
    COMPUTING,
    NO_PROCESSOR,
    paused_spans,
)
from benchkit.analysis.insight.findings import MIN_SHARE, WORTH_SHARE, Case, Finding, rule
from benchkit.formatting import counted, format_quantity
from benchkit.simulation.graph import first_p2p
from benchkit.store.task_graph import TaskGraph

#: Shorter times are those of a process without a processor, if other processes use processors.
LONG_S = 0.5
#: First function of stacks that say that nothing blocked the loop: it waited for messages and had
#: no processor.
NOT_BLOCKED = "select ("
#: If this part of a blocked time has another cause, that is named: garbage collection, which has a
#: rule of its own, or other threads of the process, which held the GIL.
OTHER_CAUSE = 0.5
#: Longest time in s between two samples of the scheduler's counters.
SAMPLE_S = 0.5
#: Causes in which a blocked scheduler delays the run. While tasks compute it delays nothing.
NEEDS_SCHEDULER = (*BETWEEN_TASKS, "graph", "transfer", "worker paused")


@rule(*NEEDS_SCHEDULER, *CLIENT)
def blocked_loop(case: Case) -> Finding | None:
    """Find what blocks the event loop of the scheduler."""
    times, waits = _blocked_times(case), 0.0
    for time in times:
        # The client may have waited for what blocked the loop, such as a function that it sent; if
        # it held the GIL itself, it did not.
        causes = NEEDS_SCHEDULER if time.by_threads else (*NEEDS_SCHEDULER, *CLIENT)
        waits += case.blamed(*causes, window=time.window)
    if not times or waits < MIN_SHARE * case.duration:
        return None
    seconds = case.seconds_within(*zip(*(time.window for time in times), strict=True))
    longest = max(times)
    names = " < ".join(line.partition(" (")[0] for line in longest.stack.splitlines()[:3])
    what, change = "event loop was blocked", "move work out of its plugins; fewer, larger tasks"
    if longest.by_threads:
        what = "process computed in other threads, which held the GIL"
        change = "a scheduler in a process of its own, or less work in its process"
    return Finding(
        what=f"the scheduler's {what}",
        seconds=waits,
        evidence=f"{counted(len(times), 'time')}, {format_quantity(seconds, 's')} in all, during "
        f"{format_quantity(waits, 's')} of which something waited for it; the longest in {names}",
        change=change,
        window=(max(0.0, longest.window[0]), min(longest.window[1], case.duration)),
    )


class _BlockedTime(NamedTuple):
    """A time in which the event loop did nothing else."""

    seconds: float  # Length in s
    window: tuple[float, float]  # Start and end in s of the run's clock
    by_threads: bool  # Whether other threads of its process held the GIL
    stack: str  # Call stack of the loop, the innermost function first


def _blocked_times(case: Case) -> list[_BlockedTime]:
    """Return the times in which code blocked the loop, without those of garbage collection."""
    found = []
    events = case.events("loop-blocked")
    for text, stop in zip(events["message"], events["time"], strict=True):
        message = json.loads(text)
        seconds, stack = message["seconds"], message["stack"]
        is_short = seconds < LONG_S and case.is_disturbed
        around = (stop - seconds - SAMPLE_S, stop + SAMPLE_S)
        collected_s = case.increase(case.scheduler, "gc_time", around).max()
        if is_short or collected_s > OTHER_CAUSE * seconds or stack.startswith(NOT_BLOCKED):
            continue
        others_s = message.get("process_cpu", np.nan) - message.get("own_cpu", np.nan)
        window = (stop - seconds, stop)
        found.append(_BlockedTime(seconds, window, others_s > OTHER_CAUSE * seconds, stack))
    return found


#: Shorter delays are usual; on a machine with other processes, longer ones are.
LATE_S, LATE_IF_DISTURBED_S = 0.5, 1.0


#: Causes in which a blocked worker may delay the run.
NEEDS_WORKER = (*BETWEEN_TASKS, "transfer", "queued", "not parallel", "straggler", "gather")


@rule(*NEEDS_WORKER)
def blocked_worker(case: Case) -> Finding | None:
    """Find workers whose event loop was blocked by their tasks."""
    ticks = np.where(case.heartbeats, case.workers["tick_max"].values, np.nan)
    long = LATE_IF_DISTURBED_S if case.is_disturbed else LATE_S
    ticks[~(ticks > long)] = np.nan
    # Heartbeats may report one delay twice, or a delay from before the clock started.
    times = case.workers["time"].values
    seconds = np.array([case.seconds_within(times - column, times) for column in ticks.T])
    if not seconds.size:
        return None
    worker = int(seconds.argmax())
    if seconds[worker] < WORTH_SHARE * case.duration:
        return None
    name = str(case.workers["name"].values[worker])
    late = np.isfinite(ticks[:, worker])
    ends, begins, waits = times[late], (times - ticks[:, worker])[late], 0.0
    for begin, end in zip(np.maximum(begins, np.append(0.0, ends[:-1])), ends, strict=True):
        waits += case.blamed(*NEEDS_WORKER, window=(begin, end)) if end > begin else 0.0
    return Finding(
        what="the event loop of a worker was blocked",
        seconds=min(waits, case.imbalance),
        evidence=f"worker {name}: at least {format_quantity(float(seconds[worker]), 's')}, in "
        f"which it sends and fetches nothing; something waited meanwhile for "
        f"{format_quantity(waits, 's')}",
        change="code that holds the GIL or writes spilled data blocks it: more processes with "
        "fewer threads",
        worker=name,
    )


#: Share of the time of which distributed collects garbage itself on a worker whose memory is full
#: (its ``ThrottledGC.max_in_gc_frac``), after the first collection.
THROTTLED_SHARE = 0.05
#: Smallest share of the duration. Less than `WORTH_SHARE`: the time is measured, not estimated.
MIN_GARBAGE_SHARE = 0.08


@rule(*BETWEEN_TASKS, "graph", *COMPUTING)
def garbage(case: Case) -> Finding | None:
    """Find garbage collections that take a noticeable part of the time."""
    scheduler = float(case.increase(case.scheduler, "gc_time").max())
    workers = (case.increase(case.workers, "gc_time") - _collecting_seconds(case)).max()
    # Collections cost what waits for them: tasks on a worker, all threads for the scheduler.
    share = min(1.0, case.metric("compute_time") / case.n_threads / case.duration)
    waits = case.blamed(*BETWEEN_TASKS, "graph") if case.limits else scheduler
    seconds = min(scheduler, waits) + share * max(0.0, workers)
    if seconds < MIN_GARBAGE_SHARE * case.disturbance * case.duration:
        return None
    where, change = "the scheduler", "fewer, larger tasks"
    if workers > scheduler:
        where = "the slowest worker"
        change = "fewer Python objects in results: arrays and tables instead of lists and dicts"
    return Finding(
        what="garbage collection takes much time",
        seconds=seconds,
        evidence=f"{format_quantity(max(scheduler, workers), 's')} on {where}",
        change=change,
    )


def _collecting_seconds(case: Case) -> np.ndarray | float:
    """Return the most seconds that distributed's own collections of garbage can have taken."""
    if "gc_max" in case.workers and (paused_spans(case.run) or case.metric("disk_write_time")):
        longest = np.nan_to_num(case.workers["gc_max"].values).max(axis=0, initial=0.0)
        return np.asarray(longest + THROTTLED_SHARE * case.duration)
    return 0.0


#: Share of the time in which a thread waited for the GIL: two threads lose a fifth of their
#: computing with it.
MIN_CONTENTION = 0.4


@rule(*COMPUTING)
def gil(case: Case) -> Finding | None:
    """Find threads that wait for the GIL."""
    share = case.metric("gil_contention_mean")
    nthreads = int(case.workers["nthreads"].values.max(initial=1))
    if share < MIN_CONTENTION or nthreads < 2:
        return None
    lost = share * (1 - 1 / nthreads)
    return Finding(
        what="threads of one worker wait for each other (GIL)",
        seconds=lost * case.metric("compute_time") / case.n_threads,
        evidence=f"contended for {share:.0%} of the time with {nthreads} threads a worker",
        change="more workers with one thread each",
        settings={
            "cluster.n_workers": case.n_threads,
            "cluster.threads_per_worker": 1,
        },
    )


@rule(*BETWEEN_TASKS, *COMPUTING)
def lost_workers(case: Case) -> Finding | None:
    """Find workers that were lost."""
    n_lost = int(case.metric("n_workers_lost"))
    if not n_lost:
        return None
    restarts, removed = case.events("worker-restart-memory"), case.events("worker-removed")
    since = (float(removed["time"].min()) if len(removed) else 0.0, case.duration)
    why = "the nanny ended them: memory" if len(restarts) else "they died or lost the connection"
    return Finding(
        what="workers were lost",
        seconds=case.blamed(*BETWEEN_TASKS, window=since) if case.limits else 0.0,
        is_always_reported=True,
        evidence=f"{counted(n_lost, 'worker')}; {why}",
        change="more memory per worker or smaller chunks"
        if len(restarts)
        else "read the worker's logs",
    )


@rule("no processor", *COMPUTING, *BETWEEN_TASKS)
def neighbours(case: Case) -> Finding | None:
    """Find threads that waited for a processor, and who used the processors."""
    seconds, cores = case.blamed("no processor"), case.other_cores
    if not seconds and cores:  # recorded before format 3: what other processes can have taken
        # A thread that computes waits at most as long as each of the others computes meanwhile; a
        # task that sleeps loses nothing.
        seconds = case.duration * min(0.5, cores / (cores + case.n_threads))
        computed, waited = case.task_seconds("thread-cpu"), case.task_seconds("thread-noncpu")
        if computed is not None and waited is not None:
            seconds = min(seconds, cores * computed / case.n_threads, waited / case.n_threads)
    throttled = float(case.increase(case.workers, "cpu_throttled").max(initial=0.0))
    if not seconds:
        return None
    what, change = "threads waited for a processor", "fewer threads than processors"
    evidence = f"for {format_quantity(seconds, 's')} of the run"
    if throttled > seconds / 2:
        evidence += f"; the control group was stopped for {format_quantity(throttled, 's')}"
        change = "a higher limit of the control group (the container), or fewer threads"
    elif cores:
        what = "other processes use the processors of the workers"
        evidence += (
            f"; processes other than workers, scheduler and client used {cores:.1f} cores of the "
            "workers' machines"
        )
        change = "stop them, or measure on a machine of its own"
    return Finding(what=what, seconds=seconds, evidence=evidence, change=change)


@rule("transfer")
def network(case: Case) -> Finding | None:
    """Find time that is spent waiting for transfers."""
    waits = case.blamed("transfer") * (1 - _share_of_disk(case))
    if waits < WORTH_SHARE * case.disturbance * case.duration:
        return None
    saved = case.saving(transfers=0)
    cost = waits if saved is None else min(max(saved, waits), 2 * waits)
    return Finding(
        what="tasks wait for results of other workers",
        seconds=cost,
        evidence=f"the walk back waited {format_quantity(waits, 's')} for transfers of "
        f"{format_quantity(case.metric('transfer_bytes'), 'B')}",
        change="fewer, larger workers; chunks that stay on their worker; a faster network",
        window=case.longest_span("transfer"),
    )


def _share_of_disk(case: Case) -> float:
    """Return the share of the seconds of fetches in which the sender read spilled results."""
    fine = case.fine_seconds
    fetches = float(fine.loc[fine["context"] == "gather-dep", "value"].sum())
    reads = (fine["activity"] == "disk-read") & ~fine["context"].isin(["execute", "p2p"])
    return min(1.0, float(fine.loc[reads, "value"].sum()) / fetches) if fetches else 0.0


#: Growth of a process between two heartbeats, as a share of its memory limit, while it fills up: 20
#: heartbeats or fewer until the limit.
FILLS = 0.05
#: Processor seconds for each second of computing: half a processor more than tasks with one thread.
MIN_PROCESSORS = 1.5
#: The same of processor seconds outside of the threads of tasks, on a machine that is busy anyway.
MIN_OTHER_PROCESSORS = 0.4
#: Processor seconds that a worker needs per task besides it: messages, transfers, shuffles. In 318
#: runs of 36 workloads 3 ms (median) and 7.5 ms (nine of ten) with all that a process does.
PER_TASK_S = 0.005


@rule(*COMPUTING)
def oversubscribed(case: Case) -> Finding | None:
    """Find tasks that use more processors than threads, such as by BLAS."""
    computing, cpu = case.metric("compute_time"), case.metric("cpu_time")
    half = 0.5 * case.n_threads * case.duration
    # A worker compresses and writes spilled results outside of the threads of tasks.
    spilling = case.metric("disk_write_time") + case.metric("disk_read_time")
    overhead = PER_TASK_S * case.metric("n_tasks") + spilling + _filling_seconds(case)
    many = cpu - overhead >= MIN_PROCESSORS * max(computing, half)
    # On a machine with other processes, all threads of a task together get less than a processor.
    others = computing >= half and case.other_threads - overhead >= MIN_OTHER_PROCESSORS * computing
    if not computing or not (many or others):
        return None
    own = case.blamed(NO_PROCESSOR)
    unknown = "" if own else "; for how long threads waited for processors was not recorded"
    return Finding(
        what="tasks start threads of their own",
        seconds=own,
        is_always_reported=not own,
        evidence=f"workers used {format_quantity(cpu, 's')} of processor time in "
        f"{format_quantity(computing, 's')} of computing, "
        f"{format_quantity(case.other_threads, 's')} of it outside of the threads of tasks"
        f"{unknown}",
        change="OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1 and MKL_NUM_THREADS=1 on the workers",
        settings={"variables.OMP_NUM_THREADS": "1", "variables.OPENBLAS_NUM_THREADS": "1"},
    )


def _filling_seconds(case: Case) -> float:
    """Return the processor seconds, besides tasks, in which memory filled until a worker paused.

    The operating system provides each page of memory when it is used first.
    """
    tasks, times, seconds = case.tasks, case.workers["time"].values, 0.0
    if tasks.empty:
        return seconds
    own = (case.task_seconds("thread-cpu") or 0.0) / max(case.metric("compute_time"), 1e-9)
    for worker in paused_spans(case.run).keys() & set(range(len(case.workers["nthreads"]))):
        rows = np.flatnonzero(case.heartbeats[:, worker])
        size, cpu = (case.workers[name].values[:, worker] for name in ("process", "cpu_time"))
        least = FILLS * float(case.workers["memory_limit"].values[worker])
        begin, length = tasks.loc[tasks["worker"] == worker, ["start", "duration"]].to_numpy().T
        for before, after in pairwise(rows.tolist()):
            if size[after] - size[before] > least:
                within = np.minimum(begin + length, times[after]) - np.maximum(begin, times[before])
                grown = cpu[after] - cpu[before] - own * np.maximum(within, 0.0).sum()
                seconds += max(0.0, float(grown))
    return seconds


#: Share of the duration in which the scheduler's thread was busy. At 70 %, messages that arrive at
#: random wait longer for others than they take themselves.
MIN_BUSY = 0.7


@rule(*BETWEEN_TASKS, "graph")
def scheduler_busy(case: Case) -> Finding | None:
    """Find a scheduler that has no time left."""
    if case.limits is None:
        return None
    busy = case.limits.bounds["scheduler"]
    # Time in which it unpacks graphs and sends data in them is the finding of another rule.
    unpacking = case.blamed("graph")
    waits = case.blamed(*BETWEEN_TASKS) - case.data_waits
    if busy < MIN_BUSY * case.duration or waits < max(unpacking, case.data_waits):
        return None
    n_tasks = int(case.metric("n_tasks"))
    return Finding(
        what="the scheduler is the bottleneck",
        seconds=waits + unpacking,
        evidence=f"its process was busy for {format_quantity(busy, 's')} of "
        f"{format_quantity(case.duration, 's')}, with {n_tasks} tasks",
        change="fewer, larger tasks; fewer workers do not help",
        window=case.longest_span(*BETWEEN_TASKS, "graph"),
    )


#: A worker is slow if the median of its tasks takes so many times as long as that of tasks of the
#: same groups on the other workers. The second: other processes disturb single workers.
SLOW, SLOW_IF_DISTURBED = 1.4, 1.8
#: The median of fewer tasks is that of an outlier too often.
MIN_WORKER_TASKS = 5
#: The durations of shorter tasks are noise.
MIN_TASK_S = 0.005


@rule(*COMPUTING)
def slow_worker(case: Case) -> Finding | None:
    """Find a worker whose tasks take longer than those of the others."""
    n_workers = len(case.workers["nthreads"])
    slow = _slowest(case, np.arange(n_workers))
    if slow is None or slow_host(case) is not None:
        return None
    name = str(case.workers["name"].values[slow.place])
    return Finding(
        what=f"worker {name} is slower than the others",
        seconds=slow.seconds,
        evidence=f"its tasks take {slow.ratio:.2f} times as long as those of the same groups",
        change="look at its machine: other processes, temperature, memory; or leave it out",
        worker=name,
    )


@rule(*COMPUTING)
def slow_host(case: Case) -> Finding | None:
    """Find a host with several workers whose tasks take longer than those of the other hosts."""
    hosts, place = np.unique(case.workers["host"].values.astype(str), return_inverse=True)
    slow = _slowest(case, place) if len(hosts) > 1 else None
    if slow is None or (place == slow.place).sum() < 2:
        return None
    names = case.workers["name"].values[place == slow.place]
    return Finding(
        what=f"host {hosts[slow.place]} is slower than the others",
        seconds=slow.seconds,
        evidence=f"the tasks of its workers ({', '.join(map(str, names))}) take {slow.ratio:.2f} "
        "times as long as those of the same groups",
        change="look at the host: other processes, limits, temperature, memory; or leave it out",
        worker=str(names[0]),
    )


class _Slow(NamedTuple):
    """A worker or host whose tasks take longer than those of the others."""

    place: int  # Its number
    ratio: float  # Times the usual duration that its tasks take, at the median
    seconds: float  # What usual durations would save


def _slowest(case: Case, place: np.ndarray) -> _Slow | None:
    """Return the slowest place of the workers, if it is slower than the others."""
    # place: Number of each worker's place: its own, or that of its host.
    tasks = case.tasks
    if tasks.empty:
        return None
    usual, at = case.usual_seconds, pd.Series(place[tasks["worker"]], tasks.index)
    known = usual > MIN_TASK_S
    busy = tasks.loc[known].groupby(at[known])["duration"].sum()
    expected = usual[known].groupby(at[known]).sum()
    # Medians: a single task with more work than the others does not make its worker slow.
    ratios = (tasks["duration"] / usual)[known].groupby(at[known])
    ratio = ratios.median()[ratios.size() >= MIN_WORKER_TASKS]
    slow = SLOW_IF_DISTURBED if case.is_disturbed else SLOW
    if len(ratio) < 2 or ratio.max() < slow * ratio.drop(ratio.idxmax()).median():
        return None
    worst = int(ratio.idxmax())
    # Groups whose tasks differ in their work have slow and fast tasks on each worker.
    if ratios.quantile(0.25)[worst] < ratios.quantile(0.75)[ratio.index].drop(worst).median():
        return None
    n_threads = int(case.workers["nthreads"].values[place == worst].sum())
    saved = None
    if case.model is not None:
        given, workers = case.model.given.seconds, case.model.graph.worker
        is_slow = (workers >= 0) & (place[workers] == worst)
        faster = given * float(expected[worst] / busy[worst])
        saved = case.saving(durations=np.where(is_slow, faster, given))
    if saved is None:
        saved = min(float(busy[worst] - expected[worst]) / n_threads, case.imbalance)
    return _Slow(worst, float(ratio.max()), saved)


@rule("restricted")
def restricted(case: Case) -> Finding | None:
    """Find tasks that may run on some workers only, while others have nothing to do."""
    waits = case.blamed("restricted")
    if case.limits is None or waits < MIN_SHARE * case.duration:
        return None
    graph = case.run.task_graph()
    nodes = [n for n, given in graph.options.items() if {"workers", "resources"} & given.keys()]
    by_resource = any("resources" in graph.options[node] for node in nodes)
    used = np.unique(graph.worker[nodes])
    n_used, n_workers = int((used >= 0).sum()), len(case.workers["nthreads"])
    group = str(case.limits.groups["seconds"]["restricted"].idxmax())
    what = "claim a resource (resources=)" if by_resource else "are bound to workers (workers=)"
    return Finding(
        what=f"tasks {what} while other threads are idle",
        seconds=min(waits, case.imbalance),
        evidence=f"{counted(len(nodes), 'task')}, which ran on {n_used} of "
        f"{counted(n_workers, 'worker')}; threads waited {format_quantity(waits, 's')}",
        change="let each task claim less, or give each worker more of it"
        if by_resource
        else "leave out workers=, or name all workers that can run them",
        group=group,
        window=case.longest_span("restricted"),
    )


#: Times as long as usual that a byte takes; small results take longer per byte on any link.
SLOW_LINK = 3.0


@rule("transfer")
def slow_link(case: Case) -> Finding | None:
    """Find a worker whose transfers take much longer for their bytes than those of the others."""
    waits = case.blamed("transfer")
    if "transfers" not in case.run.tree.children or waits < MIN_SHARE * case.duration:
        return None
    sent = case.run.transfers()
    source, target, nbytes, seconds = (
        sent[name].values for name in ("source", "destination", "bytes", "seconds")
    )
    inside = (source >= 0) & (target >= 0) & (nbytes > 0)
    worst, slowness, part = -1, SLOW_LINK, 0.0
    for worker in np.unique(np.append(source[inside], target[inside])).tolist():
        own = inside & ((source == worker) | (target == worker))
        others = inside & ~own
        if not seconds[others].sum() or not nbytes[others].sum():
            continue
        usual = seconds[others].sum() / nbytes[others].sum()
        ratio = seconds[own].sum() / nbytes[own].sum() / usual
        if ratio > slowness:
            worst, slowness = worker, ratio
            part = 1 - (usual * nbytes[inside].sum()) / seconds[inside].sum()
    if worst < 0:
        return None
    name = str(case.workers["name"].values[worst])
    return Finding(
        what=f"transfers from and to worker {name} are slow",
        seconds=max(0.0, part) * waits,
        evidence=f"a byte takes {slowness:.1f} times as long as between the others; its host is "
        f"{case.workers['host'].values[worst]}",
        change="look at the network of its host; or leave the worker out",
        worker=name,
    )


#: Phase of a P2P shuffle, rechunk or join -> what makes threads idle in it, and what to change.
P2P_PHASES = {
    "transfer": "inputs of equal size that are ready at the same time: fewer steps before them",
    "barrier": "a faster network or disk, for which it waits; if the data fit in memory, "
    "distributed.p2p.storage.disk: false",
    "unpack": "more output partitions than threads, of equal size",
}


@rule("not parallel", "straggler", "queued", "transfer", *BETWEEN_TASKS)
def p2p(case: Case) -> Finding | None:
    """Find P2P shuffles, rechunks and joins during which threads are idle, by phase."""
    if case.limits is None:
        return None
    blame = case.limits.blame
    phase = blame["group"].map(_p2p_phases(case.run.task_graph()))
    length = (blame["stop"] - blame["start"]).groupby(phase).sum()
    idle = {name: case.idle_seconds(blame[phase == name]) for name in P2P_PHASES}
    idle["barrier"] = float(length.get("barrier", 0.0))  # its task only waits
    seconds = sum(idle.values())
    if seconds < WORTH_SHARE * case.disturbance * case.duration:
        return None
    worst = max(idle, key=lambda name: idle[name])
    times = [f"{format_quantity(length.get(name, 0.0), 's')} of {name}" for name in P2P_PHASES]
    sent = case.metric("p2p_bytes")
    size = f"; {format_quantity(sent, 'B')} went to other workers" if sent else ""
    groups = (blame["stop"] - blame["start"])[phase == worst].groupby(blame["group"]).sum()
    return Finding(
        what=f"threads are idle in a P2P shuffle, most in its {worst}",
        seconds=seconds,
        evidence=f"{', '.join(times)}{size}; of the {worst}, "
        f"{format_quantity(idle[worst], 's')} are waits",
        change=P2P_PHASES[worst],
        group=str(groups.idxmax()),
    )


def _p2p_phases(graph: TaskGraph) -> dict[str, str]:
    """Return the phase of each task group of P2P shuffles: what is before and after a barrier."""
    names = np.array([*graph.group_names, ""], object)
    barriers = [n for n, name in enumerate(names) if "-barrier" in name and first_p2p([name])]
    if not barriers:
        return {}
    after, before = np.repeat(graph.group, np.diff(graph.indptr)), graph.group[graph.indices]
    sent, got = before[np.isin(after, barriers)], after[np.isin(before, barriers)]
    return {
        **dict.fromkeys(names[np.unique(sent)], "transfer"),
        **dict.fromkeys(names[np.unique(got)], "unpack"),
        **dict.fromkeys(names[barriers], "barrier"),
    }
