"""Nested workloads: tasks that submit tasks."""

from __future__ import annotations

from benchkit.measure import expect, workload

#: Largest number of calls: the tenth Fibonacci number needs 177.
MOST_CALLS = 180


@workload(tags=["nested", "latency", "ci", "nightly"], deadline_s=120)
def worker_client(client, scale):
    """Compute a Fibonacci number by recursion: each task submits two tasks and waits for them.

    Stresses tasks that leave the thread pool of the worker while they wait (`worker_client`). If
    they kept their threads, a cluster with few threads would deadlock.

    Scale: the largest number that needs at most 180 calls x fraction: the tenth, on any cluster.
    About 1 s on 2 x 1 x 1 GiB.
    Check: the number, and the number of calls, each a task.
    """
    return client.submit(_fibonacci, _which(scale), pure=False).result()


@worker_client.check
def _(result, scale):
    which = _which(scale)
    numbers = _numbers(which + 1)
    expect(result, equals=[numbers[which], 2 * numbers[which + 1] - 1], what="number and calls")


def _fibonacci(which):
    """Return the number and the number of calls."""
    from distributed import worker_client

    if which < 2:
        return [which, 1]
    with worker_client() as client:
        smaller = [client.submit(_fibonacci, which - back, pure=False) for back in (1, 2)]
        (first, calls_first), (second, calls_second) = client.gather(smaller)
    return [first + second, 1 + calls_first + calls_second]


def _which(scale):
    """Return the index of the largest number within the limit of calls."""
    which = 4
    while 2 * _numbers(which + 2)[which + 2] - 1 <= MOST_CALLS * scale.fraction:
        which += 1
    return which


def _numbers(last):
    numbers = [0, 1]
    while len(numbers) <= last:
        numbers.append(numbers[-2] + numbers[-1])
    return numbers
