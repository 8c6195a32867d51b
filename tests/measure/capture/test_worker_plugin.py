"""Worker plugins that share one process."""

from __future__ import annotations

from array import array
from contextlib import contextmanager
from time import monotonic
from types import SimpleNamespace

import distributed
import pytest
from distributed.system_monitor import SystemMonitor
from helpers.event_loops import run_in_thread

from benchkit.measure.capture.worker_plugin import CaptureWorkerPlugin


def fake_worker(number, interval_s):
    return SimpleNamespace(
        address=f"inproc://{number}",
        status=SimpleNamespace(name="running"),
        periodic_callbacks={"heartbeat": SimpleNamespace(callback_time=1000 * interval_s)},
        metrics={},
        handlers={},
        monitor=SystemMonitor(),
        transfer_incoming_log=[],
        transfer_outgoing_log=[],
        transfer_incoming_count_total=0,
        transfer_outgoing_count_total=0,
    )


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Keep the plugins apart from those of clusters that other tests keep in this process."""
    monkeypatch.setitem(vars(distributed), "_benchkit_worker_plugins", {})


@contextmanager
def installed(count, interval_s=5.0):
    """Install the plugins of one capture on workers of this process."""
    plugins = []
    for number in range(count):
        plugin = CaptureWorkerPlugin("test-capture", "light")
        plugin.setup(fake_worker(number, interval_s))
        plugins.append(plugin)
    try:
        yield plugins
    finally:
        for plugin in plugins:
            plugin.teardown(plugin.worker)


def in_loop(function):
    async def call():
        return function()

    return run_in_thread(call())


def test_workers_of_one_loop_share_its_timer():
    def timers():
        with installed(3) as plugins:
            shared = len({id(plugin.lag) for plugin in plugins})
            plugins[0].teardown(plugins[0].worker)
            left = plugins[1].lag.handle.cancelled()
            plugins[0].setup(plugins[0].worker)
        return shared, left, plugins[1].lag.handle.cancelled()

    assert in_loop(timers) == (1, False, True)


def test_each_worker_of_a_process_gets_its_maxima():
    def maxima():
        with installed(2) as (first, second):
            first.gc.longest = first.lag.longest = 25.0
            answers = [plugin.heartbeat_metrics(plugin.worker) for plugin in (first, second)]
            again = second.heartbeat_metrics(second.worker)
        return [(out["gc_max"], out["tick_max"]) for out in [*answers, again]]

    first, second, again = in_loop(maxima)

    assert first == second == (25.0, pytest.approx(25.0))
    assert max(again) < 25.0


def test_heartbeat_carries_few_samples_of_other_workers(monkeypatch):
    # A class that was sent by value to a worker of this process has other globals than its module.
    names = CaptureWorkerPlugin._update_maxima.__globals__
    monkeypatch.setitem(names, "_high_water_mark", lambda: 1000)

    def samples():
        begin = monotonic()
        with installed(200) as plugins:
            for _ in range(2):
                answers = [plugin.heartbeat_metrics(plugin.worker) for plugin in plugins]
        return answers[-1], monotonic() - begin

    out, seconds = in_loop(samples)

    values = array("d", out["memory"])
    peaks = [value for value in values[3::4] if value == value]
    # Of 400 heartbeats, one in half a second reads the peak: a tenth of the interval.
    assert 1 <= len(peaks) <= 2 + seconds / 0.5
    assert out["rss_peak"] == 1000
