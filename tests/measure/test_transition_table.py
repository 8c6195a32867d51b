"""Wrapped transition tables: concurrent captures, other tools, unsupported releases."""

import ast
import functools
import inspect
import itertools
import re
import textwrap

import pytest
from distributed import wait
from helpers.capture import nap

from benchkit.measure.capture import transition_table
from benchkit.measure.capture.transition_table import ignores_extra_arguments

TABLE = "_TRANSITIONS_TABLE"


def add_one(number):
    return number + 1


def fail(number):
    raise ValueError(number)


def run_add_and_fail(client, n_right, n_wrong):
    wait(client.map(add_one, range(n_right), pure=False))
    wait(client.map(fail, range(n_wrong), pure=False))


def test_capture_unregisters_plugin_and_table(cluster, client, observed):
    before = sorted(cluster.scheduler.plugins), dict(vars(cluster.scheduler))
    with observed(client, "full") as observation:
        assert sorted(cluster.scheduler.plugins) == before[0]
        assert TABLE in vars(cluster.scheduler)
        run_add_and_fail(client, 5, 0)

    assert vars(cluster.scheduler).keys() == before[1].keys()
    assert observation.run.metrics["n_tasks"] == 5


@pytest.mark.parametrize("first", [0, 1])
def test_remove_in_any_order(cluster, client, observed, first):
    with observed(client, "full") as first_capture, observed(client, "full") as second_capture:
        assert second_capture.name not in cluster.scheduler.plugins
        run_add_and_fail(client, 3, 1)
        (first_capture, second_capture)[first].observer.clock_off()
        run_add_and_fail(client, 4, 2)
        (first_capture, second_capture)[1 - first].observer.clock_off()
        run_add_and_fail(client, 5, 0)

    runs = (first_capture.run, second_capture.run)
    assert runs[first].metrics["n_tasks"] == 4
    assert runs[1 - first].metrics["n_tasks"] == 10
    assert TABLE not in vars(cluster.scheduler)


def test_concurrent_captures_record_threads(cluster, client, observed):
    with observed(client, "full") as first_capture, observed(client, "full") as second_capture:
        wait(client.map(nap, [0.02] * 20, pure=False))

    for run in (first_capture.run, second_capture.run):
        assert set(run.tree["tasks/thread"].values) == {0, 1}


def wrapped_by_tool(inner):
    @functools.wraps(inner)
    def call(*args, **kwargs):
        return inner(*args, **kwargs)

    return call


def test_ignores_extra_arguments(cluster):
    own = type(cluster.scheduler)._TRANSITIONS_TABLE["processing", "memory"]

    assert ignores_extra_arguments(own)
    assert not ignores_extra_arguments(wrapped_by_tool(own))
    assert not ignores_extra_arguments(functools.partial(own, worker="w"))
    assert not ignores_extra_arguments(lambda *, thread, **more: thread)
    assert not ignores_extra_arguments(lambda *, worker: worker)


def test_scheduler_does_not_use_extra_arguments(cluster):
    own = type(cluster.scheduler)._TRANSITIONS_TABLE["processing", "memory"]
    tree = ast.parse(textwrap.dedent(inspect.getsource(own)))

    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "startstops" in names
    assert not names & {"kwargs", "locals"}


@pytest.mark.parametrize("release", ["2099.1.0", "2023.3.2", "0+untagged.1.g1234567"])
def test_unchecked_release_gets_all_arguments(cluster, monkeypatch, release):
    own = type(cluster.scheduler)._TRANSITIONS_TABLE["processing", "memory"]
    monkeypatch.setattr(transition_table.distributed, "__version__", release)

    with pytest.warns(RuntimeWarning, match=re.escape(release)):
        assert not ignores_extra_arguments(own)
    monkeypatch.setattr(transition_table.distributed, "__version__", "2024.2.1+5.gabc")
    assert ignores_extra_arguments(own)


def test_unchecked_release_is_recorded(cluster, client, observed, monkeypatch):
    monkeypatch.setattr(transition_table, "_CHECKED_RELEASES", ((2023, 4), (2023, 4)))
    with observed(client, "full") as observation:
        assert observation.name not in cluster.scheduler.plugins
        run_add_and_fail(client, 6, 2)
    run = observation.run

    assert run.metrics["n_tasks"] == 8
    assert set(run.tree["tasks/thread"].values) == {0, 1}
    assert run.tree.attrs["capture_errors"] == "[]"


def test_unsupported_table_uses_plugin_hook(cluster, client, observed, monkeypatch):
    table = dict(type(cluster.scheduler)._TRANSITIONS_TABLE)
    memory = table["processing", "memory"]
    table["processing", "memory"] = lambda *args, other=None, **kwargs: memory(*args, **kwargs)
    monkeypatch.setattr(type(cluster.scheduler), TABLE, table)
    with observed(client, "full") as observation:
        assert observation.name in cluster.scheduler.plugins
        run_add_and_fail(client, 6, 2)
    run = observation.run

    assert run.metrics["n_tasks"] == 8
    assert run.tree["tasks"]["ok"].values.sum() == 6
    assert run.tree.attrs["capture_errors"] == "[]"


def test_table_of_other_tool_is_restored(cluster, client, observed, monkeypatch):
    workers = []
    table = dict(type(cluster.scheduler)._TRANSITIONS_TABLE)
    memory = table["processing", "memory"]

    @functools.wraps(memory)
    def record_worker(*args, **kwargs):
        workers.append(kwargs["worker"])
        return memory(*args, **kwargs)

    tool_entry = {("processing", "memory"): record_worker}
    monkeypatch.setitem(vars(cluster.scheduler), TABLE, {**table, **tool_entry})
    tool_table = vars(cluster.scheduler)[TABLE]
    with observed(client, "full") as observation:
        assert observation.name not in cluster.scheduler.plugins
        run_add_and_fail(client, 6, 0)

    assert observation.run.metrics["n_tasks"] == len(workers) == 6
    assert vars(cluster.scheduler)[TABLE] is tool_table


def test_scheduler_error_is_raised(cluster, client, observed):
    """An error of the scheduler's function is raised and no row is recorded."""
    scheduler = cluster.scheduler
    calls = itertools.count()

    def broken(*args, **kwargs):
        next(calls)
        raise RuntimeError("the scheduler's own")

    with observed(client, "full") as observation:
        stream = scheduler.handlers[f"{observation.name}_off"].__self__.stream
        for end, wrap in stream.wrappers().items():
            fields = dict.fromkeys(("nbytes", "type", "typename", "worker", "startstops"))
            with pytest.raises(RuntimeError, match="own"):
                wrap(broken)(scheduler, "no-such-key", "test", **fields if end == "memory" else {})
        run_add_and_fail(client, 2, 0)

    assert next(calls) == 3
    assert observation.run.metrics["n_tasks"] == 2
