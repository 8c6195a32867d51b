"""The checks of the shuffle workloads, and that a shuffle survives the loss of a worker."""

from dataclasses import replace

import dask
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from helpers.wrong_results import (
    FEW_ROWS,
    TINY,
    item,
    nan,
    prove,
    proved_here,
    rows_with,
    swapped_values,
    with_value,
)

from benchkit.measure.scale import Scale


def a_key_is_in_two_partitions(frame):
    half = frame.iloc[:1].assign(rows=0, payload=0.0)
    return pd.concat([frame, half], ignore_index=True)


BY_KEY = {
    "a key is lost": rows_with(lambda frame: frame.iloc[1:]),
    "a key is in two partitions": rows_with(a_key_is_in_two_partitions),
    "a row is lost": with_value("rows", lambda rows: rows - 1),
    "rows have another's payload": swapped_values("payload"),
    "a payload is not a number": with_value("payload", nan),
}


def counts_with(spoil):
    return item("counts", spoil)


BY_KEY_OF_COUNTS = {what: counts_with(spoil) for what, spoil in BY_KEY.items()}
WRONG = {
    "shuffle.plain": BY_KEY,
    "shuffle.skew": BY_KEY,
    "shuffle.many_partitions": BY_KEY,
    "shuffle.p2p_worker_loss": {**BY_KEY_OF_COUNTS, "the shuffle began only once": item("runs", 1)},
}
#: The number of partitions scales with the threads; a few partitions test as much as many.
FEW = {"shuffle.many_partitions": replace(TINY, fraction=0.1)}
KILLS = "shuffle.p2p_worker_loss"


@pytest.mark.parametrize(
    "variant",
    [variant for variant in proved_here(WRONG) if variant.workload.name != KILLS],
    ids=lambda variant: variant.name,
)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG, FEW.get(variant.workload.name, FEW_ROWS))


@pytest.mark.slow
def test_shuffle_restarts_when_worker_is_killed():
    (variant,) = (variant for variant in proved_here(WRONG) if variant.workload.name == KILLS)
    scale = Scale(memory=2**29, threads=2, workers=2, fraction=0.5)

    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        prove(client, variant, WRONG, scale)
