"""The check of each shipped workload accepts the true result and rejects wrong ones.

The checks of workloads on tables are in other files, such as `test_df` and `test_tpch`.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from distributed.diagnostics.plugin import SchedulerPlugin
from helpers.wrong_results import (
    TINY,
    VARIANTS,
    array_with,
    edges_with,
    futures_with,
    item,
    nan,
    not_a_number,
    one_moved,
    one_off,
    prove,
    proved_here,
    rows_with,
    run_variant,
    swapped_values,
    times,
    with_value,
)

from benchkit.measure.errors import WrongAnswer

# -- wrong results, by workload: what is wrong -> result -> a result that is wrong ----------------

WRONG = {
    "array.basic_sum": {
        "one row is off by one": array_with(one_off),
        "one row has what another lacks": array_with(one_moved),
        "a row is lost": lambda result: np.asarray(result)[:-1],
        "a row is not a number": array_with(not_a_number),
        "a chunk was added twice": times(2),
    },
    "rechunk.swap_axes_in_memory": {
        "a value is lost": lambda result: [result[0] * (1 - 1e-7), result[1]],
        "blocks have changed places": lambda result: [result[0], result[1] * (1 + 1e-7)],
        "not a number": lambda result: [result[0], np.nan],
    },
    "join.join_big": {
        "a match is lost": with_value("rows", lambda n: n - 1),
        "a match is of another key": with_value("keys", lambda n: n + 1),
        "a column is lost": with_value("cells", lambda n: n - 1),
        "a row has another's payload": with_value("product", lambda x: x + 0.01),
        "a payload is not a number": with_value("product", nan),
        "a partition is lost": rows_with(lambda frame: frame[frame["rows"] > 0].iloc[1:]),
    },
    "join.set_index": {
        "a row is lost": edges_with(
            lambda edges: edges.assign(rows=edges["rows"] - (edges.index == 0))
        ),
        "a row is torn apart": edges_with(
            lambda edges: edges.assign(product=edges["product"] * (1 + 1e-7))
        ),
        "not sorted inside": edges_with(lambda edges: edges.assign(is_sorted=edges.index != 1)),
        "partitions in the wrong order": edges_with(
            lambda edges: edges.iloc[[1, 0, *range(2, len(edges))]].reset_index(drop=True)
        ),
        "a row beyond its division": edges_with(
            lambda edges: edges.assign(high=edges["high"] + 0.5)
        ),
        "a value is not a number": edges_with(lambda edges: edges.assign(product=np.nan)),
        "a partition is lost": edges_with(lambda edges: edges.iloc[:-1]),
    },
    "h2o.q5": {
        "a group is lost": rows_with(lambda frame: frame.iloc[1:]),
        "a sum is off by one": with_value("v1", lambda x: x + 1),
        "a float sum is off": with_value("v3", lambda x: x * (1 + 1e-5)),
        "two groups are swapped": swapped_values("v3"),
        "not a number": with_value("v3", nan),
    },
    "tpch.q03": {
        "a row is lost": rows_with(lambda frame: frame.iloc[1:]),
        "a revenue is off": with_value("revenue", lambda x: x + 0.1),
        "orders are swapped": swapped_values("l_orderkey"),
        "not a number": with_value("revenue", nan),
        "a day late": with_value("o_orderdate", lambda day: day + np.timedelta64(1, "D")),
    },
    "sched.task_throughput": {
        "a result is another's": futures_with(
            lambda futures: [futures[1], futures[0], *futures[2:]]
        ),
        "a task is lost": futures_with(lambda futures: futures[:-1]),
        "a task ran for another": futures_with(lambda futures: [futures[1], *futures[1:]]),
    },
    "adaptive.expand_contract_expand": {
        "the sum at the barrier is off": item("sums", lambda sums: [sums[0] + 1, sums[1]]),
        "the last sum is missing": item("sums", lambda sums: sums[:1]),
        "not a number": item("sums", lambda sums: [sums[0], float("nan")]),
        "a task ran twice": item("reports", lambda reports: [*reports, reports[0]]),
        "the second worker never came": item("changes", lambda all: [all[0], all[-1]]),
        "both workers stayed at the barrier": item(
            "changes", lambda all: [*all[:2], (all[-1][0], -1), (all[-1][0], -1)]
        ),
        "it did not grow again": lambda result: {
            **result,
            "changes": [*result["changes"][:3], result["changes"][-1]],
            "end": result["end"] + 60,
        },
        "a worker is left": item("changes", lambda all: all[:-1]),
    },
    "futures.single": {
        "an answer is another's": lambda answers: [answers[1], answers[0], *answers[2:]],
        "an answer is lost": lambda answers: answers[:-1],
    },
    "futures.large_map": {
        "a result is another's": lambda futures: [futures[1], futures[0], *futures[2:]],
        "a result is lost": lambda futures: futures[:-1],
    },
    "futures.large_map_first": {
        "it is of no item": item("answer", 0),
        "it is another item's": item("item", lambda place: place + 1),
        "not a number": item("answer", nan),
    },
    "futures.memory_efficient": {
        "an array is lost": item("seen", lambda seen: seen - 1),
        "an array was counted twice": item("seen", lambda seen: seen + 1),
        "one was not doubled": item("mean", lambda mean: mean * 0.95),
        "not a number": item("mean", nan),
    },
    "steal.trivial_fanout": {
        "a result is another's": futures_with(
            lambda futures: [futures[1], futures[0], *futures[2:]]
        ),
        "a task is lost": futures_with(lambda futures: futures[:-1]),
    },
    "steal.inhomogeneous": {
        "a task is lost": item("naps", lambda naps: naps[:-1]),
        "a nap was short": item("naps", lambda naps: [naps[0] / 2, *naps[1:]]),
    },
    "steal.scaling_up": {
        "a neighbour was left out": item("total", lambda total: total - 1),
        "not a number": item("total", nan),
        "the others never came": item("workers", 1),
    },
    "steal.straggler": {
        "a task is lost": item("ran", lambda ran: ran[:-1]),
        "a task ran twice": item("ran", lambda ran: [ran[0], ran[0], *ran[2:]]),
    },
    "xarray.anom_mean": {
        "a column was left out": array_with(one_off),
        "a column is not a number": array_with(not_a_number),
        "a column is lost": lambda result: np.asarray(result)[:-1],
        "nothing was computed": np.zeros_like,
    },
    "parquet.write_wide": {
        "a column is off": rows_with(lambda sums: sums * (1 + 1e-7)),
        "columns are swapped": rows_with(lambda sums: sums.set_axis(sums.index[::-1])),
        "not a number": rows_with(lambda sums: sums * np.nan),
    },
}


#: Of the workloads that need more data than others: for matches, until a worker has come, and for
#: data of another size on a larger cluster.
FRACTIONS = {"join.join_big": 0.3, "steal.scaling_up": 0.3, "tpch.q03": 0.3}


# -- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    # A factor above the usual one would only make the test slower.
    usual = 0.15 / max(0.15, variant.params.get("factor", 0))
    fraction = FRACTIONS.get(variant.workload.name, 0.1)
    prove(client, variant, WRONG, replace(TINY, fraction=usual * fraction))


def test_check_rejects_written_file_with_other_values(client):
    (variant,) = (each for each in VARIANTS if each.name == "parquet.write_wide")
    available = run_variant(client, variant)
    prepared = available["prepared"]
    file = Path(prepared["folder"]) / f"part.{prepared['frame'].npartitions // 2}.parquet"
    frame = pd.read_parquet(file)
    frame["str_3"] = frame["str_3"].to_numpy()[::-1]

    try:
        frame.to_parquet(file)
        with pytest.raises(AssertionError, match="str_3"):
            variant.workload.call("check", **available)
        file.unlink()
        with pytest.raises(WrongAnswer, match="files"):
            variant.workload.call("check", **available)
    finally:
        variant.workload.call("cleanup", **available)


class BytesMade(SchedulerPlugin):
    """Adds up the sizes of all results while it is registered."""

    def __init__(self, client):
        self.scheduler, self.total = client.cluster.scheduler, 0

    def transition(self, key, start, finish, *args, nbytes=None, **kwargs):
        if start == "processing" and finish == "memory":
            self.total += nbytes or 0

    def __enter__(self):
        self.scheduler.add_plugin(self, name="bytes-made")
        return self

    def __exit__(self, *_):
        self.scheduler.remove_plugin("bytes-made")


SIZED_BY_MEMORY = [
    variant
    for variant in VARIANTS
    if "first-twelve" in variant.tags and variant.workload.category not in ("sched", "adaptive")
]


@pytest.mark.parametrize("variant", SIZED_BY_MEMORY, ids=lambda variant: variant.name)
def test_sizes_are_proportional_to_cluster_memory(client, variant):
    made, fraction = [], FRACTIONS.get(variant.workload.name, 0.1)
    for memory in (TINY.memory, 4 * TINY.memory):
        scale = replace(TINY, memory=memory, fraction=fraction)
        with BytesMade(client) as bytes_made:
            available = run_variant(client, variant, scale)
        variant.workload.call("cleanup", **available)
        made.append(bytes_made.total)

    # 4 times as much by the linear law, 2 times by the quadratic one; dataset sizes are discrete.
    assert 1.5 < made[1] / made[0] < 8


@pytest.mark.parametrize("wrong", ["the mean of all", "the mean of the other day", "nothing"])
def test_check_rejects_anomalies_from_wrong_climatology(wrong):
    (variant,) = [
        each for each in proved_here(WRONG) if each.name.startswith("xarray.anom_mean[data=u")
    ]
    names = variant.workload.main.__globals__
    array = names["_array"](TINY, 0, "uncompressible").compute()
    n_days, weights = names["_n_days"](len(array)), names["_weights"](len(array))
    day = np.arange(len(array)) % n_days
    means = np.stack([array[day == each].mean(axis=0) for each in range(n_days)])
    taken = {
        "the truth": means[day],
        "the mean of all": array.mean(axis=0),
        "the mean of the other day": means[(day + 1) % n_days],
        "nothing": 0.0,
    }

    def check(climatology):
        result = ((array - climatology) * weights[:, None]).mean(axis=0)
        variant.workload.call("check", result=result, scale=TINY, seed=0, data="uncompressible")

    check(taken["the truth"])
    with pytest.raises(WrongAnswer):
        check(taken[wrong])
