"""Spill workloads: the cost of writing to disk and reading from it."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
import zlib

from _memory import bytes_spilled, drawn, worker_memory
from _two_workers import two_workers

from benchkit.measure import expect, workload

#: Size of small objects, the same on every worker, so that the cost per object (0.6 ms for writing
#: and reading) is visible; and their largest number.
SMALL_BYTES, MOST_SMALL = 2**16, 2**11
#: Bytes of a string and its pointer in memory; 15 when pickled.
TEXT_BYTES = 72
#: Write and read cycles of `bandwidth`, and objects that `unspill_transfer` makes at a time.
CYCLES = 5
AT_ONCE = 4
#: Wait for the memory monitor of workers, which runs every 0.1 s.
NAP_S = 0.2


@workload(
    category="spill",
    variants={"objects": ["many-small", "few-large"], "data": ["numpy", "text"]},
    tags=["memory", "disk", "serialization", "ci[objects=few-large,data=numpy]", "nightly"],
    requires=["numpy"],
    deadline_s=120,
    version=2,
    metrics={"serialise_rate": "MiB/s", "write_rate": "MiB/s", "read_rate": "MiB/s"},
)
def bandwidth(client, prepared):
    """Write objects to the disk of each worker as spilling does, and read them back, five times.

    One task per worker evicts all objects of a separate spill buffer to disk and reads them again.
    Serialisation alone is measured too, to separate it from disk time. Stresses the cost per object
    when objects are small, and the disk when they are large; arrays of strings must be pickled.
    Reads are from the cache of the operating system, because the data was just written. A rate is
    the median of five.

    Scale: 0.2 x the memory of a worker x fraction on each worker; objects of 1/32 of it, or of 64
    KiB each and 2048 of them at most. Strings need a fifth of that on disk.
    About 2 s on 2 x 1 x 1 GiB.
    Check: the checksum of every object is the same after reading, and all were on disk.
    """
    futures = [
        client.submit(_write_and_read, workers=[worker], pure=False)
        for worker in prepared["workers"]
    ]
    return {"before": prepared["before"], "timed": client.gather(futures)}


@bandwidth.prepare
def _(client, scale, seed, *, objects, data):
    sizes = _objects(scale, objects)
    workers = sorted(client.nthreads())
    futures = [
        client.submit(_fill, *sizes, data=data, seed=[seed, i], workers=[worker], pure=False)
        for i, worker in enumerate(workers)
    ]
    return {"workers": workers, "before": client.gather(futures)}


@bandwidth.check
def _(client, result, scale, prepared, *, objects, data):
    count, nbytes = _objects(scale, objects)
    pickled = nbytes * {"numpy": 1, "text": 15 / TEXT_BYTES}[data]
    expect(len(result["timed"]), equals=scale.workers, what="workers")
    for one in result["timed"]:
        expect(one["count_on_disk"], equals=count, what="objects on disk")
        expect(one["nbytes"], at_least=0.9 * count * pickled, what="bytes")
    after = client.run(_checksums, workers=prepared["workers"])
    after = [after[worker] for worker in prepared["workers"]]
    expect(result["before"], equals=after, what="checksums")
    expect([len(each) for each in after], equals=[count] * len(after), what="objects")
    return {
        f"{step}_rate": statistics.mean(
            one["nbytes"] / 2**20 / statistics.median(one[step]) for one in result["timed"]
        )
        for step in ("serialise", "write", "read")
    }


@bandwidth.cleanup
def _(client):
    client.run(_release)


@workload(
    category="spill",
    tags=["memory", "disk", "transfer", "ci", "nightly"],
    requires=["numpy"],
    cluster={"memory_limit": "512 MiB"},
    features=["nanny"],
    deadline_s=120,
    version=2,
    metrics={"spilled_share": "1", "transfer_rate": "MiB/s"},
)
def unspill_transfer(client, prepared):
    """Let one worker fetch data that another worker has on disk.

    One worker holds more than fits into memory; then another fetches each array once. Arrays that
    are in memory are requested last, and are spilled by then: all arrays come from disk. Stresses
    reading from disk to send, which should not evict data that was just read
    (coiled/benchmarks#136).

    Scale: 2 x the memory of one worker, of 512 MiB, x fraction, but at least 0.9 of it, otherwise
    nothing spills; an array is 1/64 of it.
    About 4 s on 2 x 1 x 512 MiB.
    Check: the sum of every array on the other worker is that of the numbers drawn, and more than
    0.3 of the data was on disk. A lost worker ends the run.
    """
    source, target = prepared["workers"]
    begin = time.perf_counter()
    sums = client.map(_sum_where, prepared["arrays"], workers=[target], pure=False)
    _wait_with(client, [source, target], sums)
    return {
        "sums": client.gather(sums),
        "target": target,
        "spilled_share": prepared["spilled_share"],
        "seconds": time.perf_counter() - begin,
    }


@unspill_transfer.prepare
def _(client, scale, seed):
    source, target = two_workers(client)
    count, length = _far_arrays(scale)
    arrays = []
    # A worker makes arrays faster than it writes them, and would exceed its memory limit.
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        arrays += client.map(drawn, numbers, length=length, seed=seed, workers=[source], pure=False)
        _wait_with(client, [source], arrays)
        time.sleep(NAP_S)
    spilled = sum(client.run(bytes_spilled, workers=[source]).values())
    return {
        "workers": [source, target],
        "arrays": arrays,
        "spilled_share": spilled / (8 * count * length),
    }


@unspill_transfer.check
def _(result, scale, seed):
    count, length = _far_arrays(scale)
    wanted = [float(drawn(i, length=length, seed=seed).sum()) for i in range(count)]
    expect([total for total, _ in result["sums"]], close_to=wanted, rtol=1e-12, what="sums")
    where = sorted({address for _, address in result["sums"]})
    expect(where, equals=[result["target"]], what="workers that added up")
    expect(result["spilled_share"], at_least=0.3, what="share of the data that was on disk")
    return {
        "spilled_share": result["spilled_share"],
        "transfer_rate": 8 * count * length / 2**20 / result["seconds"],
    }


def _objects(scale, objects):
    """Return the number of objects of a worker, and their bytes."""
    held = 0.2 * worker_memory(scale) * scale.fraction
    if objects == "many-small":
        return min(MOST_SMALL, max(4, round(held / SMALL_BYTES))), SMALL_BYTES
    nbytes = int(worker_memory(scale) / 32)
    return max(4, round(held / nbytes)), nbytes


def _fill(count, nbytes, *, data, seed):
    """Fill a spill buffer on this worker with objects; return their checksums."""
    from distributed import get_worker
    from distributed.spill import SpillBuffer

    worker = get_worker()
    folder = tempfile.mkdtemp(dir=worker.local_directory)
    worker.benchkit_buffer = folder, SpillBuffer(folder, target=2**60)
    for i in range(count):
        worker.benchkit_buffer[1][f"object-{i}"] = _object(nbytes, data, [*seed, i])
    return _checksums(worker)


def _write_and_read():
    """Evict the buffer of this worker to disk and read it back; return the times."""
    from distributed import get_worker
    from distributed.protocol import serialize_bytelist

    folder, buffer = get_worker().benchkit_buffer
    keys = sorted(buffer)
    seconds = {"serialise": [], "write": [], "read": []}
    on_disk = []
    for _ in range(CYCLES):
        begin = time.perf_counter()
        # Keep no reference to an object, otherwise it would not be read from disk again.
        nbytes = sum(
            memoryview(part).nbytes for key in keys for part in serialize_bytelist(buffer[key])
        )
        serialised = time.perf_counter()
        while buffer.fast:
            buffer.evict()
        written = time.perf_counter()
        on_disk.append(sum(len(files) for _, _, files in os.walk(folder)))
        counted = time.perf_counter()
        for key in keys:
            buffer[key]
        read = time.perf_counter()
        seconds["serialise"].append(serialised - begin)
        seconds["write"].append(written - serialised)
        seconds["read"].append(read - counted)
    return {"count_on_disk": min(on_disk), "nbytes": nbytes, **seconds}


def _checksums(dask_worker):
    _, buffer = dask_worker.benchkit_buffer
    return [_checksum(buffer[key]) for key in sorted(buffer)]


def _release(dask_worker):
    folder, _ = vars(dask_worker).pop("benchkit_buffer", ("", None))
    shutil.rmtree(folder, ignore_errors=True)


def _object(nbytes, data, seed):
    import numpy as np

    if data == "numpy":
        return np.random.default_rng(seed).random(nbytes // 8)
    numbers = np.random.default_rng(seed).integers(10**11, 10**12, nbytes // TEXT_BYTES)
    return np.array([str(number) for number in numbers.tolist()], dtype=object)


def _checksum(array):
    if array.dtype == object:
        return zlib.crc32("".join(array.tolist()).encode())
    return zlib.crc32(array.tobytes())


def _far_arrays(scale):
    memory = worker_memory(scale)
    return round(64 * max(0.9, 2 * scale.fraction)), int(memory / 64 / 8)


def _wait_with(client, workers, futures):
    """Wait for futures; fail if one of the workers that must run them is lost."""
    from distributed import wait
    from distributed.comm import CommClosedError

    while True:
        try:
            return wait(futures, timeout=1)
        except asyncio.TimeoutError:
            if gone := sorted(set(workers) - set(client.nthreads())):
                raise CommClosedError(f"lost {', '.join(gone)}, whose data is asked for") from None


def _sum_where(array):
    from distributed import get_worker

    return float(array.sum()), get_worker().address
