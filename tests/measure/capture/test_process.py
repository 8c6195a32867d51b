"""Garbage collections and blocked loops."""

import asyncio
import gc
import time

import pytest
from helpers.event_loops import run_in_thread

from benchkit.measure.capture import worker_plugin
from benchkit.measure.capture.loop_lag import LoopLag
from benchkit.measure.capture.process import GcPauses, LoopWatch


def test_gc_pauses_sum_the_seconds_of_collections():
    callbacks = list(gc.callbacks)
    pauses = GcPauses()
    begin = time.perf_counter()
    gc.collect()
    taken = time.perf_counter() - begin
    total, longest = pauses.read()
    pauses.close()

    assert 0.2 * taken < longest <= total <= taken
    assert pauses.read() == (total, 0.0)
    assert gc.callbacks == callbacks


def block(seconds):
    time.sleep(seconds)


def test_loop_watch_records_the_stack_of_a_blocked_loop():
    events = []

    async def run():
        lag = LoopLag()
        watch = LoopWatch(lag, lambda *event: events.append(event))
        await asyncio.sleep(0.3)
        block(0.5)
        await asyncio.sleep(0.15)
        lag.stop()
        watch.stop()
        watch.thread.join(60)
        assert not watch.thread.is_alive()

    run_in_thread(run())

    # A busy machine blocks the loop as well.
    [(topic, worker, message)] = [event for event in events if "block (" in event[2]["stack"]]
    assert (topic, worker) == ("loop-blocked", None)
    assert 0.3 < message["seconds"] < 5
    assert message["stack"].splitlines()[0].startswith("block (")
    assert 0 <= message["own_cpu"] < 0.5 * message["seconds"]  # it slept
    assert message["own_cpu"] <= message["process_cpu"] + 0.01


@pytest.mark.parametrize(
    ("name", "expected"),
    [("lo", True), ("lo0", True), ("Loopback Pseudo-Interface 1", True), ("lowpan0", False)],
)
def test_loopback_interface_is_recognized_on_each_system(name, expected):
    assert worker_plugin._is_loopback(name) is expected
