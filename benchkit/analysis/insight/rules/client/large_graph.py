"""Find graphs that take long to serialise, to send and to unpack."""

from __future__ import annotations

import numpy as np

from benchkit.analysis.insight.findings import Case, Finding
from benchkit.formatting import format_quantity

__all__ = ["find"]

#: Share of the duration after the client began to serialise the first graph. Before, it may take
#: long to compute the graph's name from data in it: that is a finding of slow_start.
MIN_SHARE = 0.1


def find(case: Case) -> Finding | None:
    """Return the finding of this rule."""
    # returned: None: nothing found.
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
    if packing + sending + unpacking + onwards < MIN_SHARE * case.disturbance * rest:
        return None
    known = sent["nbytes"].clip(lower=0).sum()
    size = f", {format_quantity(known, 'B')}" if known else ""
    cost = min(packing + sending + unpacking, case.blamed("client", "graph"))
    return Finding(
        what="graphs take long to send and to unpack",
        seconds=cost + onwards,
        evidence=f"{format_quantity(packing, 's')} to serialise, "
        f"{format_quantity(sending, 's')} to send, "
        f"{format_quantity(unpacking, 's')} on the scheduler ({len(graph)} tasks{size}), "
        f"{format_quantity(onwards, 's')} to send data in tasks to workers",
        change="no data in the graph: scatter or load it in tasks; fewer, larger tasks",
        window=case.longest_span("client", "graph"),
    )
