"""Checks of the workloads on work stealing and adaptive scaling."""

import pytest
from helpers.wrong_results import TINY, item, prove, proved_here

WRONG = {
    "steal.heavy_deps": {
        "a checksum is another's": item(
            "reports", lambda reports: [reports[1], reports[0], *reports[2:]]
        ),
        "a task is lost": item("reports", lambda reports: reports[:-1]),
    },
    "adaptive.scale_from_zero": {
        "a result is lost": item("results", lambda results: results[:-1]),
        "an input was left out": item("results", lambda results: [-1, *results[1:]]),
        "a task ran twice": item("reports", lambda reports: [*reports, reports[0]]),
    },
    "adaptive.retire_with_data": {
        "a key is lost": item("held", lambda held: [0, *held[1:]]),
        "data have changed places": item("sums", lambda sums: [sums[1], sums[0], *sums[2:]]),
        "a task ran twice": item("ran", lambda ran: [ran[0], *ran]),
    },
    "adaptive.oscillation": {
        "a result is lost": item("results", lambda results: results[:-1]),
        "a result is another's": item("results", lambda r: [r[1], r[0], *r[2:]]),
        "a task ran twice": item("ran", lambda ran: [ran[0], *ran]),
        "no worker ever came": item("changes", []),
        "it never settled": lambda result: {**result, "changes": [result["half"] + 1] * 20},
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant, monkeypatch):
    names = variant.workload.main.__globals__
    if "EVERY_S" in names:
        monkeypatch.setitem(names, "EVERY_S", 0.1)

    prove(client, variant, WRONG, TINY)
