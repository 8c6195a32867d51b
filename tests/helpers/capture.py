"""Small tasks and accessors for tests of the capture."""

import json
import time
import zlib

from distributed import wait


def inc(number):
    return number + 1


def nap(seconds):
    time.sleep(seconds)
    return seconds


def await_workers(client, count, timeout_s=60):
    """Wait for workers that return, by the scheduler's own count.

    `Client.wait_for_workers` overwrites the cluster's worker list; a late message about a killed
    worker then fails (seen once in six, distributed 2026.8).
    """
    give_up = time.time() + timeout_s
    while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.workers)) < count:
        assert time.time() < give_up, f"fewer than {count} workers after {timeout_s} s"
        time.sleep(0.1)


def run_tasks(client, count):
    futures = client.map(inc, range(count), pure=False)
    wait(futures)
    return client.gather(futures)


def keys_of(run):
    return zlib.decompress(run.tree["tasks/key_blob"].values.tobytes()).decode().split("\n")


def capture_errors(run):
    return json.loads(run.tree.attrs["capture_errors"])


def plugin_of(cluster, observation):
    return cluster.scheduler.handlers[f"{observation.name}_off"].__self__
