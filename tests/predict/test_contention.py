"""Waits for processors and for the GIL whose size can be computed by hand."""

from math import inf, nan

import pytest

from benchkit.predict.contention import (
    CPU_PER_BYTE,
    LOOP_SHARE,
    MIN_SHARE,
    MORE_SECONDS,
    PREFERENCE,
    Contention,
)


def contention(*, cores=inf, computing=1.0, loops=0.0, transfers=0.0, background=0.0, held=nan):
    """Return tasks that compute all the time, with a processor for each thread."""
    return Contention(
        cores=cores, computing=computing, others=loops + transfers, gil=0.0, loops=loops,
        transfers=transfers, background=background, held=held,
    )  # fmt: skip


@pytest.mark.parametrize(("nthreads", "gil", "seconds", "expected"), [
    (1, 1.0, 10.0, 1.0),  # no other thread holds the GIL
    (2, MIN_SHARE, 10.0, 1.0),  # the other thread holds locks of memory only
    (2, 1.0, 10.0, 2.0),  # the other thread holds the GIL half of the time
    (2, 1.0, 20.0, 10.0),  # all the time: limited
])  # fmt: skip
def test_event_loop_waits_for_the_gil_between_tasks(nthreads, gil, seconds, expected):
    found = contention().between_tasks((1, nthreads, seconds, 10.0), gil)

    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("gil", "expected"), [
    (0.0, 1.0), (MIN_SHARE, 1 + MIN_SHARE**2), (1.0, 2 * (1 + MORE_SECONDS)),
])  # fmt: skip
def test_two_threads_share_the_gil_and_lose_time_by_taking_turns(gil, expected):
    assert contention().curve((1, 2, 20.0, 10.0), gil)[2] == pytest.approx(expected)


def test_loop_of_a_single_thread_takes_no_gil_from_its_tasks_but_transfers_do():
    between = contention(loops=4.0).curve((1, 1, 10.0, 10.0), 1.0)
    during = contention(transfers=4.0).curve((1, 1, 10.0, 10.0), 1.0)

    assert between[1] == pytest.approx(1.0)
    assert during[1] == pytest.approx(1 / (1 - LOOP_SHARE * 0.4))


def test_bytes_that_are_no_longer_sent_take_no_time():
    sent = -4.0 / CPU_PER_BYTE

    assert contention(transfers=4.0).curve((1, 1, 10.0, 10.0), 1.0, sent)[1] == pytest.approx(1.0)
    # Never more than the run had.
    assert contention(transfers=1.0).curve((1, 1, 10.0, 10.0), 1.0, sent)[1] == pytest.approx(1.0)


def test_threads_that_sleep_do_not_hold_the_gil():
    found = contention(computing=0.0).between_tasks((1, 2, 20.0, 10.0), 1.0)

    assert found == pytest.approx(1.0)


def test_tasks_share_processors_if_more_of_them_run_than_there_are():
    curve = contention(cores=2).curve((3, 1, 30.0, 10.0), 0.0)

    assert curve == pytest.approx([1.0, 1.0, 1.0, 1.5])


@pytest.mark.parametrize("loops", [0.0, 500.0])
def test_many_tasks_share_few_processors(loops):
    curve = contention(cores=2, loops=loops).curve((200, 1, 1500.0, 10.0), 0.0)

    assert curve[200] == pytest.approx(100.0), "no thread is idle"
    assert (curve >= 1.0).all()
    assert (curve[100:] >= 50.0).all()


@pytest.mark.timeout(20)
def test_a_hundred_thousand_tasks_share_processors():
    curve = contention(cores=2).curve((100_000, 1, 1e6, 10.0), 0.0)

    assert curve[[2, 1000, 1001, 100_000]] == pytest.approx([1.0, 500.0, 500.5, 50_000.0])


def test_many_threads_share_the_gil():
    curve = contention(held=0.0).curve((1, 200, 2000.0, 10.0), 1.0)

    assert curve[200] == pytest.approx(200.0)


def test_event_loop_of_a_worker_works_while_its_thread_is_idle():
    loops = contention(cores=1, loops=5.0).curve((2, 1, 15.0, 10.0), 0.0)  # always, when idle

    assert loops[2] == pytest.approx(2.0), "no thread is idle"
    assert loops[1] > 1.5, "the loop of the other worker"


def test_others_take_more_than_their_share_from_tasks():
    mean = 0.1
    curve = contention(cores=1, background=mean).curve((1, 1, 10.0, 10.0), 0.0)

    # Others are there for as long as they wait, too: their mean number is that times the stretch.
    assert curve[1] == pytest.approx(1 + PREFERENCE * mean * curve[1])


def test_share_that_gilknocker_measured_is_the_one_of_taking_turns():
    """Threads that wait for locks of memory do not compute for longer."""
    curve = contention(held=0.0).curve((1, 2, 20.0, 10.0), 1.0)

    assert curve[2] == pytest.approx(2.0)
