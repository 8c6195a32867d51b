"""Counters of processes and machines that workers share."""

from __future__ import annotations

import numpy as np

from benchkit.store.build.processes import increases, process_ids
from benchkit.store.build.shape import shaped

NAN = np.nan


def test_process_ids_gives_unknown_processes_ids_of_their_own():
    coordinates = {"address": ["a", "b", "c"]}

    known = shaped("workers", {"process_id": [0, -1, 0]}, coordinates)

    assert process_ids(known).tolist() == [0, 4, 0]
    assert process_ids(known.drop_vars("process_id")).tolist() == [0, 1, 2]


def test_increases_of_shared_counter_ignore_older_reports():
    """The second worker of the process sent its last heartbeat before the first one did."""
    values = np.array([[1.0, NAN, 5.0], [4.0, 2.0, 5.0], [9.0, 2.0, NAN], [9.0, 2.0, 8.0]])

    assert increases(values, np.array([0, 0, 1])).tolist() == [8.0, 3.0]


def test_increases_of_unknown_counter_are_nan():
    assert np.isnan(increases(np.array([[NAN], [NAN]]), np.array([0]))).all()
