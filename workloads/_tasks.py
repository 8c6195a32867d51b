"""Tasks that do nothing, how many, and what a scheduler still knows of them."""

from __future__ import annotations

import time

#: How long the scheduler may take to take in a graph.
SUBMISSION_TIMEOUT_S = 100.0


def same(number):
    """Return what is given."""
    return number


def length_of(scale, full):
    """Return so many tasks times the fraction, but ten."""
    return max(10, round(full * scale.fraction))


def fresh(what):
    """Return a name that no earlier run has used: results of the same key would be reused."""
    from uuid import uuid4

    return f"benchkit-{what}-{uuid4().hex}"


def count_tasks(name, dask_scheduler):
    """Return how many tasks the scheduler knows whose keys begin so."""
    return sum(key.startswith(name) for key in list(dask_scheduler.tasks) if isinstance(key, str))


def known_since(client, begin):
    """Wait until the scheduler has taken in a graph that was sent after `begin`; return when."""
    end = time.monotonic() + SUBMISSION_TIMEOUT_S
    while time.monotonic() < end:
        for moment, event in client.get_events(client.id):
            if moment >= begin and event.get("action") in ("update-graph", "update_graph"):
                return moment
        time.sleep(0.01)
    raise TimeoutError(f"the scheduler did not take in the graph in {SUBMISSION_TIMEOUT_S:.0f} s")
