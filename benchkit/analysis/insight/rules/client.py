"""Rules about the client and the time before the first task."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.blame import CLIENT
from benchkit.analysis.insight.findings import Case, Finding, rule
from benchkit.formatting import format_quantity

#: Share of the duration after the client began to serialise the first graph. Before, it may take
#: long to compute the graph's name from data in it: that is a finding of slow_start.
MIN_GRAPH_SHARE = 0.1


@rule
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
    if packing + sending + unpacking + onwards < MIN_GRAPH_SHARE * case.disturbance * rest:
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


#: Share of the duration before the first task.
MIN_START_SHARE = 0.1
MIN_START_S = 0.5


@rule
def slow_start(case: Case) -> Finding | None:
    """Find a long time before the first task."""
    if case.tasks.empty or case.limits is None:
        return None
    graph = case.run.task_graph()
    # Attempts that failed are not in the list of tasks: then the first task was sent earlier.
    first = float(np.nanmin([case.tasks["start"].min(), graph.submissions["started"].min()]))
    if first < case.disturbance * max(MIN_START_S, MIN_START_SHARE * case.duration):
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
