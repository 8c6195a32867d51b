"""Actor workloads: state on one worker, called by the client."""

from __future__ import annotations

import time

from benchkit.measure import expect, workload


@workload(
    tags=["latency", "actors", "ci", "nightly"], metrics={"us_per_fired": "us", "us_per_call": "us"}
)
def calls(client, scale):
    """Call an actor many times: first all calls at once, then one after another.

    Stresses the direct connection from client to worker, which bypasses the scheduler: the
    throughput of concurrent calls and the latency of single calls.

    Scale: 1000 + 1000 calls x fraction, on any cluster.
    About 6 s on 2 x 1 x 1 GiB.
    Check: sequential calls return consecutive counts; the last count is the number of calls.
    """
    count = _count(scale)
    counter = client.submit(_Counter, actor=True, pure=False).result()
    begin = time.perf_counter()
    fired = [call.result() for call in [counter.increment() for _ in range(count)]]
    middle = time.perf_counter()
    awaited = [counter.increment().result() for _ in range(count)]
    end = time.perf_counter()
    return {
        "fired": fired,
        "awaited": awaited,
        "last": counter.read().result(),
        "seconds": [middle - begin, end - middle],
    }


@calls.check
def _(result, scale):
    count = _count(scale)
    # Concurrent calls may run in any order, but each counts once.
    expect(sorted(result["fired"]), equals=list(range(1, count + 1)), what="fired calls")
    awaited = list(range(count + 1, 2 * count + 1))
    expect(result["awaited"], equals=awaited, what="awaited calls")
    expect(result["last"], equals=2 * count, what="count")
    fired_s, awaited_s = result["seconds"]
    return {"us_per_fired": fired_s / count * 1e6, "us_per_call": awaited_s / count * 1e6}


class _Counter:
    """Count calls."""

    def __init__(self):
        self.count = 0

    def increment(self):
        self.count += 1
        return self.count

    def read(self):
        return self.count


def _count(scale):
    return max(20, round(1000 * scale.fraction))
