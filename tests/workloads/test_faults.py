"""The checks of the workloads about start, stop, and faults in between."""

from dataclasses import replace

import dask
import pytest
from distributed import Client, LocalCluster
from helpers.wrong_results import MIB, TINY, WATCHED, item, proved_here
from helpers.wrong_results import prove as prove_at

#: Worker processes that import pandas need more memory than the tiny cluster has.
WITH_PROCESSES = replace(TINY, memory=2 * 400 * MIB)
NEED_PROCESSES = {
    *("fault.worker_kill", "fault.pause", "fault.nanny_restart"),
    *("start.plugin_install", "start.restart"),
}


def one_with(name, value, number=0):
    """Change one entry in one part of a result."""

    def spoil(parts):
        changed = value(parts[number][name]) if callable(value) else value
        return [*parts[:number], {**parts[number], name: changed}, *parts[number + 1 :]]

    return spoil


def growing(rounds):
    """Return rounds of a ten-minute soak that leaks 40 MiB a minute."""
    step_s = 600 / len(rounds)
    return [
        {**each, "at": (i + 1) * step_s, "memory": i * step_s * 40 * MIB / 60}
        for i, each in enumerate(rounds)
    ]


PLUGIN = {
    "the package is an earlier one": item(
        "reports", lambda reports: [("old", reports[0][1]), *reports[1:]]
    ),
    "a worker lacks it": item("reports", lambda reports: reports[1:]),
}
WRONG = {
    "fault.worker_kill": {
        "a result is lost": item("sums", lambda sums: sums[:-1]),
        "a result is another": item("sums", lambda sums: [sums[1], sums[0], *sums[2:]]),
        "everything ran again": item("ran", lambda ran: ran * 3),
        "a task ran again that was never on the dead worker": lambda result: {
            **result,
            "ran": [
                *result["ran"],
                next(each for each in result["ran"][::-1] if each[1] != result["victim"]),
            ],
        },
        "a lost result was not made again": lambda result: {
            **result,
            "ran": dict(result["ran"]).items(),
        },
        "the dead worker held nothing": item("lost", []),
        "not a number": item("sums", lambda sums: [float("nan"), *sums[1:]]),
    },
    "fault.pause": {
        "a task is lost": item("ran", lambda ran: ran[:-1]),
        "a task ran for another": item("ran", lambda ran: [ran[1], *ran[1:]]),
        "the worker did not pause": item("statuses", lambda all: [(m, "running") for m, _ in all]),
        "the worker did not come back": item("last", "paused"),
    },
    "fault.nanny_restart": {
        "the greedy task was let off": item("killed", False),
        "results are exchanged": item("results", lambda results: results[::-1]),
        "a result is lost": item("results", lambda results: results[1:]),
        "three others were given up with it": item(
            "results", lambda results: [None, None, None, *results[3:]]
        ),
        "it was tried too often": item("attempts", lambda attempts: attempts + 1),
        "a worker did not come back": item("workers", lambda workers: workers - 1),
    },
    "fault.slow_disk": {
        "an object is lost": item("reports", lambda reports: reports[:-1]),
        "an object is another's": item(
            "reports", lambda reports: [reports[1], reports[0], *reports[2:]]
        ),
        "the slow disk was not read": item("requests", 0),
    },
    "fault.slow_net": {
        "a sum is lost": item("sums", lambda sums: sums[:-1]),
        "a sum is another's": item("sums", lambda sums: [sums[1], sums[0], *sums[2:]]),
        "not a number": item("sums", lambda sums: [float("nan"), *sums[1:]]),
        "the slow worker was asked too often": item("requests", 10_000),
    },
    "start.cluster": {
        "the answer is off": item("answer", 41),
        "a worker is missing": item("pids", lambda pids: pids[:-1]),
        "the steps are not in order": item("seconds", lambda seconds: seconds[::-1]),
    },
    "start.connect": {
        "an answer is another's": item("answers", lambda all: [all[1], all[0], *all[2:]]),
        "an answer is lost": item("answers", lambda answers: answers[:-1]),
    },
    "start.restart": {
        "a worker is missing": one_with("workers", lambda workers: workers - 1),
        "a process is the old one": one_with("same", 1, number=1),
        "a task is left": one_with("tasks", 1),
    },
    "start.import": {
        "it is another module": one_with("name", "dask"),
        "other modules came with it": one_with("modules", lambda count: count + 1),
        "hardly anything was imported": lambda all: [{**each, "modules": 10} for each in all],
    },
    "start.plugin_install": PLUGIN,
    "start.plugin_install[restart=True]": {
        **PLUGIN,
        "a process is the old one": lambda result: {
            **result,
            "reports": [(result["reports"][0][0], result["before"][0]), *result["reports"][1:]],
        },
    },
    "stability.soak": {
        "an answer is off": item("rounds", one_with("got", 0)),
        "it ended at once": item("rounds", lambda rounds: rounds[: len(rounds) // 2]),
        "most rounds are lost": item("rounds", lambda rounds: rounds[-10:]),
        "a round hung": item("rounds", one_with("seconds", 100.0)),
        "a task is left": item("tasks", 1),
        "a log has an error": item("errors", ["lost a comm"]),
        "memory grows": item("rounds", growing),
        "not a number": item("rounds", one_with("got", float("nan"))),
    },
}
#: The duration scales with the fraction: ten minutes become six seconds.
SCALES = {"stability.soak[seconds=600]": replace(TINY, fraction=0.01)}
SHARING = [each for each in proved_here(WRONG) if each.workload.name not in NEED_PROCESSES]
IN_PROCESSES = [each for each in proved_here(WRONG) if each.workload.name in NEED_PROCESSES]


@pytest.fixture
def own_client():
    with (
        dask.config.set(WATCHED),
        LocalCluster(
            n_workers=WITH_PROCESSES.workers,
            threads_per_worker=1,
            memory_limit=WITH_PROCESSES.memory // WITH_PROCESSES.workers,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("variant", SHARING, ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove_at(client, variant, WRONG, SCALES.get(variant.name, TINY))


@pytest.mark.parametrize("variant", IN_PROCESSES, ids=lambda variant: variant.name)
def test_check_of_harmful_workload_rejects_wrong_results(own_client, variant):
    prove_at(own_client, variant, WRONG, WITH_PROCESSES)
