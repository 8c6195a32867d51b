"""WorkerLog returns each entry once, with lost replies and changing clock offsets."""

from __future__ import annotations

import json
import zlib
from collections import deque
from types import SimpleNamespace

import pytest
from distributed import profile

from benchkit.measure.capture.worker_log import MAX_LOG_LINES, WorkerLog

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
