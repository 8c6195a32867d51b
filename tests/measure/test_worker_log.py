"""WorkerLog returns each entry once, with lost replies and changing clock offsets."""

import json
import zlib
from collections import deque
from types import SimpleNamespace

import pytest
from distributed import profile

from benchkit.measure.capture.worker_log import (
    ACKNOWLEDGED_LATE,
    MAX_LOG_LINES,
    OUTGOING,
    WorkerLog,
)

INF = float("inf")


class FakeWorker:
    def __init__(self):
        self.scheduler_delay = 0.0
        self.transfer_incoming_log, self.transfer_outgoing_log = deque(), deque()
        self.profile_keys_history, self.profile_keys = deque(), {}
        self.lines = []

    def get_logs(self, start, timestamps):
        return [line for line in reversed(self.lines) if line[0] >= start]

    def fetch(self, moment, nbytes=1):
        self.transfer_incoming_log.append(
            {"who": "tcp://other", "stop": moment, "total": nbytes, "duration": 0.1}
        )

    def send(self, start, stop, nbytes=1):
        self.transfer_outgoing_log.append(
            {
                "who": "tcp://other",
                "start": start,
                "stop": stop,
                "total": nbytes,
                "compressed": nbytes,
                "duration": stop - start,
            }
        )

    def cycle_profile(self):
        self.cycle(self.now, self.growing)

    def cycle(self, moment, count):
        tree = profile.create()
        tree["count"] = count
        self.profile_keys_history.append((moment, {"inc": tree}))


@pytest.fixture
def worker():
    return FakeWorker()


def n_bytes(rows):
    return sum(row[3] for row in rows)


def samples(stacks):
    if not stacks:
        return 0
    nodes = json.loads(zlib.decompress(stacks))["nodes"]
    return sum(count for parent, _, count in zip(*[iter(nodes)] * 3, strict=True) if parent < 0)


def test_read_transfers_repeats_lost_reply(worker):
    worker_log = WorkerLog(worker)
    worker.fetch(9, 1)  # before the clock
    worker.fetch(11, 2)
    worker.fetch(16, 4)

    assert n_bytes(worker_log.read_transfers(10, 15)) == 2
    assert n_bytes(worker_log.read_transfers(10, 15)) == 2, "the reply was lost"
    worker.fetch(14.5, 8)  # recorded late: the clock offset changed
    assert n_bytes(worker_log.read_transfers(15, 20)) == 12
    worker.fetch(21, 16)
    assert n_bytes(worker_log.read_transfers(20, 20.5)) == 0
    assert n_bytes(worker_log.read_transfers(20.5, 30)) == 16


def test_late_request_repeats_nothing(worker):
    worker_log = WorkerLog(worker, clock=lambda: 100.0)
    worker.fetch(13, 1)
    worker.fetch(18, 2)
    worker.lines = [(13.0, "ERROR", "a"), (18.0, "ERROR", "b")]
    worker.cycle(13, 1)
    worker.cycle(18, 2)

    def read(start, stop):
        stacks = worker_log.read_call_stacks(start, stop, last=False)
        return (
            n_bytes(worker_log.read_transfers(start, stop)),
            [row[2] for row in worker_log.read_log(start, stop)],
            samples(stacks),
        )

    assert read(10, 20) == (3, ["a", "b"], 3), "asked second, handled first"
    assert read(10, 15) == (0, [], 0), "asked first, given up, handled now"
    assert read(20, 25) == (0, [], 0), "everything was sent"


def test_late_start_of_the_clock_discards_nothing(worker):
    worker_log = WorkerLog(worker, clock=lambda: 30.0)
    worker.fetch(11, 2)
    worker_log.read_transfers(10, 10.5)
    worker_log.cut_transfers("on")

    assert n_bytes(worker_log.read_transfers(10.5, 20)) == 2
    worker.fetch(21, 4)
    worker_log.cut_transfers("off")
    worker.fetch(22, 8)
    worker_log.cut_transfers("on")
    worker.fetch(23, 16)
    assert n_bytes(worker_log.read_transfers(20, 30)) == 4, "after the end nothing counts"


def test_transfer_acknowledged_after_clock_stopped_is_marked(worker):
    worker_log = WorkerLog(worker, clock=lambda: 20.0)
    worker_log.cut_transfers("on")
    worker.send(11, 12, 2)
    worker_log.cut_transfers("off")
    worker.send(19, 20.3, 4)
    worker.send(20.1, 20.4, 8)

    rows = worker_log.read_transfers(10, 20)
    assert [(row[0], row[3]) for row in rows] == [(OUTGOING, 2), (ACKNOWLEDGED_LATE, 4)]


def test_read_log_returns_line_once_despite_clock_change(worker):
    now = SimpleNamespace(now=0.0)
    worker_log = WorkerLog(worker, clock=lambda: now.now)
    worker.lines = [(9.0, "ERROR", "before"), (11.0, "WARNING", "a"), (12.0, "INFO", "talk")]
    now.now = 15.2

    assert [row[2] for row in worker_log.read_log(10, 15)] == ["a"]
    worker.lines.append((15.1, "WARNING", "b"))
    worker.scheduler_delay = -0.5  # 15 on the scheduler's clock is now 15.5 here
    now.now = 20.2
    assert [row[2] for row in worker_log.read_log(15, 20)] == ["b"]
    worker.lines.append((20.3, "WARNING", "c"))  # 20 is 20.5 here, in the future
    assert [row[2] for row in worker_log.read_log(15, 20)] == ["b"], "the reply was lost"
    assert [row[2] for row in worker_log.read_log(20, INF)] == ["c"]
    assert worker_log.n_lines_dropped == 0


def test_read_log_limits_lines(worker):
    worker_log = WorkerLog(worker)
    n_lines = 0
    for second in range(10, 15):
        worker.lines += [(second + i / 500, "WARNING", "again") for i in range(1, 401)]
        n_lines += len(worker_log.read_log(second, second + 1))

    assert n_lines == MAX_LOG_LINES
    assert worker_log.n_lines_dropped == 5 * 400 - MAX_LOG_LINES


def test_read_call_stacks_returns_tree_once(worker):
    worker_log = WorkerLog(worker)
    for moment, count in ((9.9, 1), (10.9, 2), (11.9, 4), (12.9, 8)):
        worker.cycle(moment, count)

    assert samples(worker_log.read_call_stacks(10, 12, last=False)) == 6
    assert samples(worker_log.read_call_stacks(10, 12, last=False)) == 6, "the reply was lost"
    worker.cycle(11.95, 16)  # the clock offset changed
    assert samples(worker_log.read_call_stacks(12, 14, last=False)) == 24
    assert samples(worker_log.read_call_stacks(14, 15, last=False)) == 0
    growing = profile.create()
    growing["count"] = 32
    worker.profile_keys = {"inc": growing}
    assert samples(worker_log.read_call_stacks(15, 16, last=True)) == 32
    worker.cycle(16.5, 64)  # the second in which the clock stopped is over
    assert samples(worker_log.read_call_stacks(15, 16, last=True)) == 64


def test_read_call_stacks_ends_at_clock_off(worker):
    worker_log = WorkerLog(worker)
    worker.cycle(9.5, 1)
    worker.now, worker.growing = 10.1, 2  # ahead by more than the call took
    worker_log.cut_call_stacks("on")
    worker.cycle(11, 4)

    assert samples(worker_log.read_call_stacks(10, 10.5, last=False)) == 0
    assert samples(worker_log.read_call_stacks(10.5, 11.5, last=False)) == 4
    worker.now, worker.growing = 14.0, 8  # ahead by two seconds
    worker_log.cut_call_stacks("off")
    worker.cycle(14.1, 16)
    worker.profile_keys = {"inc": profile.create() | {"count": 32}}
    assert samples(worker_log.read_call_stacks(11.5, 12, last=True)) == 8
    assert samples(worker_log.read_call_stacks(11.5, 12, last=True)) == 8, "the reply was lost"


def test_read_call_stacks_of_late_worker(worker):
    worker_log = WorkerLog(worker)
    worker.cycle(12, 1)
    worker.now, worker.growing = 13.0, 2
    worker_log.cut_call_stacks("off")

    assert samples(worker_log.read_call_stacks(10, 13.5, last=True)) == 3
