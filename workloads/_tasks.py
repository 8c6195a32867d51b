"""Tasks that do nothing, their number, and their state on the scheduler."""

from __future__ import annotations

import time

#: Longest time until the scheduler has a graph.
SUBMISSION_TIMEOUT_S = 100.0


def same(number):
    """Return the argument."""
    return number


def length_of(scale, full):
    """Return this many tasks x fraction, at least ten."""
    return max(10, round(full * scale.fraction))


def fresh(what):
    """Return a new name: results with the key of an earlier run would be reused."""
    from uuid import uuid4

    return f"benchkit-{what}-{uuid4().hex}"


def count_tasks(name, dask_scheduler):
    """Return the number of tasks on the scheduler whose keys have this prefix."""
    return sum(key.startswith(name) for key in list(dask_scheduler.tasks) if isinstance(key, str))


def await_graph(client, begin):
    """Wait until the scheduler has a graph that was sent after `begin`; return the time."""
    end = time.monotonic() + SUBMISSION_TIMEOUT_S
    while time.monotonic() < end:
        for moment, event in client.get_events(client.id):
            if moment >= begin and event.get("action") in ("update-graph", "update_graph"):
                return moment
        time.sleep(0.01)
    raise TimeoutError(f"the scheduler did not take in the graph in {SUBMISSION_TIMEOUT_S:.0f} s")
