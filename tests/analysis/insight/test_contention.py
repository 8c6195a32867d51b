"""Waits for processors and for the GIL whose size can be computed by hand."""

from __future__ import annotations

from math import inf

import pytest

from benchkit.analysis.insight.contention import (
    CPU_PER_BYTE,
    LEAST_SHARE,
    LOOP_SHARE,
    MORE_SECONDS,
    Contention,
)


def contention(*, loops=0.0, transfers=0.0):
    """Return tasks that compute all the time, with a processor for each thread."""
    return Contention(
        cores=inf, computing=1.0, others=loops + transfers, gil=0.0, loops=loops,
        transfers=transfers, background=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(("nthreads", "gil", "seconds", "expected"), [
    (1, 1.0, 10.0, 1.0),  # no other thread holds the GIL
    (2, LEAST_SHARE, 10.0, 1.0),  # the other thread holds locks of memory only
    (2, 1.0, 10.0, 2.0),  # the other thread holds the GIL half of the time
    (2, 1.0, 20.0, 10.0),  # all the time: limited
])  # fmt: skip
def test_event_loop_waits_for_the_gil_between_tasks(nthreads, gil, seconds, expected):
    found = contention().between_tasks(1, nthreads, seconds, 10.0, gil)

    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("gil", "expected"), [
    (0.0, 1.0), (LEAST_SHARE, 1 + LEAST_SHARE**2), (1.0, 2 * (1 + MORE_SECONDS)),
])  # fmt: skip
def test_two_threads_share_the_gil_and_lose_time_by_taking_turns(gil, expected):
    assert contention().curve(1, 2, 10.0, gil)[2] == pytest.approx(expected)


def test_loop_of_a_single_thread_takes_no_gil_from_its_tasks_but_transfers_do():
    between = contention(loops=4.0).curve(1, 1, 10.0, 1.0)
    during = contention(transfers=4.0).curve(1, 1, 10.0, 1.0)

    assert between[1] == pytest.approx(1.0)
    assert during[1] == pytest.approx(1 / (1 - LOOP_SHARE * 0.4))


def test_bytes_that_are_no_longer_sent_take_no_time():
    sent = -4.0 / CPU_PER_BYTE

    assert contention(transfers=4.0).curve(1, 1, 10.0, 1.0, sent)[1] == pytest.approx(1.0)
    # Never more than the run had.
    assert contention(transfers=1.0).curve(1, 1, 10.0, 1.0, sent)[1] == pytest.approx(1.0)
