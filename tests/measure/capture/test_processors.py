"""Waits for a processor: threads against their own counters, control groups against their files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from benchkit.measure.capture.columns import LOOP, MAIN, TASK
from benchkit.measure.capture.process import Processors, ThreadSampler, ThreadTimes

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts waits of threads")


def spin(cpu_s):
    begin = time.thread_time()
    while time.thread_time() - begin < cpu_s:
        pass


@linux
def test_time_on_a_processor_is_that_of_the_thread():
    times, own = ThreadTimes(), threading.get_native_id()
    before, begin, cpu = times.read(own), time.monotonic(), time.thread_time()

    spin(0.2)
    time.sleep(0.1)  # asleep: neither

    after, elapsed = times.read(own), time.monotonic() - begin
    used = time.thread_time() - cpu
    times.close()
    assert after[0] - before[0] == pytest.approx(used, abs=0.02)
    assert 0 <= after[1] - before[1] <= elapsed - used - 0.1 + 0.02


@linux
def test_wait_for_a_processor_is_measured():
    """Two spinning processes on one processor: each waits about half of the time."""
    processor = {next(iter(os.sched_getaffinity(0)))}
    code = f"import os\nos.sched_setaffinity(0, {processor})\nwhile True: pass"
    other = subprocess.Popen([sys.executable, "-c", code])
    waits = []

    def work():
        os.sched_setaffinity(0, processor)
        times, own = ThreadTimes(), threading.get_native_id()
        before, begin = times.read(own), time.monotonic()
        spin(0.4)
        after = times.read(own)
        waits.append((after[1] - before[1], time.monotonic() - begin - 0.4))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    other.kill()
    other.wait()
    [(waited, not_running)] = waits
    assert waited > 0.1
    assert waited == pytest.approx(not_running, rel=0.1, abs=0.05)


def test_reason_is_given_where_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(2, "No such file")))

    sampler = ThreadSampler(time.time)
    sampler.sample()

    assert "schedstat: No such file" in sampler.times.absent
    assert not sampler.rows


@linux
def test_thread_that_begins_and_ends_between_samples():
    executor = SimpleNamespace(_threads=set())
    sampler = ThreadSampler(time.time, executor, main=threading.main_thread())
    sampler.sample()
    ending = threading.Event()
    thread = threading.Thread(target=lambda: (spin(0.05), ending.wait()))
    executor._threads.add(thread)
    thread.start()
    while time.clock_gettime(time.pthread_getcpuclockid(thread.ident)) < 0.05:
        time.sleep(0.01)

    sampler.sample()
    ending.set()
    thread.join()
    executor._threads.clear()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # it ends after `join`
        time.sleep(0.01)
    sampler.sample()

    assert [row[1] for row in sampler.rows if row[1] != MAIN].count(LOOP) == 3
    first, last = [row for row in sampler.rows if row[1] == TASK]
    assert first[0] == sampler.rows[0][0]  # time of the sample before it began
    assert first[4:] == (0.0, 0.0)
    assert last[4] == pytest.approx(0.05, abs=0.03)
    assert not sampler.known
    sampler.times.close()


@linux
def test_ends_of_tasks_are_sampled_no_faster_than_allowed():
    sampler = ThreadSampler(time.time)
    own = threading.get_ident()
    sampler.known[own] = threading.get_native_id(), 0.0

    for _ in range(100):
        sampler.task_ended(own)
    sampler.task_ended(None)
    sampler.task_ended(-1)

    assert len(sampler.rows) <= 2
    sampler.times.close()


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return a function that makes files of control groups, and the facts read from them."""

    def facts(own, files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        # A cluster in this process sends the class by value: its methods have other globals.
        names = Processors.__init__.__globals__
        read = names["_content"]
        monkeypatch.setitem(names, "GROUPS", str(tmp_path))
        monkeypatch.setitem(
            names, "_content", lambda path: own if path == "/proc/self/cgroup" else read(path)
        )
        return Processors().facts()

    return facts


def test_limit_of_a_control_group_above_holds(groups):
    files = {
        "cgroup.controllers": "",
        "pod/cpu.max": "150000 100000",
        "pod/cpu.stat": "usage_usec 1\nthrottled_usec 2500000\n",
        "pod/container/cpu.max": "max 100000",
        "pod/container/cpu.stat": "usage_usec 1\nthrottled_usec 0\n",
    }

    facts = groups("0::/pod/container\n", files)

    assert (facts["cpu_limit"], facts["cpu_throttled"]) == (1.5, 2.5)


def test_limit_of_a_control_group_of_version_1(groups):
    files = {
        "cpu/container/cpu.cfs_quota_us": "50000",
        "cpu/container/cpu.cfs_period_us": "100000",
        "cpu/container/cpu.stat": "nr_periods 9\nthrottled_time 1500000000\n",
    }

    facts = groups("2:cpu,cpuacct:/container\n0::/\n", files)

    assert (facts["cpu_limit"], facts["cpu_throttled"]) == (0.5, 1.5)


def test_container_that_does_not_see_the_groups_of_its_host(groups):
    files = {"cgroup.controllers": "", "cpu.max": "200000 100000"}

    facts = groups("0::/kubepods/pod1\n", files)

    assert facts["cpu_limit"] == 2.0
    assert facts["cpu_throttled"] != facts["cpu_throttled"]
