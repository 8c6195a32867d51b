"""Checks of the scheduler workloads."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers.wrong_results import TINY, item, prove, proved_here

#: The work of these workloads does not depend on memory: it is overhead only.
SMALL = replace(TINY, fraction=0.1)


def places_with(change):
    """Change the places in every pass, because the check compares the passes."""
    return lambda result: passes_with(lambda passes: [change(dict(passes[0]))] * len(passes))(
        result
    )


def passes_with(change):
    return lambda result: SimpleNamespace(**{**vars(result), "passes": change(result.passes)})


def fetched_with(change):
    """Change the last pass only, because the check inspects each pass."""

    def spoil(passes):
        last = SimpleNamespace(fetched=change(passes[-1].fetched), held=passes[-1].held)
        return [*passes[:-1], last]

    return passes_with(spoil)


def all_moved(places):
    """Reverse the order, so that the first needed key comes last."""
    return {key: len(places) - place for key, place in places.items()}


WRONG = {
    "sched.graph_submit": {
        "a payload is another's": item("sums", lambda sums: [sums[1], sums[0], *sums[2:]]),
        "a payload is lost": item("sums", lambda sums: sums[:-1]),
        "the scheduler never knew": item("begin", lambda begin: begin + 1e6),
    },
    "sched.graph_build": {
        "blocks are lost": lambda result: SimpleNamespace(
            graph=result.graph, keys=[row[:-1] for row in result.keys]
        ),
        "rows have changed places": lambda result: SimpleNamespace(
            graph=result.graph,
            keys=[[result.keys[-1][0], *row[1:-1], result.keys[0][0]] for row in result.keys],
        ),
    },
    "sched.order": {
        "a task has no place": places_with(lambda places: dict(list(places.items())[1:])),
        "two tasks have one place": places_with(
            lambda places: {**places, max(places, key=places.get): 0}
        ),
        "tasks come before what they need": places_with(all_moved),
        "one pass was another's": passes_with(lambda passes: [*passes[:-1], all_moved(passes[-1])]),
        "a pass is lost": passes_with(lambda passes: passes[:-1]),
    },
    "sched.deep_chain": {
        "a link was skipped": lambda last: last - 1,
        "a link ran twice": lambda last: last + 1,
    },
    "sched.fan_in_out": {
        "one was left out": lambda total: total - 3,
        "not a number": lambda total: float("nan"),
    },
    "sched.tree": {
        "a leaf was left out": lambda total: total - 1,
        "counted twice": lambda total: 2 * total,
    },
    "sched.recompute_in_memory": {
        "a round is lost": item("rounds", lambda rounds: rounds[:-1]),
        "a task ran again": item("ran", 1),
        "a value is off": item(
            "rounds", lambda rounds: [[rounds[0][0] + 1, *rounds[0][1:]], *rounds[1:]]
        ),
    },
    "sched.release_storm": {
        "a task is still known": item("left", lambda left: [*left[1:], [1, 0]]),
        "a result is still held": item("left", lambda left: [*left[1:], [0, 1]]),
        "there was nothing to release": item("known", lambda known: [[0, 0], *known[1:]]),
        "a batch is lost": item("left", lambda left: left[1:]),
    },
    "sched.cancel_storm": {
        "a task is still known": item("left", [1, 0]),
        "one was not cancelled": item("states", ["cancelled", "finished"]),
        "the cluster is of no use": item("after", None),
    },
    "sched.many_clients": {
        "two clients' results were mixed up": item("results", lambda r: [r[0][::-1], *r[1:]]),
        "a result is lost": item("results", lambda r: [[r[0][0][:-1], *r[0][1:]], *r[1:]]),
        "a round is lost": item("results", lambda r: r[:-1]),
    },
    "sched.resources_annotations": {
        "a result is lost": item("reports", lambda reports: reports[:-1]),
        "the last came first": item(
            "reports",
            lambda reports: [(number, -moment, "tcp://absent") for number, moment, _ in reports],
        ),
    },
    "sched.worker_state_machine": {
        "a result was fetched twice": fetched_with(lambda fetched: [*fetched, fetched[0]]),
        "a message was lost": fetched_with(lambda fetched: fetched[1:]),
        "a worker was asked for another's": fetched_with(
            lambda fetched: [("tcp://absent", fetched[0][1]), *fetched[1:]]
        ),
        "a pass is lost": passes_with(lambda passes: passes[1:]),
    },
    "sched.failing_tasks": {
        "a result is another's": item("results", lambda r: [r[1], r[0], *r[2:]]),
        "a result is lost": item("results", lambda r: r[:-1]),
        "a task ran twice": item("attempts", lambda numbers: [*numbers, 1]),
        "no task was tried again": item("attempts", lambda numbers: sorted(set(numbers))),
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant, monkeypatch):
    names = variant.workload.main.__globals__
    if "N_PASSES" in names:  # all passes do the same
        monkeypatch.setitem(names, "N_PASSES", 2)
    prove(client, variant, WRONG, SMALL)
