"""What tasks tell the scheduler while they run, by numbers, however many they are."""

from __future__ import annotations

#: A scheduler keeps the last 1000 events of a topic; so many tasks share one, and may run twice.
TOGETHER = 400


def new_topic(what):
    """Return a topic that no earlier run has used: a cluster keeps the events of those."""
    from uuid import uuid4

    return f"benchkit-{what}-{uuid4().hex}"


def tell(topic, number):
    """Let a task tell its number."""
    from distributed import get_worker

    worker = get_worker()
    told = {"number": number, "worker": worker.address}
    worker.log_event(f"{topic}/{number // TOGETHER}", told)


def numbers_told(client, topic, *, first, stop):
    """Return what tasks of these numbers told, sorted; a number twice for one that ran twice."""
    return sorted(number for _, number in events_told(client, topic, first=first, stop=stop))


def events_told(client, topic, *, first, stop):
    """Return when (s since the epoch) tasks of these numbers told them, and the numbers."""
    told = _told(client, topic, first, stop)
    return [(moment, event["number"]) for moment, event in told]


def who_told(client, topic, *, first, stop):
    """Return what tasks of these numbers told, and the workers that they ran on."""
    told = _told(client, topic, first, stop)
    return [(event["number"], event["worker"]) for _, event in told]


def _told(client, topic, first, stop):
    blocks = range(first // TOGETHER, (stop - 1) // TOGETHER + 1)
    return [event for block in blocks for event in client.get_events(f"{topic}/{block}")]
