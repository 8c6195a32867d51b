"""IO workloads: objects in a slow and sometimes failing store."""

from __future__ import annotations

import math
import time
import zlib
from uuid import uuid4

from _object_store import counts_of_worker, slow_store
from _scratch_data import checksums, remove_folder, write_objects

from benchkit.measure import expect, workload

LATENCY_S = 0.03
#: Bandwidth and latency of one thread's requests; a request of an object takes 0.1 s.
OBJECT_S = 0.07
#: The first request of one object in this many fails.
FAILS_EVERY = 7


@workload(
    variants={"kind": ["steady", "flaky"]},
    tags=["io", "latency", "retries", "ci[kind=flaky]", "nightly"],
    requires=["numpy", "fsspec"],
    metrics={"over_ideal": "1", "requests": "1"},
)
def simulated_store(client, scale, prepared, *, kind):
    """Read objects from a store with latency and limited bandwidth, and compute their checksums.

    The store consists of local files, and sleeps: 0.03 s per request and 0.07 s for the bytes of an
    object, independent of other requests of the worker, as stores limit each connection. A "flaky"
    store fails the first request of every seventh object, and the task is retried. Stresses the
    scheduling of tasks that wait: there is nothing to compute, so that time in excess of the ideal
    is overhead of the scheduler and of retries.

    Scale: 25 objects per thread x fraction, of 1/64 of its memory each.
    About 3 s on 2 x 1 x 1 GiB.
    Check: the checksum of every object; one request per object, and one more for each that failed.
    """
    label, paths = uuid4().hex, prepared["paths"]
    options = {
        "label": label,
        "latency_s": LATENCY_S,
        "bytes_per_s": _object_bytes(scale) / OBJECT_S,
        "fail_first": paths[::FAILS_EVERY] if kind == "flaky" else (),
    }
    begin = time.perf_counter()
    futures = client.map(_read, paths, options=options, retries=5, pure=False)
    sums = client.gather(futures)
    seconds = time.perf_counter() - begin
    # Workers in one process share one count, which is returned once.
    counts = client.run(counts_of_worker(label)).values()
    return {
        "sums": sums,
        "seconds": seconds,
        "requests": sum(each["requests"] for each in counts),
        "nbytes": sum(each["nbytes"] for each in counts),
    }


@simulated_store.prepare
def _(client, scale, seed):
    count = max(FAILS_EVERY + 1, round(25 * scale.threads * scale.fraction))
    return write_objects(client, count, nbytes=_object_bytes(scale), seed=seed)


@simulated_store.check
def _(result, scale, prepared, *, kind):
    count = len(prepared["paths"])
    expect(result["sums"], equals=checksums(prepared["paths"]), what="checksums")
    expect(result["nbytes"], equals=count * _object_bytes(scale), what="bytes read")
    failed = math.ceil(count / FAILS_EVERY) if kind == "flaky" else 0
    expect(result["requests"], equals=count + failed, what="requests")
    ideal = (count * (LATENCY_S + OBJECT_S) + failed * LATENCY_S) / scale.threads
    return {"over_ideal": result["seconds"] / ideal, "requests": result["requests"]}


@simulated_store.cleanup
def _(prepared=None):
    remove_folder(prepared)


def _object_bytes(scale):
    return int(scale.memory_per_thread / 64)


def _read(path, *, options):
    return zlib.crc32(slow_store(**options).cat_file(path))
