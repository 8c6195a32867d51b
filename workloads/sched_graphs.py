"""Scheduler workloads: graphs that are large or have a difficult shape."""

from __future__ import annotations

import time
import zlib
from importlib.util import find_spec

from _graphs import (
    BUILDS,
    FAMILIES,
    built,
    graph_family,
    last_block,
    last_block_known,
    most_alive,
    tasks_of,
)
from _timing import timed

from benchkit.measure import expect, workload
from benchkit.measure.errors import MissingPackage

#: Blocks along each side of the arrays: about 1 s each.
SIDES = {"rechunk": 36, "overlap": 20, "tensordot": 16, "groupby": 24}
N_PAYLOADS = 500
N_PASSES = 7


@workload(
    category="sched",
    variants={"megabytes": [1, 10, 100]},
    tags=["overhead", "graph", "client", "nightly", "ci[megabytes=10]"],
    metrics={"submission": "s"},
)
def graph_submit(client, scale, prepared, *, megabytes):
    """Submit a graph that contains its data, which is a common mistake.

    Stresses the transfer of a graph from client to scheduler: serialization, one large message, and
    its processing by the scheduler. The metric is the time until the scheduler knows the tasks,
    from its own events; the rest is execution. Dask warns from 10 MB on.

    Scale: 500 payloads of 1, 10 or 100 MB in total x fraction, on any cluster.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the checksum of each payload.
    """
    import warnings

    import dask

    tasks = [dask.delayed(zlib.crc32, pure=False)(payload) for payload in prepared]
    begin = time.time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        futures = client.compute(tasks)
    return {"sums": client.gather(futures), "begin": begin}


@graph_submit.prepare
def _(scale, seed, *, megabytes):
    import numpy as np

    rng = np.random.default_rng(seed)
    nbytes = max(100, round(megabytes * 1e6 * scale.fraction / N_PAYLOADS))
    return [rng.bytes(nbytes) for _ in range(N_PAYLOADS)]


@graph_submit.check
def _(client, result, prepared):
    expect(result["sums"], equals=[zlib.crc32(each) for each in prepared], what="checksums")
    known = [
        moment
        for moment, event in client.get_events(client.id)
        if event.get("action") in ("update-graph", "update_graph") and moment >= result["begin"]
    ]
    expect(len(known), at_least=1, what="events of the submission")
    return {"submission": min(known) - result["begin"]}


@workload(
    category="sched",
    variants={"kind": list(BUILDS)},
    tags=["graph", "client", "cpu", "gate", "nightly", "ci[kind=overlap]"],
    metrics={"graph_tasks": "1"},
)
def graph_build(scale, *, kind):
    """Build and optimise the graph of an array on the client, without computing it.

    Stresses the client: rechunking, overlaps, contractions and groups of xarray (without flox) make
    thousands of tasks before the first can run (distributed#3750). The number of tasks is the same
    on every machine.

    Scale: blocks by the fraction, on any cluster: the client is one process.
    About 1 s on 2 x 1 x 1 GiB.
    Check: the last block, computed from the graph, equals that of NumPy.
    """
    from types import SimpleNamespace

    graph, keys = built(kind, _side(scale, kind))
    # Hide the graph from Dask, which would search it for collections.
    return SimpleNamespace(graph=graph, keys=keys)


@graph_build.prepare
def _(*, kind):
    if kind == "groupby" and find_spec("xarray") is None:
        raise MissingPackage("xarray: not installed")


@graph_build.check
def _(result, scale, *, kind):
    import numpy as np

    side = _side(scale, kind)
    blocks = [key for row in result.keys for key in row]
    # A contraction has as many blocks as the array; the rechunked array has columns only.
    expect(len(set(blocks)), equals=side if kind == "rechunk" else side**2, what="blocks")
    block = last_block(result.graph, result.keys)
    known = last_block_known(kind, side)
    same = np.shape(block) == known.shape and np.allclose(block, known, rtol=1e-12)
    expect(same, equals=True, what="last block is NumPy's")
    return {"graph_tasks": len(result.graph)}


@workload(
    category="sched",
    variants={"graph": list(FAMILIES)},
    tags=["graph", "cpu", "gate", "nightly", "ci[graph=overlap]"],
    metrics={"ms_per_pass": "ms", "most_alive": "1"},
    version=2,
)
def order(prepared, *, graph):
    """Order the tasks of a graph as the scheduler does, seven times, without running them.

    Stresses `dask.order` with shapes that have been slow or badly ordered: overlaps, an SVD, fully
    connected layers, a chain with side branches, and many independent chains. Metrics: the median
    pass, and the largest number of results alive at a time, which is the same on every machine.

    Scale: tasks by the fraction, on any cluster: the scheduler is one process.
    About 2 s on 2 x 1 x 1 GiB.
    Check: every task has a unique position after its dependencies, the same in every pass.
    """
    from types import SimpleNamespace

    from dask.order import order

    passes, seconds = [], []
    for _ in range(N_PASSES):
        # Some releases modify the dependencies that they are given.
        needs = {key: set(others) for key, others in prepared["needs"].items()}
        places, took = timed(order, prepared["tasks"], dependencies=needs)
        passes.append(places)
        seconds.append(took)
    return SimpleNamespace(passes=passes, seconds=seconds)


@order.prepare
def _(scale, *, graph):
    needs = graph_family(graph, scale.fraction)
    return {"needs": needs, "tasks": tasks_of(needs)}


@order.check
def _(result, prepared):
    import statistics

    places, needs = result.passes[0], prepared["needs"]
    expect(len(places), equals=len(needs), what="tasks with a place")
    expect(set(places) == set(needs), equals=True, what="all tasks have a place")
    expect(len(set(places.values())), equals=len(needs), what="places")
    early = sum(places[key] < places[other] for key in needs for other in needs[key])
    expect(early, equals=0, what="tasks before what they need")
    same = sum(each == places for each in result.passes)
    expect(same, equals=N_PASSES, what="passes with the same places")
    return {
        "ms_per_pass": statistics.median(result.seconds) * 1e3,
        "most_alive": most_alive(needs, places),
    }


def _side(scale, kind):
    return max(3, round(SIDES[kind] * scale.fraction**0.5))
