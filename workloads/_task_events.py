"""Numbered events of running tasks on the scheduler, for any number of tasks."""

from __future__ import annotations

#: Tasks per topic: a scheduler keeps the last 1000 events of a topic, and tasks may run twice.
TOGETHER = 400


def new_topic(what):
    """Return a new topic: a cluster keeps the events of earlier runs."""
    from uuid import uuid4

    return f"benchkit-{what}-{uuid4().hex}"


def tell(topic, number):
    """Log an event with the number and worker of the running task."""
    from distributed import get_worker

    worker = get_worker()
    told = {"number": number, "worker": worker.address}
    worker.log_event(f"{topic}/{number // TOGETHER}", told)


def numbers_told(client, topic, *, first, stop):
    """Return the numbers of events, sorted; a number occurs twice if its task ran twice."""
    return sorted(number for _, number in events_told(client, topic, first=first, stop=stop))


def events_told(client, topic, *, first, stop):
    """Return times (s since the epoch) and numbers of events."""
    told = _told(client, topic, first, stop)
    return [(moment, event["number"]) for moment, event in told]


def who_told(client, topic, *, first, stop):
    """Return numbers and workers of events."""
    told = _told(client, topic, first, stop)
    return [(event["number"], event["worker"]) for _, event in told]


def _told(client, topic, first, stop):
    blocks = range(first // TOGETHER, (stop - 1) // TOGETHER + 1)
    return [event for block in blocks for event in client.get_events(f"{topic}/{block}")]
