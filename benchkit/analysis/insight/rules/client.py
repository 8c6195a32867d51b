"""Rules about the client: what it sends, when, and what it fetches."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchkit.analysis.insight.blame import BETWEEN_TASKS, CLIENT, COMPUTING, unfinished
from benchkit.analysis.insight.findings import WORTH_SHARE, Case, Finding, rule
from benchkit.analysis.insight.limits import CAUSES_SHORT
from benchkit.analysis.insight.rules.causes import CHANGES
from benchkit.formatting import counted, format_quantity
from benchkit.store.task_graph import TaskGraph


@rule(*CLIENT, "graph", *BETWEEN_TASKS)
def large_graph(case: Case) -> Finding | None:
    """Find graphs that take long to serialise, to send and to unpack."""
    if case.limits is None:
        return None
    graph = case.run.task_graph()
    calls, sent = graph.calls, graph.submissions
    packing = case.seconds_within(calls["serialised"], calls["sent"])
    unpacking = case.seconds_within(sent["received"], sent["started"])
    sending = 0.0
    if len(calls) == len(sent):  # of one client: the graphs arrive in the order of sending
        sending = case.seconds_within(np.sort(calls["sent"]), np.sort(sent["received"]))
    onwards = case.data_waits
    before = float(np.nan_to_num(calls["serialised"].min()))
    rest = case.duration - before
    # Before the first graph is serialised, its name may be computed from data in it: slow_start.
    if packing + sending + unpacking + onwards < WORTH_SHARE * case.disturbance * rest:
        return None
    known = sent["nbytes"].clip(lower=0).sum()
    size = f", {format_quantity(known, 'B')}" if known else ""
    cost = min(packing + sending + unpacking, case.blamed(*CLIENT, "graph"))
    return Finding(
        what="graphs take long to send and to unpack",
        seconds=cost + onwards,
        evidence=f"{format_quantity(packing, 's')} to serialise, "
        f"{format_quantity(sending, 's')} to send, "
        f"{format_quantity(unpacking, 's')} on the scheduler ({len(graph)} tasks{size}), "
        f"{format_quantity(onwards, 's')} to send data in tasks to workers",
        change="no data in the graph: scatter or load it in tasks; fewer, larger tasks",
        window=case.longest_span(*CLIENT, "graph"),
    )


@rule(*CLIENT, "graph")
def slow_start(case: Case) -> Finding | None:
    """Find a long time before the first task."""
    if case.tasks.empty or case.limits is None:
        return None
    graph = case.run.task_graph()
    # Attempts that failed are not in the list of tasks: then the first task was sent earlier.
    first = float(np.nanmin([case.tasks["start"].min(), graph.submissions["started"].min()]))
    if first < max(case.usual_start, case.disturbance * WORTH_SHARE * case.duration):
        return None
    calls = graph.calls
    built = calls["optimised"].fillna(calls["serialised"])
    build = f"; the client began to send a graph after {format_quantity(built.min(), 's')}"
    return Finding(
        what="it takes long until the first task starts",
        seconds=first,
        evidence=f"{format_quantity(first, 's')}{build if len(built) else ''}",
        change="a smaller graph: larger chunks, fewer layers, map_blocks for many operations",
        window=(0.0, first),
    )


@rule("gather")
def gathered(case: Case) -> Finding | None:
    """Find results that take long to reach the client."""
    seconds, rest = case.blamed("gather"), case.blamed("client")
    if seconds < WORTH_SHARE * case.duration:
        return None
    return Finding(
        what="the run waits while results are sent to the client",
        seconds=seconds,
        evidence=f"{format_quantity(case.metric('gather_bytes'), 'B')}; workers and scheduler sent "
        f"for {format_quantity(seconds, 's')}, and the client unpacked them in a part of its "
        f"{format_quantity(rest, 's')}",
        change="reduce on the cluster before compute(), or leave the results there: persist()",
        window=case.longest_span("gather"),
    )


#: With fewer graphs there is nothing to combine.
MIN_GRAPHS = 3


@rule(*CLIENT, "graph", *BETWEEN_TASKS, "not parallel", "straggler")
def serial_graphs(case: Case) -> Finding | None:
    """Find graphs that are sent one after another, each after the results of the one before."""
    if case.limits is None:
        return None
    graph = case.run.task_graph()
    sent = graph.submissions
    ended = [graph.stop[wanted].max(initial=-np.inf) for wanted in sent["wanted"]]
    waited = np.array(ended[:-1]) <= sent["received"].to_numpy()[1:]
    n_graphs = 1 + int(waited.sum())
    if n_graphs < max(MIN_GRAPHS, len(sent) / 2):
        return None
    saved = case.saving(at_once=True)
    if saved is None:
        saved = case.imbalance - case.blamed(*CLIENT, "graph")
    if saved < WORTH_SHARE * case.duration:
        return None
    return Finding(
        what=f"{n_graphs} graphs were computed one after another",
        seconds=saved,
        evidence=f"each was sent after the results of the one before; sent at once, threads that "
        f"were idle would save {format_quantity(saved, 's')}",
        change="compute them together: dask.compute(a, b, ...), or submit all and use as_completed",
    )


@rule(*COMPUTING, *BETWEEN_TASKS)
def repeated(case: Case) -> Finding | None:
    """Find tasks whose results were released and computed again for another graph."""
    if case.limits is None or case.tasks.empty:
        return None
    graph = case.run.task_graph()
    if len(graph.submissions) < 2:
        return None
    known = (graph.submission >= 0) & (graph.group >= 0) & (graph.row >= 0)
    several = pd.Series(graph.submission[known]).groupby(graph.group[known]).nunique() > 1
    nodes = np.flatnonzero(known & np.isin(graph.group, several.index[several]))
    nodes = nodes[np.argsort(graph.start[nodes], kind="stable")]
    again = pd.Series(case.run.task_keys(graph.row[nodes]), dtype=object).duplicated().to_numpy()
    seconds = float(graph.duration[nodes[again]].sum())
    if seconds / case.n_threads < WORTH_SHARE * case.duration:
        return None
    name = graph.group_names[int(np.bincount(graph.group[nodes[again]]).argmax())]
    return Finding(
        what="the same tasks were computed for several graphs",
        seconds=seconds / case.n_threads,
        evidence=f"{counted(int(again.sum()), 'task')} had been computed before, "
        f"{format_quantity(seconds, 's')} of thread-seconds, most in {name}",
        change="persist what several graphs need, or compute all of them at once",
        group=name,
    )


@rule("unfinished", "restricted", "worker paused", "no worker", "unexplained")
def hung(case: Case) -> Finding | None:
    """Find what the client still waited for when the clock stopped, and what happened last."""
    if case.limits is None or case.run.outcome == "ok":
        return None
    graph, blame = case.run.task_graph(), case.limits.blame
    missing = unfinished(graph, case.duration)
    if not len(missing):
        return None
    ended = graph.stop <= case.duration
    names = np.array([*graph.group_names, "a group of which none ran"], object)
    since, happened = 0.0, "no task ended"
    if ended.any():
        last = int(np.argmax(np.where(ended, graph.stop, -np.inf)))
        since = float(graph.stop[last])
        happened = f"the last task to end, after {format_quantity(since, 's')}, was one of "
        happened += str(names[graph.group[last]])
    seconds = case.duration - since
    if seconds < case.min_cost:
        return None
    rest = blame[blame["stop"] > since]
    cause = str((rest["stop"] - rest["start"]).groupby(rest["cause"]).sum().idxmax())
    node = int(missing[0])  # and then what it needs, down to a task that has all its inputs
    while len(needed := _not_ended(graph, node, ended)):
        node = int(needed[0])
    given = graph.options.get(node, {})
    bound = [f"{name}={given[name]}" for name in ("workers", "resources") if name in given]
    running = [str(name) for name in case.workers["name"].values[_executing(case)]]
    return Finding(
        what="the client waited for results that did not come",
        seconds=seconds,
        evidence=f"{happened}; then {format_quantity(seconds, 's')}, most of it "
        f"{CAUSES_SHORT[cause]}; {counted(len(missing), 'result')} missing, for which a task of "
        f"{' with '.join([str(names[graph.group[node]]), *bound])} has to run; tasks still ran on "
        f"{', '.join(running) or 'no worker'}",
        change=CHANGES.get(cause, "read the call stacks and logs: run.profile(start=...)"),
        window=(since, case.duration),
    )


def _not_ended(graph: TaskGraph, node: int, ended: np.ndarray) -> np.ndarray:
    """Return the inputs of a task that had not ended, without those of earlier work."""
    inputs = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
    left: np.ndarray = inputs[~ended[inputs] & (graph.submission[inputs] >= 0)]
    return left


def _executing(case: Case) -> np.ndarray:
    """Return which workers had running tasks at their last heartbeat."""
    if "executing" not in case.workers or not case.workers.sizes["time"]:
        return np.zeros(len(case.workers["name"]), bool)
    executing: np.ndarray = np.nan_to_num(case.workers["executing"].values[-1]) > 0
    return executing
