"""Small tasks to watch, and what a run tells of its capture."""

from __future__ import annotations

import json
import time
import zlib

from distributed import wait


def inc(number):
    return number + 1


def nap(seconds):
    time.sleep(seconds)
    return seconds


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
