"""How a full capture hears of the end of tasks: on real schedulers, beside others, and without."""

from __future__ import annotations

import functools
import itertools

import pytest
from distributed import wait
from helpers.capture import nap

from benchkit.measure.capture.transition_table import ignores_extra_arguments

TABLE = "_TRANSITIONS_TABLE"


def add_one(number):
    return number + 1


def fail(number):
    raise ValueError(number)


def some_tasks(client, n_right, n_wrong):
    wait(client.map(add_one, range(n_right), pure=False))
    wait(client.map(fail, range(n_wrong), pure=False))


def test_no_plugin_is_called_and_nothing_of_it_stays(cluster, client, observed):
    before = sorted(cluster.scheduler.plugins), dict(vars(cluster.scheduler))
    with observed(client, "full") as observation:
        assert sorted(cluster.scheduler.plugins) == before[0]
        assert TABLE in vars(cluster.scheduler)
        some_tasks(client, 5, 0)

    assert vars(cluster.scheduler).keys() == before[1].keys()
    assert observation.run.metrics["n_tasks"] == 5


@pytest.mark.parametrize("first", [0, 1])
def test_those_who_listen_at_once_may_stop_in_any_order(cluster, client, observed, first):
    with observed(client, "full") as one, observed(client, "full") as other:
        assert other.name not in cluster.scheduler.plugins
        some_tasks(client, 3, 1)
        (one, other)[first].observer.clock_off()
        some_tasks(client, 4, 2)
        (one, other)[1 - first].observer.clock_off()
        some_tasks(client, 5, 0)

    runs = (one.run, other.run)
    assert runs[first].metrics["n_tasks"] == 4
    assert runs[1 - first].metrics["n_tasks"] == 10
    assert TABLE not in vars(cluster.scheduler)


def test_each_who_listens_is_told_of_threads(cluster, client, observed):
    with observed(client, "full") as one, observed(client, "full") as other:
        wait(client.map(nap, [0.02] * 20, pure=False))

    for run in (one.run, other.run):
        assert set(run.tree["tasks/thread"].values) == {0, 1}


def of_a_tool(inner):
    @functools.wraps(inner)
    def noting(*args, **told):
        return inner(*args, **told)

    return noting


def test_only_a_function_that_needs_no_more_is_told_no_more(cluster):
    own = type(cluster.scheduler)._TRANSITIONS_TABLE["processing", "memory"]

    assert ignores_extra_arguments(own)
    assert not ignores_extra_arguments(of_a_tool(own))
    assert not ignores_extra_arguments(functools.partial(own, worker="w"))
    assert not ignores_extra_arguments(lambda *, thread, **more: thread)
    assert not ignores_extra_arguments(lambda *, worker: worker)


def test_a_release_whose_transitions_nobody_can_hear_is_hooked(
    cluster, client, observed, monkeypatch
):
    table = dict(type(cluster.scheduler)._TRANSITIONS_TABLE)
    memory = table["processing", "memory"]
    table["processing", "memory"] = lambda *args, other_word=None, **told: memory(*args, **told)
    monkeypatch.setattr(type(cluster.scheduler), TABLE, table)
    with observed(client, "full") as observation:
        assert observation.name in cluster.scheduler.plugins
        some_tasks(client, 6, 2)
    run = observation.run

    assert run.metrics["n_tasks"] == 8
    assert run.tree["tasks"]["ok"].values.sum() == 6
    assert run.tree.attrs["capture_errors"] == "[]"


def test_a_table_that_another_tool_had_laid_is_heard_through_and_left(
    cluster, client, observed, monkeypatch
):
    heard = []
    table = dict(type(cluster.scheduler)._TRANSITIONS_TABLE)
    memory = table["processing", "memory"]

    @functools.wraps(memory)
    def noting(*args, **told):
        heard.append(told["worker"])
        return memory(*args, **told)

    monkeypatch.setitem(vars(cluster.scheduler), TABLE, {**table, ("processing", "memory"): noting})
    laid = vars(cluster.scheduler)[TABLE]
    with observed(client, "full") as observation:
        assert observation.name not in cluster.scheduler.plugins
        some_tasks(client, 6, 0)

    assert observation.run.metrics["n_tasks"] == len(heard) == 6
    assert vars(cluster.scheduler)[TABLE] is laid


def test_a_schedulers_own_failure_stays_its_own(cluster, client, observed):
    """What the scheduler's function raises is raised, and no row is made of it."""
    scheduler = cluster.scheduler
    calls = itertools.count()

    def broken(*args, **kwargs):
        next(calls)
        raise RuntimeError("the scheduler's own")

    with observed(client, "full") as observation:
        stream = scheduler.handlers[f"{observation.name}_off"].__self__.stream
        for end, wrap in stream.wrappers().items():
            told = dict.fromkeys(("nbytes", "type", "typename", "worker", "startstops"))
            with pytest.raises(RuntimeError, match="own"):
                wrap(broken)(scheduler, "no-such-key", "test", **told if end == "memory" else {})
        some_tasks(client, 2, 0)

    assert next(calls) == 3
    assert observation.run.metrics["n_tasks"] == 2
