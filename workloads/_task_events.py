"""Numbered events of running tasks on the scheduler, for any number of tasks."""

from __future__ import annotations

#: Tasks per topic: a scheduler keeps the last 1000 events of a topic, and tasks may run twice.
TASKS_PER_TOPIC = 400


def new_topic(what):
    """Return a new topic: a cluster keeps the events of earlier runs."""
    from uuid import uuid4

    return f"benchkit-{what}-{uuid4().hex}"


def log_number(topic, number):
    """Log an event with the number and worker of the running task."""
    from distributed import get_worker

    worker = get_worker()
    reports = {"number": number, "worker": worker.address}
    worker.log_event(f"{topic}/{number // TASKS_PER_TOPIC}", reports)


def logged_numbers(client, topic, *, first, stop):
    """Return the numbers of events, sorted; a number occurs twice if its task ran twice."""
    return sorted(number for _, number in logged_times(client, topic, first=first, stop=stop))


def logged_times(client, topic, *, first, stop):
    """Return times (s since the epoch) and numbers of events."""
    reports = _logged_events(client, topic, first, stop)
    return [(moment, event["number"]) for moment, event in reports]


def logged_workers(client, topic, *, first, stop):
    """Return numbers and workers of events."""
    reports = _logged_events(client, topic, first, stop)
    return [(event["number"], event["worker"]) for _, event in reports]


def _logged_events(client, topic, first, stop):
    blocks = range(first // TASKS_PER_TOPIC, (stop - 1) // TASKS_PER_TOPIC + 1)
    return [event for block in blocks for event in client.get_events(f"{topic}/{block}")]
