"""Rules about tasks: their size, their number, and what they wait for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchkit.analysis.insight.blame import BETWEEN_TASKS, COMPUTING, paused_spans
from benchkit.analysis.insight.findings import LARGE_SHARE, WORTH_SHARE, Case, Finding, rule
from benchkit.analysis.insight.rules.functions import LOCKS, READERS
from benchkit.formatting import counted, format_quantity
from benchkit.simulation.graph import first_p2p
from benchkit.store.task_graph import TaskGraph


@rule(*COMPUTING, *BETWEEN_TASKS)
def failed_attempts(case: Case) -> Finding | None:
    """Find attempts of tasks that failed."""
    seconds = case.metric("failed_time")
    if not seconds:
        return None
    return Finding(
        what="attempts of tasks failed",
        seconds=seconds / case.n_threads,
        evidence=f"{format_quantity(seconds, 's')} of thread-seconds ended in an error",
        change="mend the error; a retry repeats the whole task",
    )


@rule(*COMPUTING)
def recomputed(case: Case) -> Finding | None:
    """Find tasks that were computed again after a worker was lost."""
    again = case.events("task-recomputed")
    if not len(again) or case.tasks.empty:
        return None
    rows = case.tasks["start"].isin(again["time"])
    seconds = float(case.tasks.loc[rows, "duration"].sum())
    return Finding(
        what="results were computed again after a worker was lost",
        seconds=seconds / case.n_threads,
        evidence=f"{len(again)} tasks, {format_quantity(seconds, 's')} of computing",
        change="find out why the worker was lost; persist or store what is expensive",
    )


#: A group is skewed if its longest task takes so many times its median; first tasks import modules.
#: Larger by `Case.disturbance` where other processes make single tasks wait for a processor.
MIN_SKEW = 5.0
#: The median of fewer tasks says little of what is usual.
MIN_GROUP_TASKS = 8
#: The median of shorter tasks counts as this much: an import makes the first of them take long.
MIN_MEDIAN_S = 0.02


@rule("not parallel", "straggler")
def skew(case: Case) -> Finding | None:
    """Find groups of which single tasks take many times as long as the others."""
    tasks = case.tasks
    if tasks.empty or case.limits is None:
        return None
    blame = case.limits.blame
    on_path = blame.loc[~blame["origin"].isin(BETWEEN_TASKS), "group"]
    skewed, is_beside = MIN_SKEW * case.disturbance, _beside_pauses(case)
    worst, cost, n_long, evidence, window = "", 0.0, 1, "", None
    for name, durations in tasks.groupby("task_group", observed=True)["duration"]:
        if len(durations) < MIN_GROUP_TASKS or name not in set(on_path):
            continue
        median = durations.median()
        # While memory fills until a worker is paused, its task waits: that is no work.
        waits = case.waits_in_tasks(str(name)) if is_beside[durations.index].any() else 0.0
        work = durations - waits * is_beside[durations.index]
        longest, usual = work.max(), max(median, MIN_MEDIAN_S)
        if longest > skewed * usual and longest - median > cost:
            worst, cost = str(name), float(longest - median)
            n_long = int((work > skewed * usual).sum())
            start = float(tasks.loc[work.idxmax(), "start"])
            window = start, start + float(longest)
            evidence = (
                f"the longest of {len(durations)} tasks takes {format_quantity(longest, 's')}, "
                f"the median {format_quantity(median, 's')}"
            )
    if not worst or cost < WORTH_SHARE * case.duration:
        return None
    who = "one task has" if n_long == 1 else f"{n_long} tasks have"
    return Finding(
        what=f"{who} much more work than the others of the group",
        seconds=_even_seconds(case, worst, cost * (1 - 1 / case.n_threads)),
        evidence=evidence,
        change="divide the data evenly: repartition, or another key for grouping and shuffling",
        group=worst,
        window=window,
    )


def _even_seconds(case: Case, group: str, most: float) -> float:
    """Return the seconds that equal tasks of a group would save; without a replay, at most."""
    saved = case.even_saving(group)
    return min(most, case.imbalance) if saved is None else saved


def _beside_pauses(case: Case) -> pd.Series:
    """Return which tasks ran while their worker was paused, or became so."""
    start, stop = case.tasks["start"], case.tasks["start"] + case.tasks["duration"]
    found = pd.Series(False, index=case.tasks.index)
    for worker, spans in paused_spans(case.run).items():
        for begin, end in spans:
            found |= (case.tasks["worker"] == worker) & (start < end) & (stop > begin)
    return found


#: The run was parallel if half of the threads were busy before the last tasks ran alone.
MIN_BUSY_BEFORE = 0.5


@rule("not parallel", "straggler")
def stragglers(case: Case) -> Finding | None:
    """Find last tasks that run alone at the end."""
    seconds = case.blamed("straggler")
    if case.limits is None or seconds < WORTH_SHARE * case.duration:
        return None
    # A chain of tasks also ends with one: then the graph never was parallel.
    blame = case.limits.blame
    begin = blame.loc[blame["origin"] == "straggler", "start"].min()
    stop = (case.tasks["start"] + case.tasks["duration"]).clip(upper=begin)
    if (stop - case.tasks["start"]).clip(lower=0).sum() < MIN_BUSY_BEFORE * case.n_threads * begin:
        return None
    group = str(case.limits.groups["seconds"]["straggler"].idxmax())
    # Equal tasks that do not divide evenly among the threads end at most one task apart.
    own = case.tasks.loc[case.tasks["task_group"] == group, "duration"]
    if len(own) > case.n_threads and seconds < own.median() * case.disturbance:
        return None
    unequal = skew(case)
    if unequal is not None and unequal.group == group:
        return None
    saved = min(seconds * (1 - 1 / case.n_threads), case.imbalance)
    if len(own) > case.n_threads:  # fewer tasks have to be divided: equal ones would end as late
        saved = _even_seconds(case, group, saved)
    return Finding(
        what="the last tasks run alone",
        seconds=saved,
        evidence=f"for {format_quantity(seconds, 's')} at the end most threads were idle",
        change="smaller tasks in this group, or start its long tasks first: dask.annotate",
        group=group,
        window=(float(begin), case.duration),
    )


#: Tasks below this duration cost the scheduler about as much as they compute.
TINY_S = 0.01
#: The scheduler starts fewer tasks than this in less than half a second (1 ms a task).
MIN_TINY_TASKS = 500


@rule(*BETWEEN_TASKS)
def tiny_tasks(case: Case) -> Finding | None:
    """Find tasks that are too small: the scheduler takes longer than their work."""
    groups = case.run.task_groups()
    if groups.empty or groups["n_tasks"].sum() < MIN_TINY_TASKS:
        return None
    mean = groups["compute (s)"] / groups["n_tasks"].clip(lower=1)
    small = groups[(mean < TINY_S) & (groups["n_tasks"] > 0)]
    n_small, n_all = int(small["n_tasks"].sum()), int(groups["n_tasks"].sum())
    if n_small < 0.5 * n_all:
        return None
    group, waits = str(small["n_tasks"].idxmax()), case.blamed(*BETWEEN_TASKS)
    if case.limits is not None:
        blame = case.limits.blame
        own = blame["origin"].isin(BETWEEN_TASKS) & blame["group"].isin(small.index)
        waits = float((blame["stop"] - blame["start"])[own].sum())
    return Finding(
        what="tasks are too small",
        seconds=waits,
        evidence=f"{n_small} of {n_all} tasks take less than {format_quantity(TINY_S, 's')} each; "
        f"threads waited {format_quantity(waits, 's')} between tasks",
        change="larger chunks or partitions, or fuse steps into one task",
        group=group,
        window=case.longest_span(*BETWEEN_TASKS),
    )


@rule("not parallel", "straggler")
def too_few_tasks(case: Case) -> Finding | None:
    """Find graphs that are not parallel enough: most threads have nothing to do."""
    # A thread that waits for spilled results looks idle.
    spilling = (case.metric("disk_write_time") + case.metric("disk_read_time")) / case.n_threads
    seconds = case.blamed("not parallel") - spilling
    if case.n_threads < 2 or case.limits is None or seconds < LARGE_SHARE * case.duration:
        return None
    if case.blamed(*BETWEEN_TASKS) > seconds:  # threads are idle because their tasks come late
        return None
    group = str(case.limits.groups["seconds"]["not parallel"].idxmax())
    if first_p2p([group]):  # the barrier of a shuffle is a single task by nature
        return None
    return Finding(
        what="too few tasks can run at the same time",
        seconds=case.even_load_saving("not parallel"),
        evidence=f"for {format_quantity(seconds, 's')} a task computed while most of the "
        f"{case.n_threads} threads were idle; the cost is what an even load would save",
        change="smaller chunks of this group, or a tree reduction; else a smaller cluster",
        group=group,
        window=case.longest_span("not parallel"),
    )


#: Names of task groups that do nothing but rechunk.
RECHUNK = re.compile(r"(rechunk-(split|merge|transfer|p2p)-)+\w+$|shuffle-barrier")


@rule(*COMPUTING, *BETWEEN_TASKS, "transfer")
def rechunked_back(case: Case) -> Finding | None:
    """Find data that are rechunked, and then back to the chunks that they had."""
    if case.limits is None:
        return None
    best: Finding | None = None
    graph = case.run.task_graph()
    for source, steps, last in _rechunks(graph):
        # The last step may be one with what follows it, which is needed, and has other sizes.
        name = graph.group_names[last]
        is_alone = bool(RECHUNK.match(name))
        blocks = _blocks(case, last, [] if is_alone else steps)
        if not blocks or blocks != _blocks(case, source, []):
            continue
        needless = np.isin(graph.group, steps if is_alone else [*{*steps} - {last}])
        seconds = _seconds_of_nodes(case, needless)
        if best is None or seconds > best.seconds:
            computed = format_quantity(float(np.nansum(graph.duration[needless])), "s")
            best = Finding(
                what="data are rechunked, and then back to the chunks that they had",
                seconds=seconds,
                evidence=f"the {len(blocks)} blocks of {name} have the places and sizes of those "
                f"of {graph.group_names[source]}; {counted(int(needless.sum()), 'task')} between "
                f"them computed for {computed}",
                change="leave out both rechunks: nothing is computed between them",
                group=name,
            )
    return best


def _rechunks(graph: TaskGraph) -> Iterator[tuple[int, list[int], int]]:
    """Yield the source of groups that rechunk in a row, all of them, and the last of them."""
    n_groups = len(graph.group_names)
    steps = {number for number, name in enumerate(graph.group_names) if RECHUNK.match(name)}
    if not steps:
        return
    after, before = np.repeat(graph.group, np.diff(graph.indptr)), graph.group[graph.indices]
    known = (after >= 0) & (before >= 0) & (after != before)
    pairs = np.unique(before[known].astype(np.int64) * n_groups + after[known]).tolist()
    inputs: dict[int, set[int]] = defaultdict(set)
    users: dict[int, set[int]] = defaultdict(set)
    for source, target in (divmod(pair, n_groups) for pair in pairs):
        inputs[target].add(source)
        users[source].add(target)
    for last, name in enumerate(graph.group_names):
        if not name.startswith(("rechunk-merge-", "rechunk-p2p-")) or users[last] & steps:
            continue
        chain, left = {last}, [last]
        while left:
            new = (inputs[left.pop()] & steps) - chain
            chain |= new
            left += new
        sources = {source for step in chain for source in inputs[step]} - chain
        if len(sources) == 1 and all(users[step] <= chain for step in chain - {last}):
            yield sources.pop(), sorted(chain), last


def _blocks(case: Case, group: int, steps: list[int]) -> dict[str, int]:
    """Return the bytes of each block of a task group, by its key without the group's name.

    Those that it gets from `steps` where these are given, as it may compute something of them.
    """
    graph = case.run.task_graph()
    nodes = np.flatnonzero((graph.group == group) & (graph.row >= 0))
    name, size = graph.group_names[group], graph.nbytes
    if steps:
        target = np.repeat(np.arange(len(graph)), np.diff(graph.indptr))
        pieces = np.where(np.isin(graph.group[graph.indices], steps), size[graph.indices], 0)
        size = np.bincount(target, pieces, minlength=len(graph)).astype(np.int64)
    if (size[nodes] < 0).any():
        return {}
    keys = [key.replace(name, "", 1) for key in case.run.task_keys(graph.row[nodes])]
    return dict(zip(keys, size[nodes].tolist(), strict=True))


def _seconds_of_nodes(case: Case, nodes: np.ndarray) -> float:
    """Return what the run would save without the seconds of tasks; by P2P, what it spent there."""
    saved = None
    if case.model is not None:
        saved = case.saving(durations=np.where(nodes, 0.0, case.model.given.seconds))
    if saved is None and case.limits is not None:
        blame, place = case.limits.blame, case.limits.blame["node"].to_numpy(int)
        own = (place >= 0) & nodes[place]
        saved = float((blame["stop"] - blame["start"])[own].sum())
    return saved or 0.0


@rule("seceded")
def seceded(case: Case) -> Finding | None:
    """Find tasks that left their threads to wait, while most threads had nothing to do."""
    seconds = case.blamed("seceded")
    if case.limits is None or not seconds:
        return None
    group = str(case.limits.groups["seconds"]["seceded"].idxmax())
    waited = format_quantity(case.metric("seceded_time"), "s")
    return Finding(
        what="tasks wait for tasks that they submitted, while most threads are idle",
        seconds=case.even_load_saving("seceded"),
        evidence=f"tasks of {group} left their threads (secede, worker_client) and waited {waited} "
        f"in all, {format_quantity(seconds, 's')} of the run with most of the {case.n_threads} "
        "threads idle; the cost is what an even load would save",
        change="submit what they wait for from the client, as dependencies, or all of it at once",
        group=group,
        window=case.longest_span("seceded"),
    )


#: Tasks that do nothing but wait compute less than this part of their waits: with 18 processes on
#: two processors, tasks that compute wait 14 times as long as they compute.
MAX_WORK = 0.02
#: Other threads that use the processors for this part of the waits are what the tasks wait for.
MAX_OWN_THREADS = 0.4


@rule(*COMPUTING)
def waiting_inside(case: Case) -> Finding | None:
    """Find tasks that wait for something: storage, locks, other services."""
    own = case.fine_seconds[case.fine_seconds["context"] == "execute"]
    waits = own[own["activity"] == "thread-noncpu"].groupby("prefix")["value"].sum()
    works = own[own["activity"] == "thread-cpu"].groupby("prefix")["value"].sum()
    works = works.reindex(waits.index).fillna(0.0)
    # Tasks that compute wait for processors, too: for those of the machine, and by chance.
    waits = (waits - works * max(1 / 3, case.processor_waits)).clip(lower=0)
    if waits.empty or waits.max() < 0.3 * own["value"].sum():
        return None
    prefix = str(waits.idxmax())
    # What they wait for has a finding of its own.
    if case.in_functions((*LOCKS, *READERS)).get(prefix, 0.0) > waits[prefix] / 2:
        return None
    # Tasks also wait for the GIL, and for processors that other processes use: then they compute.
    if case.other_threads > MAX_OWN_THREADS * waits[prefix]:
        return None
    computes = works[prefix] > MAX_WORK * waits[prefix]
    if computes and (case.metric("gil_contention_mean") > 0.3 or case.is_disturbed):
        return None
    nthreads = 2 * int(case.workers["nthreads"].values.max())
    saved = case.saving(threads=nthreads)
    if saved is None:  # P2P, seceded tasks, ...: their waits need not pass during others
        return None
    return Finding(
        what="tasks wait instead of computing",
        seconds=saved,
        evidence=f"{format_quantity(waits.max(), 's')} in tasks of {prefix} without using a "
        "processor: storage, network, locks, sleeping",
        change="more threads per worker, fewer and larger reads, or storage that is nearer",
        settings={"cluster.threads_per_worker": nthreads},
        group=prefix,
    )
