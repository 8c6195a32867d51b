"""The delay of an event loop's timer."""

import asyncio
import time

from helpers.event_loops import run_in_thread

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

    first, second, third = run_in_thread(read_twice())

    assert first > 1.5
    assert second < 1.5
    assert 1 < third
