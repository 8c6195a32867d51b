"""What a capture reads of a worker's process: waits for the GIL, steps of the clock."""

from types import SimpleNamespace

import pytest

from benchkit.measure.capture.process import ClockWatch, GilWaits


class Monitor:
    """Dask's monitor with planned samples; the wall clock is 1000 s ahead of the steady clock."""

    def __init__(self):
        self.quantities = {"time": [], "gil_contention": []}
        self.count, self.last_time = 0, 0.0

    def add(self, moment, share):
        self.quantities["time"].append(1000.0 + moment)
        self.quantities["gil_contention"].append(share)
        self.count, self.last_time = self.count + 1, moment

    def range_query(self, start):
        return {name: values[start:] for name, values in self.quantities.items()}


@pytest.fixture
def monitor():
    return Monitor()


@pytest.fixture
def lag(monitor, monkeypatch):
    lag = SimpleNamespace(seconds=0.0, now=None)
    lag.blocked = lambda: lag.seconds
    now = lambda: monitor.last_time if lag.now is None else lag.now  # noqa: E731
    monkeypatch.setitem(GilWaits.read.__globals__, "monotonic", now)
    return lag


def test_gil_waits_add_up_shares_of_intervals(monitor, lag):
    waits = GilWaits(monitor, lag)
    for moment, share in ((0.5, 0.2), (1.0, 0.4), (1.25, 1.0)):
        monitor.add(moment, share)

    assert waits.read() == pytest.approx(0.1 + 0.2 + 0.25)
    assert waits.read() == pytest.approx(0.55)


def test_gil_waits_of_a_blocked_interval_come_from_a_later_sample(monitor, lag):
    waits = GilWaits(monitor, lag)
    monitor.add(0.5, 0.0)
    waits.read()
    lag.now, lag.seconds = 3.7, 3.0
    waits.read()  # a heartbeat before the monitor's next sample
    lag.now = None
    monitor.add(3.8, 0.04)  # half a second lies before the block

    assert waits.read() == 0.0
    assert waits.pending is not None
    monitor.add(3.9, 0.0)  # gilknocker has not counted its wait yet
    assert waits.read() == 0.0
    monitor.add(4.1, 0.98)
    assert waits.read() == pytest.approx(3.0 * 0.98)
    assert waits.pending is None
    monitor.add(4.6, 0.1)
    assert waits.read() == pytest.approx(3.0 * 0.98 + 0.05)


def test_gil_waits_read_between_a_block_and_its_sample_count_the_block(monitor, lag):
    waits = GilWaits(monitor, lag)
    monitor.add(0.5, 0.0)
    waits.read()
    monitor.add(1.0, 0.0)
    lag.now, lag.seconds = 2.6, 1.5
    assert waits.read() == 0.0  # a heartbeat after the block; the sample is one from before it
    lag.now, lag.seconds = 3.1, 1.6
    monitor.add(2.7, 0.0)
    monitor.add(3.0, 1.0)

    assert waits.read() == pytest.approx(1.6)


def test_gil_waits_of_two_blocks_in_a_row_count_both(monitor, lag):
    waits = GilWaits(monitor, lag)
    lag.seconds = 2.0
    monitor.add(2.0, 0.0)
    waits.read()
    lag.seconds = 5.0
    monitor.add(5.0, 0.9)
    waits.read()
    monitor.add(5.5, 1.0)

    assert waits.read() == pytest.approx(2.0 * 0.9 + 3.0 * 1.0)


def test_gil_waits_from_before_the_clock_are_discarded(monitor, lag):
    waits = GilWaits(monitor, lag)
    lag.seconds = 2.0
    monitor.add(2.0, 0.0)
    waits.read()
    waits.discard_pending()
    monitor.add(2.5, 1.0)

    assert waits.read() == 0.0


def test_clock_watch_adds_up_steps_alone(monkeypatch):
    now = SimpleNamespace(steady=10.0, wall=1000.0)
    # Not the module's: a capture sent by value in this process replaces the methods of its classes.
    names = ClockWatch._ahead.__globals__
    monkeypatch.setitem(names, "monotonic", lambda: now.steady)
    monkeypatch.setitem(names, "time", lambda: now.wall)
    watch = ClockWatch()

    seconds = []
    for steady, wall in ((0.5, 0.5), (0.5, 5.5), (0.5, 0.51), (0.5, -1.5)):
        now.steady, now.wall = now.steady + steady, now.wall + wall
        seconds.append(watch.read())

    assert seconds == pytest.approx([0.0, 5.0, 5.0, 3.0])
