"""Nested workloads: tasks that are clients themselves."""

from __future__ import annotations

from benchkit.measure import expect, workload

#: Calls that the largest Fibonacci number may take: 177 for the tenth.
MOST_CALLS = 180


@workload(tags=["nested", "latency", "ci", "nightly"], deadline_s=120)
def worker_client(client, scale):
    """Compute a Fibonacci number by recursion: each task submits two more and waits for them.

    Stresses tasks that leave the worker's thread pool while they wait (`worker_client`). A
    cluster with few threads would stand still if they kept their threads.

    Scale: the largest number that takes 180 calls x the fraction; the tenth, on any cluster.
    About 1 s on 2 x 1 x 1 GiB.
    Check: the number, and that each call was a task of its own.
    """
    return client.submit(_fibonacci, _which(scale), pure=False).result()


@worker_client.check
def _(result, scale):
    which = _which(scale)
    numbers = _numbers(which + 1)
    expect(result, equals=[numbers[which], 2 * numbers[which + 1] - 1], what="number and calls")


def _fibonacci(which):
    """Return the number, and how many calls it took."""
    from distributed import worker_client

    if which < 2:
        return [which, 1]
    with worker_client() as client:
        smaller = [client.submit(_fibonacci, which - back, pure=False) for back in (1, 2)]
        (first, calls_first), (second, calls_second) = client.gather(smaller)
    return [first + second, 1 + calls_first + calls_second]


def _which(scale):
    """Return the largest number that takes no more calls than it may."""
    which = 4
    while 2 * _numbers(which + 2)[which + 2] - 1 <= MOST_CALLS * scale.fraction:
        which += 1
    return which


def _numbers(last):
    numbers = [0, 1]
    while len(numbers) <= last:
        numbers.append(numbers[-2] + numbers[-1])
    return numbers
