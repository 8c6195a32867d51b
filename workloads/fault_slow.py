"""Fault workloads: a worker with a slow disk or network."""

from __future__ import annotations

import time
import zlib
from uuid import uuid4

from _object_store import counts_of_worker, slow_store
from _scratch_data import checksums, remove_folder, write_objects

from benchkit.measure import expect, workload

#: Seconds at reference memory: work of a task, latency of a request to the slow disk or network,
#: and transfer of an object.
NAP_S, LATENCY_S, OBJECT_S = 0.4, 0.2, 1.0
#: Attributes of the slow worker: its original handler, and the number of calls.
HANDLER, CALLS = "benchkit_handler", "benchkit_calls"


@workload(
    category="fault",
    tags=["fault", "io", "imbalance", "ci", "nightly"],
    requires=["numpy", "fsspec"],
    version=2,
    metrics={"over_ideal": "1", "share_of_slow": "1"},
)
def slow_disk(client, scale, prepared):
    """Read objects while the disk of one worker is slow.

    Each object needs some work, and on one worker three times as much extra time: latency, and
    transfer at a low bandwidth. Stresses the distribution of work to unequal workers: the scheduler
    keeps one duration for all. In the ideal case all workers finish together.

    Scale: 40 objects per thread x fraction, of 1/128 of its memory each; 0.4 s of work, 0.2 s of
    latency and 1 s of transfer at reference memory.
    About 8 s on 2 x 1 x 1 GiB.
    Check: the checksum of every object; requests to the slow disk equal the tasks that report the
    slow worker.
    """
    slow = sorted(client.nthreads())[0]
    nap_s, latency_s, object_s = _times(scale)
    options = {
        "label": uuid4().hex,
        "latency_s": latency_s,
        "bytes_per_s": _object_bytes(scale) / object_s,
    }
    begin = time.perf_counter()
    futures = client.map(
        _read_and_nap, prepared["paths"], slow=slow, nap_s=nap_s, options=options, pure=False
    )
    reports = client.gather(futures)
    seconds = time.perf_counter() - begin
    counts = client.run(counts_of_worker(options["label"]), workers=[slow])[slow]
    return {"reports": reports, "seconds": seconds, "slow": slow, "requests": counts["requests"]}


@slow_disk.prepare
def _(client, scale, seed):
    return write_objects(client, _count(scale), nbytes=_object_bytes(scale), seed=seed)


@slow_disk.check
def _(result, scale, prepared):
    reports = [checksum for checksum, _ in result["reports"]]
    expect(reports, equals=checksums(prepared["paths"]), what="checksums")
    on_slow = sum(where == result["slow"] for _, where in result["reports"])
    expect(result["requests"], equals=on_slow, what="requests to the slow disk")
    per_worker = scale.threads / scale.workers
    nap_s, *more = _times(scale)
    rate = (scale.threads - per_worker) / nap_s + per_worker / (nap_s + sum(more))
    count = len(reports)
    return {"over_ideal": result["seconds"] * rate / count, "share_of_slow": on_slow / count}


@slow_disk.cleanup
def _(prepared=None):
    remove_folder(prepared)


@workload(
    category="fault",
    tags=["fault", "transfer", "imbalance", "ci", "nightly"],
    requires=["numpy"],
    version=2,
    metrics={"over_ideal": "1", "requests": "1"},
)
def slow_net(client, scale, prepared):
    """Add pairs of arrays, some of which are on a worker with a slow network.

    Transfers from that worker take half the time of a task per request, and 2.5 times that of a
    task for the bytes of an array. Each task needs two arrays of different workers, and may run on
    either: the optimum is never to fetch from the slow worker, which Dask does not know. Stresses
    this choice, the number of arrays per request, and transfers during other work.

    Scale: 30 tasks per thread x fraction, arrays of 1/128 of its memory; a task takes 0.4 s at
    reference memory.
    About 6 s on 2 x 1 x 1 GiB.
    Check: each sum of two arrays; requests to the slow worker are at most as many as the tasks that
    need one of its arrays.
    """
    nap_s, *_ = _times(scale)
    arrays, others = prepared["arrays"], prepared["others"]
    begin = time.perf_counter()
    sums = client.gather(client.map(_nap_and_add, arrays, others, nap_s=nap_s, pure=False))
    seconds = time.perf_counter() - begin
    requests = client.run(_calls, workers=[prepared["slow"]])[prepared["slow"]]
    return {"sums": sums, "seconds": seconds, "requests": requests}


@slow_net.prepare
def _(client, scale, seed):
    from distributed import wait

    workers = sorted(client.nthreads())
    length, count = int(scale.memory_per_thread / 128 / 8), _pairs(scale)
    # The second array is on the worker after that of the first.
    places = {"arrays": workers, "others": workers[1:] + workers[:1]}
    held = {
        name: [
            client.submit(
                _array,
                number + first,
                length,
                seed,
                workers=[homes[number % len(homes)]],
                pure=False,
            )
            for number in range(count)
        ]
        for (name, homes), first in zip(places.items(), (0, count), strict=True)
    }
    wait([*held["arrays"], *held["others"]])
    _, latency_s, object_s = _times(scale)
    client.run(
        _slow_down_sending,
        latency_s=latency_s,
        bytes_per_s=length * 8 / object_s,
        workers=workers[:1],
    )
    return {**held, "slow": workers[0]}


@slow_net.check
def _(result, scale, seed):
    length, count = int(scale.memory_per_thread / 128 / 8), _pairs(scale)
    wanted = [
        float(_array(i, length, seed).sum() + _array(i + count, length, seed).sum())
        for i in range(count)
    ]
    expect(result["sums"], close_to=wanted, rtol=1e-12, what="sums of two arrays")
    of_slow = sum(number % scale.workers in (0, scale.workers - 1) for number in range(count))
    expect(result["requests"], at_most=of_slow, what="requests to the slow worker")
    ideal = count * _times(scale)[0] / scale.threads
    return {"over_ideal": result["seconds"] / ideal, "requests": result["requests"]}


@slow_net.cleanup
def _(client):
    client.run(_send_as_before)


def _times(scale):
    return [scale.seconds(each) for each in (NAP_S, LATENCY_S, OBJECT_S)]


def _count(scale):
    return max(12, round(40 * scale.threads * scale.fraction))


def _object_bytes(scale):
    return int(scale.memory_per_thread / 128)


def _pairs(scale):
    return max(12, round(30 * scale.threads * scale.fraction))


def _array(number, length, seed):
    import numpy as np

    return np.random.default_rng([seed, number]).random(length)


def _read_and_nap(path, *, slow, nap_s, options):
    """Return the checksum of a file and the worker that read it; one worker reads slowly."""
    from distributed import get_worker

    here = get_worker().address
    if here == slow:
        data = slow_store(**options).cat_file(path)
    else:
        with open(path, "rb") as file:
            data = file.read()
    time.sleep(nap_s)
    return zlib.crc32(data), here


def _nap_and_add(one, other, *, nap_s):
    time.sleep(nap_s)
    return float(one.sum() + other.sum())


def _slow_down_sending(dask_worker, latency_s, bytes_per_s):
    import asyncio

    send = dask_worker.handlers["get_data"]
    setattr(dask_worker, HANDLER, send)
    setattr(dask_worker, CALLS, 0)

    async def get_data(comm, keys, **more):
        setattr(dask_worker, CALLS, getattr(dask_worker, CALLS) + 1)
        nbytes = sum(dask_worker.state.tasks[key].get_nbytes() for key in keys)
        await asyncio.sleep(latency_s + nbytes / bytes_per_s)
        return await send(comm, keys=keys, **more)

    dask_worker.handlers["get_data"] = get_data


def _send_as_before(dask_worker):
    send = getattr(dask_worker, HANDLER, None)
    if send is not None:
        dask_worker.handlers["get_data"] = send
        delattr(dask_worker, HANDLER)


def _calls(dask_worker):
    return getattr(dask_worker, CALLS)
