"""Checks of the workloads on futures, actors, nested tasks, the GIL and coordination."""

import pytest
from helpers.wrong_results import VARIANTS, item, prove, proved_here, run_variant

from benchkit.measure.errors import WrongAnswer

WRONG = {
    "actors.calls": {
        "an awaited call was lost": item("awaited", lambda counts: counts[:-1]),
        "a call counted twice": item("fired", lambda counts: [*counts[1:], counts[1]]),
        "the actor started anew": item("last", lambda last: last // 2),
    },
    "nested.worker_client": {
        "the number is off by one": lambda result: [result[0] + 1, result[1]],
        "a call was left out": lambda result: [result[0], result[1] - 1],
    },
    "gil.holding": {
        "a loop was cut short": item("numbers", lambda sums: [sums[0] - 1, *sums[1:]]),
        "a loop was lost": item("numbers", lambda sums: sums[:-1]),
        "an echo was garbled": item(
            "echoes", lambda echoes: [dict.fromkeys(echoes[0], b""), *echoes[1:]]
        ),
        "no worker was asked": item("echoes", lambda echoes: []),
    },
    "futures.jobqueue": {
        "a job is lost": item("reports", lambda reports: reports[:-1]),
        "a job ran twice": item("reports", lambda reports: [reports[1], *reports[1:]]),
        "a job did not nap": item(
            "reports", lambda reports: [(n, held, 0.0) for n, held, _ in reports]
        ),
        "it took too long": item("seconds", 1e3),
        "a job held too little": item(
            "reports", lambda reports: [(n, 1, took) for n, _, took in reports]
        ),
    },
    "coord.primitives": {
        "a turn was lost": item(
            "reports",
            lambda reports: [each - 1 if isinstance(each, int) else each[:-1] for each in reports],
        ),
        "a task reported nothing": item("reports", lambda reports: reports[:-1]),
        "two were in at a time": item(
            "reports",
            lambda reports: [
                each - 1 if isinstance(each, int) else [each[0] * 0, *each[:-1]] for each in reports
            ],
        ),
    },
    "coord.primitives[kind=queue]": {
        "an item was lost": item("reports", lambda reports: [*reports[:-1], reports[-1][1:]]),
        "a task reported nothing": item("reports", lambda reports: reports[:-1]),
        "an item came twice": item(
            "reports", lambda reports: [*reports[:-1], [*reports[-1], reports[-1][0]]]
        ),
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG)


def read_by_others(change):
    """Change the values that are read by the tasks that do not set the variable."""
    return item("reports", lambda reports: [reports[0], *map(change, reports[1:])])


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(item("last", 0), id="it never changed"),
        pytest.param(read_by_others(lambda values: [-1, *values[1:]]), id="less than any"),
        pytest.param(read_by_others(lambda values: [*values[:-1], 10**6]), id="more than any"),
    ],
)
def test_check_rejects_variable_with_unset_value(client, spoil):
    (variant,) = (v for v in VARIANTS if v.name == "coord.primitives[kind=variable]")
    workload, available = variant.workload, run_variant(client, variant)
    wrong = {**available, "result": spoil(available["result"])}

    try:
        with pytest.raises(WrongAnswer):
            workload.call("check", **wrong)
    finally:
        workload.call("cleanup", **available)
