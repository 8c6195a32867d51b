"""Counts of scattered keys, on a scheduler of plain objects."""

from types import SimpleNamespace

from benchkit.measure.capture.cluster_hooks import ScatteredData


class Scheduler:
    """The parts of a scheduler that scattering uses."""

    def __init__(self):
        self.tasks = {}
        self.received = []
        self.handlers = {"update_data": self.update_data}
        self.stream_handlers = {"update-data": self.update_data}

    def update_data(self, *, who_has, nbytes):
        self.received.append(list(who_has))


def test_scattered_data_counts_keys_by_prefix_and_group():
    scheduler = Scheduler()
    scattered = ScatteredData(scheduler, "capture")

    sizes = {"x-1": 5, "x-2": 7}
    scheduler.handlers["update_data"](who_has={"x-1": ["w"], "x-2": ["v", "w"]}, nbytes=sizes)
    scheduler.stream_handlers["update-data"](who_has={"y-3": ["w"]}, nbytes={})
    scheduler.update_data(who_has={"z": ["w"]}, nbytes={})

    assert scattered.by_prefix == {"x": 2, "y": 1, "z": 1}
    assert sum(scattered.by_group.values()) == 4
    assert scattered.nbytes == 5 + 2 * 7
    assert scheduler.received == [["x-1", "x-2"], ["y-3"], ["z"]]


def test_scattered_data_ignores_keys_in_memory():
    scheduler = Scheduler()
    scattered = ScatteredData(scheduler, "capture")
    scheduler.tasks = {
        "x-1": SimpleNamespace(state="memory"),
        "x-2": SimpleNamespace(state="released"),
    }

    scheduler.handlers["update_data"](who_has={"x-1": ["w"], "x-2": ["w"]}, nbytes={})

    assert scattered.by_prefix == {"x": 1}


def test_remove_restores_the_scheduler_after_the_last_capture():
    scheduler = Scheduler()
    first, second = ScatteredData(scheduler, "first"), ScatteredData(scheduler, "second")
    first.remove()
    scheduler.handlers["update_data"](who_has={"x-1": ["w"]}, nbytes={})
    second.remove()
    scheduler.handlers["update_data"](who_has={"x-2": ["w"]}, nbytes={})

    assert (first.by_prefix, second.by_prefix) == ({}, {"x": 1})
    assert set(vars(scheduler)) == set(vars(Scheduler()))
    assert scheduler.handlers["update_data"] == scheduler.update_data
    assert scheduler.received == [["x-1"], ["x-2"]]
