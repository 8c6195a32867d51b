"""The checks of the workloads about memory, and about data larger than memory."""

from dataclasses import replace

import dask
import pytest
from distributed import Client, LocalCluster
from helpers.wrong_results import TINY, VARIANTS, item, nan, prove, proved_here, run_variant, times

#: These workloads stop or replace workers, so each gets its own cluster.
CONSUME_THEIR_CLUSTER = {"memory.amm_retire", "spill.repeated_merge"}

#: Workers of the tiny cluster ignore the memory of their process, which is a third of the limit of
#: a real worker. Where that memory is what makes workers spill, the test needs more data.
SCALES = {"spill.dot_product": replace(TINY, memory=2 * TINY.memory)}


def first_with(**changes):
    return lambda results: [{**results[0], **changes}, *results[1:]]


def first_chunk_twice(array):
    import dask.array as da

    side = array.chunks[1][0]
    return da.concatenate([array[:, :side], array[:, :side], array[:, 2 * side :]], axis=1)


LESS = {
    "a chunk is lost": item("mean", lambda mean: mean * (1 - 1e-3)),
    "not a number": item("mean", nan),
    "nothing was on disk": item("spilled_share", 0.0),
}
WRONG = {
    "spill.spilling": LESS,
    **{
        f"spill.spilling[data={data},end=keep]": {
            **LESS,
            "chunks are exchanged": item("kept", lambda array: array[::-1]),
            "a chunk came back as another": item("kept", first_chunk_twice),
        }
        for data in ("uncompressible", "compressible")
    },
    "spill.dot_product": {
        "a partial product is lost": item("total", times(1 - 1e-6)),
        "not a number": item("total", nan),
        "counted twice": item("total", times(2)),
        "hardly anything was on disk": item("spilled_share", 0.2),
    },
    "spill.repeated_merge": {
        "a round is lost": item("means", lambda means: means[:-1]),
        "a mean is off": item(
            "means", lambda means: [(means[0][0], means[0][1] + 1e-6), *means[1:]]
        ),
        "rows met others": item(
            "means", lambda means: [*means[:2], (means[2][0] + 1e-6, means[2][1])]
        ),
        "not a number": item("means", lambda means: [(float("nan"), means[0][1]), *means[1:]]),
        "less than nothing was written": item("spilled_share", -1.0),
    },
    "spill.bandwidth": {
        "an object came back different": item(
            "before", lambda sums: [[0, *sums[0][1:]], *sums[1:]]
        ),
        "an object is lost": item("before", lambda sums: [[*sums[0], 0], *sums[1:]]),
        "a worker did nothing": item("timed", lambda timed: timed[1:]),
        "nothing was on disk": item("timed", first_with(count_on_disk=0)),
        "objects were cut": item("timed", first_with(nbytes=10)),
    },
    "spill.unspill_transfer": {
        "an array is another": item("sums", lambda sums: [sums[1], sums[0], *sums[2:]]),
        "an array is lost": item("sums", lambda sums: sums[:-1]),
        "it was added up where it was": item(
            "sums", lambda sums: [(sums[0][0], "elsewhere"), *sums[1:]]
        ),
        "most was in memory": item("spilled_share", 0.29),
    },
    "memory.fragmentation": {
        "an object is lost": item("churned", first_with(count=1)),
        "an object was smaller": item("churned", first_with(nbytes=10**6)),
        "a worker did nothing": item("churned", lambda churned: churned[1:]),
    },
    "memory.root_overproduction": {
        "a pair is lost": item("pairs", lambda pairs: pairs[:-1]),
        "another saturation": item("saturation", 7.0),
        "nothing was held": item("pairs", lambda pairs: [(*pairs[0][:2], 0), *pairs[1:]]),
        "a chunk is another": item("pairs", lambda pairs: [pairs[1], pairs[0], *pairs[2:]]),
        "not a number": item("pairs", lambda pairs: [(float("nan"), "", 0), *pairs[1:]]),
    },
    "memory.leak_slope": {
        "a repeat is off": item("seen", lambda seen: [(seen[0][0] + 0.01, 0, 0), *seen[1:]]),
        "a repeat is lost": item("seen", lambda seen: seen[1:]),
        "a task is left": item("tasks", 1),
        "a worker keeps all of it": item(
            "seen", lambda seen: [(*each[:2], i * 2**23) for i, each in enumerate(seen)]
        ),
        "a scheduler keeps all of it": item(
            "seen", lambda seen: [(each[0], i * 2**23, each[2]) for i, each in enumerate(seen)]
        ),
    },
    "memory.amm_retire": {
        "an array is lost": item("sums", lambda sums: sums[:-1]),
        "the worker held little": item("leaves", 1),
        "an array was made again": item("made", lambda made: [*made, made[0]]),
        "not a number": item("sums", lambda sums: [nan(0), *sums[1:]]),
    },
}
SHARING = [each for each in proved_here(WRONG) if each.workload.name not in CONSUME_THEIR_CLUSTER]
CONSUMING = [each for each in proved_here(WRONG) if each.workload.name in CONSUME_THEIR_CLUSTER]


@pytest.fixture
def own_client():
    with (
        dask.config.set({f"distributed.worker.memory.{name}": False for name in ("pause",)}),
        LocalCluster(
            n_workers=TINY.workers,
            threads_per_worker=1,
            memory_limit=4 * 2**30,  # a process with pandas needs more than the tiny cluster has
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("variant", SHARING, ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG, SCALES.get(variant.workload.name, TINY))


def test_fragmentation_uses_all_workers():
    (variant,) = (each for each in SHARING if each.workload.name == "memory.fragmentation")
    with (
        LocalCluster(
            n_workers=7, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        available = run_variant(client, variant, replace(TINY, threads=7, workers=7))

    assert len(available["result"]["churned"]) == 7


@pytest.mark.parametrize("variant", CONSUMING, ids=lambda variant: variant.name)
def test_check_after_lost_workers_rejects_wrong_results(own_client, variant):
    prove(own_client, variant, WRONG, TINY)


def test_spilling_restores_allowed_failures(client):
    spilling = {each.workload.name: each.workload for each in VARIANTS}["spill.spilling"]

    def allowed():
        return client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures)

    before = allowed()
    prepared = spilling.call("prepare", client=client)
    assert (before, allowed()) == (3, 0)
    spilling.call("cleanup", client=client, prepared=prepared)
    assert allowed() == before
