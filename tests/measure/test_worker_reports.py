"""Polling of workers: each request starts where the last reply ended."""

import asyncio
from types import SimpleNamespace

import pytest
from distributed.metrics import time
from helpers.event_loops import run_in_thread

from benchkit.measure.capture.worker_reports import MAX_PROFILED_WORKERS, WorkerReportPoller

TICK_S = 0.05


class Workers:
    """A fake scheduler; each worker returns or raises its entry of `replies`."""

    def __init__(self, count):
        self.workers = {f"tcp://w{i}": None for i in range(count)}
        self.numbers = {address: i for i, address in enumerate(self.workers)}
        self.requests = {address: [] for address in self.workers}
        self.replies = {}

    def rpc(self, address):
        async def report(**request):
            self.requests[address].append(request)
            await asyncio.sleep(0)
            reply = self.replies.get(address, {"errors": (), "logs": []})
            if isinstance(reply, Exception):
                raise reply
            return dict(reply)

        return SimpleNamespace(bench_report=report)


async def poll_for(seconds, scheduler, interval_s=0.2):
    poller = WorkerReportPoller("bench", scheduler, scheduler.numbers, interval_s)
    poller.start = time()
    end = time() + seconds
    while time() < end:
        poller.send_requests(TICK_S, last_call=time())
        await asyncio.sleep(TICK_S)
    await poller.stop(1)
    return poller


@pytest.mark.parametrize(
    "reply", [OSError("refused"), {"errors": ["profile: no"]}, {"status": "error"}]
)
def test_failed_report_does_not_block_others(reply):
    scheduler = Workers(3)
    scheduler.replies["tcp://w0"] = reply

    poller = run_in_thread(poll_for(1.5, scheduler))

    reported = {index for index, _ in poller.drain()["told"]}
    assert reported == {1, 2}
    assert 2 <= len(scheduler.requests["tcp://w0"]) <= 9, "as often as the other workers"
    starts = {request["start"] for request in scheduler.requests["tcp://w0"]}
    assert starts == {poller.start}, "a failed request is repeated with the same window"


def test_request_windows_are_contiguous():
    scheduler = Workers(1)

    poller = run_in_thread(poll_for(1.5, scheduler))

    requests = scheduler.requests["tcp://w0"]
    assert len(requests) >= 3
    ends = [request["stop"] for request in requests]
    assert [request["start"] for request in requests] == [poller.start, *ends[:-1]]
    last = poller.request("tcp://w0", 2e9, last=True)
    assert (last["start"], last["stop"], last["last"]) == (ends[-1], 2e9, True)
    poller.send_requests(TICK_S, last_call=time())
    assert not poller.pending, "no requests after stop()"


def test_request_windows_end_later_if_the_clock_is_set_back():
    scheduler = Workers(2)
    poller = WorkerReportPoller("bench", scheduler, scheduler.numbers, 5.0)

    stops = [poller.request("tcp://w0", stop, last=False)["stop"] for stop in (10.0, 5.0, 5.1, 12)]

    assert stops[0] < stops[1] < stops[2] < stops[3]
    assert (stops[0], stops[3]) == (10, 12)
    assert poller.request("tcp://w1", 5.0, last=False)["stop"] == 5.0


def test_profiled_workers_are_fixed():
    scheduler = Workers(4 * MAX_PROFILED_WORKERS)
    poller = WorkerReportPoller("bench", scheduler, scheduler.numbers, 5.0)
    every = {
        address: poller.request(address, 1.0, last=False)["stacks"] for address in scheduler.workers
    }
    for address in list(scheduler.workers)[3:]:
        del scheduler.workers[address]

    assert sum(every.values()) == MAX_PROFILED_WORKERS
    for address in scheduler.workers:
        assert poller.request(address, 2.0, last=True)["stacks"] == every[address]
