"""Truths of a cluster of several hosts, by the counters of their links."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from validation.hosts import Hosts, Network
from validation.truth.bodies import MB, nap, noise
from validation.truth.scenario import SCENARIOS, scenario

#: Seconds by which the clocks of the first workers' hosts are ahead.
CLOCKS = {"node1": 2.0, "node2": -2.0}
RATE = 400.0


def measure_on_hosts(
    python: str, path: str, folder: Path, level: str, *names: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m validation.truth`` for scenarios of the same cluster, on hosts of its own."""
    options = {"memory_limit": "2 GiB", **SCENARIOS[names[0]].cluster}
    hosts = Hosts(options["n_workers"] + 1, folder, rate=RATE, clocks=CLOCKS, path=path)
    with hosts:
        address = hosts.start_cluster(
            python,
            nthreads=options["threads_per_worker"],
            memory_limit=options["memory_limit"],
            # Not forks, which share memory with the process that they come from.
            env={**os.environ, "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "spawn"},
        )
        words = [python, "-m", "validation.truth", str(folder), level, ",".join(names), address]
        return hosts.run(words, timeout=200)


def _both_ways(client: Any, n_rounds: int) -> None:
    """Move a block of 4 MB from each worker to the other, round by round."""
    from distributed import wait

    for _ in range(n_rounds):
        blocks = [client.submit(noise, 4 * MB, workers=[w], pure=False) for w in ("node1", "node2")]
        moved = zip(blocks, ("node2", "node1"), strict=True)
        wait([client.submit(len, block, workers=[w], pure=False) for block, w in moved])


@scenario("duration", "transfer_bytes", "n_transfers", "network_bytes", on=("hosts",))
def bytes_on_links(client: Any, _: Any) -> dict[str, Any]:
    """80 MB between two hosts, over links whose counters have what went through."""
    _both_ways(client, 10)
    return {"transfer_bytes": 80 * MB, "n_transfers": 20}


@scenario(
    "duration",
    "transfer_bytes",
    "n_transfers",
    "n_workers_lost",
    before=lambda client: Network(),
    on=("hosts",),
)
def link_is_cut(client: Any, network: Network) -> dict[str, Any]:
    """80 MB are moved, then the link of a worker's host is down for 8 s, in which nothing is."""
    begin = time.monotonic()
    _both_ways(client, 10)
    time.sleep(max(0.0, begin + 5.2 - time.monotonic()))  # behind the first report of a worker
    network.set_link("node1", up=False)
    time.sleep(8)
    network.set_link("node1", up=True)
    time.sleep(14)
    return {"transfer_bytes": 80 * MB, "n_transfers": 20, "n_workers_lost": 0}


@scenario(
    "transfer_bytes",
    "n_transfers",
    before=lambda client: Network(),
    on=("hosts",),
)
def links_are_full(client: Any, network: Network) -> dict[str, Any]:
    """40 MB over links of 25 Mbit/s, which carry the workers' reports, too."""
    for host in ("node0", "node1", "node2"):
        network.set_link(host, rate=25)
    _both_ways(client, 5)
    return {"transfer_bytes": 40 * MB, "n_transfers": 10}


@scenario(
    "duration",
    "compute_time",
    "idle_time",
    "worker_seconds",
    before=lambda client: Network(),
    on=("hosts",),
)
def host_clock_is_set(client: Any, network: Network) -> dict[str, Any]:
    """The clock of a worker's host is set forward by 7 s in the middle; the last second is idle."""
    begin = time.perf_counter()
    spans = client.gather(client.map(nap, [0.8] * 4, pure=False))
    network.set_clock("node1", CLOCKS["node1"] + 7)
    spans += client.gather(client.map(nap, [0.8] * 4, pure=False))
    time.sleep(1.0)
    return {"spans": spans, "worker_seconds": 2 * (time.perf_counter() - begin)}
