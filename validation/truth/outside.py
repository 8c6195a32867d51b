"""Memory, CPU and disk of processes as the kernel counts them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

from validation.hosts import Network
from validation.hosts.sitecustomize import UPTIME

#: Seconds between two looks at the processes: a tenth of the shortest spike.
OUTSIDE_TICK_S = 0.005

#: Prints rows of time and RSS of each process until its input ends. A process of its own: a thread
#: would wait for the GIL when the workers are in this process.
_WATCH = """
import json, os, select, sys, time
page, pids, rows = os.sysconf("SC_PAGE_SIZE"), sys.argv[2:], []
while True:
    row = [time.perf_counter()]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                row.append(int(file.read().split()[1]) * page)
        except OSError:  # the process has ended
            row.append(0)
    rows.append(row)
    if select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
        break
    if len(rows) == 1:
        print("ready", flush=True)
print(json.dumps(rows))
"""


def worker_pids(client: Any) -> list[int]:
    """Return the processes of the workers as this process sees them, each once."""
    found = set(client.run(_host_and_pid).values())
    network = Network() if any(host for host, _ in found) else None
    return sorted(network.pid(host, pid) if network else pid for host, pid in found)


def _host_and_pid() -> tuple[str, int]:
    return (socket.gethostname() if UPTIME in os.environ else "", os.getpid())


class Outside:
    """Memory over time, CPU and disk of processes as the kernel counts them.

    Parameters
    ----------
    pids : list of int
        Processes of the workers, each once.
    network : Network, optional
        Hosts of the workers.
    """

    def __init__(self, pids: list[int], network: Network | None = None) -> None:
        self.pids, self.network = pids, network

    def __enter__(self) -> Outside:
        command = [sys.executable, "-c", _WATCH, str(OUTSIDE_TICK_S), *map(str, self.pids)]
        self._watch = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._watch.stdout is not None
        self._watch.stdout.readline()
        return self

    def start(self) -> None:
        """Begin the measured time."""
        self.before = self._counters()
        self.begin = time.perf_counter()

    def stop(self) -> None:
        """End the measured time."""
        self.seconds = time.perf_counter() - self.begin
        self.after = self._counters()

    def __exit__(self, *_: object) -> None:
        rows = json.loads(self._watch.communicate()[0])
        inside = [row for row in rows if 0 <= row[0] - self.begin <= self.seconds]
        self.times = [row[0] for row in inside]
        self.rows = [row[1:] for row in inside]

    def _counters(self) -> dict[str, float]:
        ticks = os.sysconf("SC_CLK_TCK")
        cpu = disk = 0.0
        for pid in self.pids:
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                cpu += (int(fields[11]) + int(fields[12])) / ticks
                with open(f"/proc/{pid}/io") as file:
                    counts = dict(line.split(": ") for line in file.read().splitlines())
                disk += int(counts["read_bytes"]) + int(counts["write_bytes"])
            except OSError:
                pass
        used = {"cpu_time": cpu, "disk_bytes": disk}
        if self.network is not None:
            used["network_bytes"] = self.network.received_by_workers()
        return used

    def overlap(self, spans: list[tuple[float, float]]) -> float:
        """Return the seconds of spans, from begin to end, that lie within the block."""
        end = self.begin + self.seconds
        return sum(max(0.0, min(b, end) - max(a, self.begin)) for a, b in spans)

    def truths(self, no_workers_after: float = float("inf")) -> dict[str, float]:
        """Return what the metrics of the same names must be."""
        times = self.times
        rows = zip(times, self.rows, strict=True)
        sums = [sum(row) if time <= no_workers_after else 0 for time, row in rows]
        held = [end - begin for begin, end in pairwise(times)]
        means = [(before + after) / 2 for before, after in pairwise(sums)]
        area = sum(mean * seconds for mean, seconds in zip(means, held, strict=True))
        grown = {name: self.after[name] - self.before[name] for name in self.before}
        return {
            "duration": self.seconds,
            "memory_mean": area / sum(held),
            "memory_peak": max(sums),
            "memory_peak_worker": max((value for row in self.rows for value in row), default=0),
            **grown,
        }
