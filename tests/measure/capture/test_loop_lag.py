"""The delay of an event loop's timer."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from benchkit.measure.capture.loop_lag import LAG_TICK_S, LoopLag


def test_delay_that_was_read_before_the_timer_ran_is_not_read_again():
    async def read_twice():
        lag = LoopLag()
        time.sleep(2)
        first = lag.read()[1]  # as a heartbeat that runs before the timer
        await asyncio.sleep(2 * LAG_TICK_S)
        second = lag.read()[1]
        time.sleep(1.5)
        await asyncio.sleep(2 * LAG_TICK_S)
        lag.stop()
        return first, second, lag.read()[1]

    # In a thread of its own: a test with a browser leaves its event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        first, second, third = thread.submit(asyncio.run, read_twice()).result()

    assert first > 1.5
    assert second < 1.5
    assert 1 < third
