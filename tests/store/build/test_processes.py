"""Counters of processes and machines that workers share."""

import numpy as np

from benchkit.store.build.processes import add_up_memory, increases, process_ids, share_processes
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


def in_one_process(ids):
    """Return the groups of a scheduler and two workers, one sample each."""
    kinds = {"managed": [30.0, 50.0], "spilled": [0.0, 10.0], "process": [100.0, 104.0]}
    kinds |= {"unmanaged_recent": [20.0, 15.0], "unmanaged_old": [50.0, 49.0]}
    workers = shaped(
        "workers",
        {**{name: [values] for name, values in kinds.items()}, "process_id": ids},
        {"time": [1.0], "address": ["a", "b"]},
    )
    sums = {name: [0.0, sum(values)] for name, values in kinds.items()}
    return shaped("scheduler", sums, {"time": [0.5, 2.0]}), workers


def test_add_up_memory_counts_shared_process_once():
    scheduler, workers = in_one_process([0, 0])

    fixed = add_up_memory(scheduler, workers)

    assert share_processes(workers)
    assert fixed["process"].values.tolist() == [0.0, 104.0]
    assert fixed["managed"].values.tolist() == [0.0, 80.0], "each worker holds its own results"
    assert fixed["unmanaged_recent"].values.tolist() == [0.0, 15.0]
    assert fixed["unmanaged_old"].values.tolist() == [0.0, 104 - 70 - 15], "10 B are on disk"
    assert fixed["process"].attrs == scheduler["process"].attrs


def test_add_up_memory_keeps_sum_of_separate_processes():
    scheduler, workers = in_one_process([0, 1])

    assert not share_processes(workers)
    assert add_up_memory(scheduler, workers) is scheduler
