"""Workers that a restart ended, from the events of a run."""

import json

import numpy as np

from benchkit.store.build.facts import messages_of, restarted_workers
from benchkit.store.build.shape import shaped

NAN = np.nan


def events_of(*rows):
    """Return the group of events; rows are time, topic, and message."""
    return shaped(
        "events",
        {
            "time": [row[0] for row in rows],
            "topic": [row[1] for row in rows],
            "message": [json.dumps(row[2]) for row in rows],
            "worker": [-1] * len(rows),
        },
        {},
    )


def test_messages_of_yields_one_topic():
    events = events_of((1.0, "restart", {"a": 1}), (2.0, "other", {"a": 2}))

    assert list(messages_of(events, "restart")) == [{"a": 1}]


def test_restarted_workers_are_those_of_the_message():
    events = events_of((1.0, "restart-workers", {"workers": [0, 2, -1]}))

    assert restarted_workers(events, np.array([NAN, NAN, NAN])) == {0, 2}


def test_restarted_workers_left_shortly_before_a_restart():
    """Dask before 2024 logs a restart after the workers have left, and does not name them."""
    left = np.array([9.0, 4.9, 10.5, NAN])

    assert restarted_workers(events_of((10.0, "restart", {})), left) == {0}


def test_restarted_workers_are_none_without_a_restart():
    assert restarted_workers(events_of((10.0, "add-worker", {})), np.array([9.0])) == set()
