"""Scheduler overhead: what a task costs when it does nothing."""

from benchkit.measure import expect, workload


@workload(
    category="sched",
    variants={"n": [1000, 5000]},
    tags=["profile:quick"],
    metrics={"us_per_task": "us"},
)
def task_throughput(client, scale, *, n):
    """Map a function that does nothing over n items, and count the results.

    Stresses the scheduler's state machine and the messages to workers: the seconds divided by n
    are the cost of a task, and their growth with n is what large graphs suffer from.

    Scale: n is fixed; nothing depends on the cluster's memory. About 2 s for 1000 tasks locally.
    Check: the results are the numbers 0 to n - 1.
    """
    futures = client.map(_identity, range(n), pure=False)
    return {"futures": futures}


def _identity(number):
    return number


@task_throughput.check
def every_number_came_back(result, client, *, n):
    """Fetch all results and compare them with what was sent."""
    expect(client.gather(result["futures"]), equals=list(range(n)), what="results")
