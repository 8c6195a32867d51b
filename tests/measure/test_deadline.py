"""A step that does not end is stopped, wherever it hangs; one that ends is left alone."""

from __future__ import annotations

import ctypes
import signal
import threading
import time

import pytest

from benchkit.measure.deadline import call_with_timeout, deadline, pause_deadlines
from benchkit.measure.errors import DeadlinePassed


def in_a_thread(function):
    """Run a function in another thread; return what it returned or raised."""
    box = []

    def run():
        try:
            box.append(function())
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return box[0]


def busy():
    with deadline(0.1, "workload"):
        while True:
            time.sleep(0.005)


def test_a_wait_that_nobody_ends_is_interrupted_and_the_evidence_taken_before():
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


def test_a_step_in_another_thread_is_interrupted_too():
    assert isinstance(in_a_thread(busy), DeadlinePassed)


def test_what_the_step_makes_of_the_interrupt_does_not_hide_the_deadline():
    def step():
        try:
            threading.Event().wait(60)
        except BaseException as error:
            raise ValueError("cleaned up") from error

    with pytest.raises(DeadlinePassed), deadline(0.1, "workload"):
        step()


def test_a_step_that_cannot_be_interrupted_is_late_when_it_comes_back():
    with pytest.raises(DeadlinePassed), deadline(0.2, "workload"):
        ctypes.PyDLL(None).usleep(600_000)  # PyDLL keeps the GIL: no other thread runs


@pytest.mark.parametrize("run", [lambda function: function(), in_a_thread])
def test_a_step_that_ends_at_its_deadline_never_interrupts_what_comes_next(run):
    def steps():
        outcomes = set()
        for number in range(60):
            try:
                with deadline(0.02, "workload"):
                    end = time.monotonic() + 0.019 + number * 5e-5
                    while time.monotonic() < end:
                        pass
                outcomes.add("in time")
            except DeadlinePassed:
                outcomes.add("late")
        time.sleep(0.2)  # an interrupt under way would come now
        return outcomes

    before = signal.getsignal(signal.SIGINT)
    assert run(steps) <= {"in time", "late"}
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_comes_while_the_body_is_left_is_no_ctrl_c():
    one = deadline(60, "workload")

    def set_late():
        one.fired = True
        signal.raise_signal(signal.SIGINT)
        threading.Event.set(one.ended)

    one.ended.set = set_late
    with pytest.raises(DeadlinePassed), one:
        pass


def test_an_error_and_a_users_own_interrupt_pass_through():
    with pytest.raises(ZeroDivisionError), deadline(5, "workload"):
        1 / 0  # noqa: B018
    with pytest.raises(KeyboardInterrupt), deadline(5, "workload"):
        signal.raise_signal(signal.SIGINT)


def test_a_question_is_asked_no_longer_than_it_may_take():
    assert call_with_timeout(lambda: 7, 5) == 7
    assert call_with_timeout(lambda: 1 / 0, 5) == {"error": "ZeroDivisionError: division by zero"}
    assert call_with_timeout(threading.Event().wait, 0.05) is None


def test_what_is_made_once_does_not_count_and_the_rest_does():
    with deadline(0.3, "prepare"):
        with pause_deadlines():
            with pause_deadlines():
                time.sleep(0.4)
            time.sleep(0.1)

    with pytest.raises(DeadlinePassed, match="prepare"):
        hang_after_making()


def hang_after_making():
    with deadline(0.3, "prepare"):
        with pause_deadlines():
            time.sleep(0.4)
        threading.Event().wait(60)


def test_another_threads_deadline_goes_on():
    with pause_deadlines():
        assert isinstance(in_a_thread(busy), DeadlinePassed)
