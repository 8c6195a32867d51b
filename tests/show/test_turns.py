"""Whose turn it is, on a real event loop with documents that call back as Bokeh's do."""

import threading
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
from tornado.ioloop import IOLoop

from benchkit.show.dashboard.web.turns import Turns


def document(loop, *, destroyed=False, answers=True):
    def soon(act):
        if answers:
            loop.add_callback(act)

    context = SimpleNamespace(destroyed=destroyed)
    return SimpleNamespace(session_context=context, add_next_tick_callback=soon)


@pytest.fixture
def loop():
    loop = IOLoop(make_current=False)
    yield loop
    loop.close(all_fds=True)


def run(loop, seconds):
    """Let a loop go on for a while, in a thread: a browser's test may have left one in this."""
    loop.call_later(seconds, loop.stop)
    thread = threading.Thread(target=loop.start)
    thread.start()
    thread.join()


def order_of(loop, *wishes):
    """Return what was called, in order; `wishes` are name, document, options."""
    called, turns = [], Turns()

    def ask():
        for name, whose, options in wishes:
            turns.ask(whose, lambda name=name: called.append(name), **options)

    loop.add_callback(ask)
    run(loop, 1.5)
    return called


def test_first_screens_come_in_order_and_before_what_is_below(loop):
    below = {"below": True}
    found = order_of(
        loop,
        ("rest of a", document(loop), below),
        ("a", document(loop), {}),
        ("rest of b", document(loop), below),
        ("b", document(loop), {}),
    )

    assert found == ["a", "b", "rest of a", "rest of b"]


def test_who_is_gone_or_never_answers_holds_nobody_up(loop):
    found = order_of(
        loop,
        ("left", document(loop, destroyed=True), {}),
        ("silent", document(loop, answers=False), {}),
        ("here", document(loop), {}),
    )

    assert found == ["here"]


def test_an_error_of_one_is_not_the_next_ones(loop, caplog):
    called, turns = [], Turns()

    def fails():
        raise ValueError("mine")

    def ask():
        turns.ask(document(loop), fails)
        turns.ask(document(loop), lambda: called.append("next"))

    loop.add_callback(ask)
    run(loop, 1.0)

    assert called == ["next"]
    assert "mine" in caplog.text


def test_turns_are_taken_one_at_a_time_also_by_those_who_come_late(loop):
    called, turns = [], Turns()

    def first():
        called.append("first")
        turns.ask(document(loop), lambda: called.append("later"))

    loop.add_callback(lambda: turns.ask(document(loop), first))
    loop.call_later(0.2, lambda: turns.ask(document(loop), lambda: called.append("much later")))
    run(loop, 0.8)

    assert called == ["first", "later", "much later"]


def test_nobody_acts_in_the_name_of_who_was_before(loop):
    """Panel keeps whose page it is in the context, which a timer hands on: pages stayed empty."""
    page, found, turns = ContextVar("page", default="nobody's"), [], Turns()

    def first():
        page.set("the first one's")

    def ask():
        page.set("who asks")
        turns.ask(document(loop), first)
        turns.ask(document(loop), lambda: found.append(page.get()))

    loop.add_callback(ask)
    run(loop, 0.5)

    assert found == ["nobody's"]
