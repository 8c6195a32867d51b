"""Measure the cost of a capture for 100 000 tasks on two clusters, one of them captured.

The speed of a shared machine changes within seconds, by more than a capture costs. Therefore the
pieces are short, each is compared with its neighbour, and the captured cluster changes all the
time, so that constant differences between the two clusters cancel.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _capture_end_to_end import capturing
from _capture_tables import interval
from distributed import Client, LocalCluster, wait

__all__ = ["alternating"]

TASKS = 200
#: Pairs of pieces before the other cluster is captured.
PAIRS = 20


def alternating(minutes: float, arms: Sequence[str]) -> None:
    """Print what each arm, bare included, adds to the wall time of tasks that do nothing."""
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1.5 GiB"}
    effects: dict[str, list[float]] = {arm: [] for arm in arms}
    n_tasks = 0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clusters = [
            stack.enter_context(LocalCluster(**options, dashboard_address=":0")) for _ in range(2)
        ]
        clients = [stack.enter_context(Client(cluster)) for cluster in clusters]
        for client in clients:
            _piece(client)
        gc.collect()
        gc.freeze()
        end = time.monotonic() + 60 * minutes
        with contextlib.suppress(KeyboardInterrupt):  # then print the results so far
            while time.monotonic() < end:
                for arm in arms:
                    halves = []
                    for captured in random.sample((0, 1), 2):
                        with capturing(arm, clients[captured], folder):
                            halves.append(_advantage(clients, captured))
                    effects[arm].append(float(np.mean(halves)))
                    n_tasks += 2 * PAIRS * TASKS
                status = f"{len(effects[arms[0]])} rounds, {n_tasks} tasks an arm and side"
                print(f"\r{status}", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(f"\nTasks that do nothing, {TASKS} at a time, on two alternating clusters: wall time")
    print(f"{'arm':<20} {'tasks':>8} {'rounds':>7} {'difference to bare, 95 % intervals':>34}")
    for arm, values in effects.items():
        if len(values) > 1:
            count = len(values) * 2 * PAIRS * TASKS
            print(f"{arm:<20} {count:>8} {len(values):>7} {interval(np.asarray(values))}")


def _piece(client: Client) -> float:
    begin = time.perf_counter()
    wait(client.map(abs, range(TASKS), pure=False))
    return time.perf_counter() - begin


def _advantage(clients: list[Client], captured: int) -> float:
    """Return the log ratio of piece times, captured to other cluster: the median of the pairs."""
    logs = []
    for _ in range(PAIRS):
        taken = {place: _piece(clients[place]) for place in random.sample((0, 1), 2)}
        logs.append(np.log(taken[captured] / taken[1 - captured]))
    return float(np.median(logs))
