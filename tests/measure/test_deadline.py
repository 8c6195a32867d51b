"""Steps that are interrupted at their deadline, and steps that end in time."""

import ctypes
import signal
import threading
import time

import pytest

from benchkit.measure.deadline import call_with_timeout, deadline, pause_deadlines
from benchkit.measure.errors import DeadlinePassed


def call_in_thread(function):
    """Call a function in another thread; return its result or its exception."""
    results = []

    def run():
        try:
            results.append(function())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(120)
    assert not thread.is_alive()
    return results[0]


def run_past_deadline():
    with deadline(0.1, "workload"):
        while True:
            time.sleep(0.005)


def test_deadline_collects_evidence_before_interrupt():
    order = []

    def step():
        with deadline(0.1, "workload", evidence=lambda: order.append("evidence")):
            try:
                threading.Event().wait(60)
            finally:
                order.append("interrupted")

    with pytest.raises(DeadlinePassed, match=r"the workload did not end .* 0\.1 s"):
        step()
    assert order == ["evidence", "interrupted"]


def test_deadline_interrupts_step_in_thread():
    assert isinstance(call_in_thread(run_past_deadline), DeadlinePassed)


def test_deadline_replaces_error_caused_by_interrupt():
    def step():
        try:
            threading.Event().wait(60)
        except BaseException as error:
            raise ValueError("cleaned up") from error

    with pytest.raises(DeadlinePassed), deadline(0.1, "workload"):
        step()


def test_deadline_raises_after_uninterruptible_step():
    with pytest.raises(DeadlinePassed), deadline(0.2, "workload"):
        ctypes.PyDLL(None).usleep(600_000)  # PyDLL keeps the GIL: no other thread runs


def _work(seconds):
    # A function, as a workload: Python 3.13.0 leaves a `with` whose own loop is interrupted.
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize("run", [lambda function: function(), call_in_thread])
def test_deadline_at_end_of_step_spares_next_step(run):
    def steps():
        outcomes = set()
        for number in range(60):
            try:
                with deadline(0.02, "workload"):
                    _work(0.019 + number * 5e-5)
                outcomes.add("in time")
            except DeadlinePassed:
                outcomes.add("late")
        time.sleep(0.2)  # a pending interrupt would arrive now
        return outcomes

    before = signal.getsignal(signal.SIGINT)
    assert run(steps) <= {"in time", "late"}
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupt_during_exit_is_not_ctrl_c():
    limit = deadline(60, "workload")

    def set_late():
        limit.fired = True
        signal.raise_signal(signal.SIGINT)
        threading.Event.set(limit.ended)

    limit.ended.set = set_late
    with pytest.raises(DeadlinePassed), limit:
        pass


def test_deadline_keeps_errors_and_ctrl_c():
    with pytest.raises(ZeroDivisionError), deadline(5, "workload"):
        1 / 0  # noqa: B018
    with pytest.raises(KeyboardInterrupt), deadline(5, "workload"):
        signal.raise_signal(signal.SIGINT)


def test_call_with_timeout_limits_time():
    assert call_with_timeout(lambda: 7, 5) == 7
    assert call_with_timeout(lambda: 1 / 0, 5) == {"error": "ZeroDivisionError: division by zero"}
    assert call_with_timeout(threading.Event().wait, 0.05) is None


def test_pause_deadlines_excludes_only_paused_time():
    with deadline(0.3, "prepare"):
        with pause_deadlines():
            with pause_deadlines():
                time.sleep(0.4)
            time.sleep(0.1)

    with pytest.raises(DeadlinePassed, match="prepare"):
        hang_after_pause()


def hang_after_pause():
    with deadline(0.3, "prepare"):
        with pause_deadlines():
            time.sleep(0.4)
        threading.Event().wait(60)


def test_pause_deadlines_does_not_affect_other_threads():
    with pause_deadlines():
        assert isinstance(call_in_thread(run_past_deadline), DeadlinePassed)
