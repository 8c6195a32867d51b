"""Worker plugins that share one process."""

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
        scheduler_delay=0.0,
    )


def beat(plugin, *, arrives=True):
    """Return the values of a heartbeat, to which the scheduler replies if it arrives."""
    values = plugin.heartbeat_metrics(plugin.worker)
    plugin.worker.scheduler_delay += arrives
    return values


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
            answers = [beat(plugin) for plugin in (first, second)]
            again = beat(second)
        return [(out["gc_max"], out["tick_max"]) for out in [*answers, again]]

    first, second, again = in_loop(maxima)

    assert first == second == (25.0, pytest.approx(25.0))
    assert max(again) < 25.0


def test_heartbeat_repeats_what_a_lost_one_had():
    def heartbeats():
        with installed(1) as (plugin,):
            first = beat(plugin)
            plugin.gc.longest = plugin.lag.longest = 25.0
            beat(plugin, arrives=False)
            beat(plugin, arrives=False)
            return first, beat(plugin), beat(plugin)

    first, repeated, last = in_loop(heartbeats)

    assert (repeated["gc_max"], repeated["tick_max"]) == (25.0, 25.0)
    assert max(last["gc_max"], last["tick_max"]) < 25.0
    # Samples of memory, newest first: of all heartbeats since the last that arrived.
    times = array("d", repeated["memory"])[::4]
    assert len(times) >= 3
    assert min(times) > array("d", first["memory"])[0]
    assert min(array("d", last["memory"])[::4]) > times[0]


def test_heartbeat_for_the_start_does_not_repeat_what_was_lost_before():
    def heartbeats():
        with installed(1) as (plugin,):
            beat(plugin)
            plugin.gc.longest = 25.0
            beat(plugin, arrives=False)
            plugin.edge = "on"
            plugin.gc.longest = 20.0
            return beat(plugin, arrives=False), beat(plugin)

    start, after = in_loop(heartbeats)

    assert (start["gc_max"], after["gc_max"] < 20.0) == (20.0, True)


def test_heartbeat_carries_few_samples_of_other_workers(monkeypatch):
    # A class that was sent by value to a worker of this process has other globals than its module.
    names = CaptureWorkerPlugin._update_maxima.__globals__
    monkeypatch.setitem(names, "high_water_mark", lambda: 1000)

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
