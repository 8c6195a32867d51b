"""Run one scenario on a cluster of its own while a capture records it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from validation.hosts import Network
from validation.truth.outside import Outside, worker_pids
from validation.truth.scenario import Scenario


@contextmanager
def _cluster(chosen: Scenario, address: str) -> Iterator[Any]:
    import dask
    from distributed import Client, LocalCluster

    if address:
        with Client(address) as client:
            client.wait_for_workers(chosen.cluster["n_workers"])
            yield client
        return

    defaults = {"dashboard_address": None, "memory_limit": "2 GiB"}
    options = {**defaults, **chosen.cluster}
    limits = options.pop("adapt", None)
    # Forks start sooner, but share memory with the process that they come from.
    measures_memory = any(name.startswith("memory") for name in chosen.metrics)
    method = "spawn" if measures_memory else "forkserver"
    start = dask.config.set({"distributed.worker.multiprocessing-method": method})
    with start, LocalCluster(**options) as cluster, Client(cluster) as client:
        if limits:
            cluster.adapt(minimum=limits[0], maximum=limits[1], interval="100ms")
        if options["n_workers"]:
            client.wait_for_workers(options["n_workers"])
        yield client


def measure(
    chosen: Scenario, folder: str | Path, level: str = "full", address: str = ""
) -> dict[str, Any]:
    """Run one scenario, on a cluster of its own or at an address; return recording and truths."""
    from benchkit.measure.capture_client import Observer
    from benchkit.measure.recording import RecordingWriter
    from benchkit.measure.run_ids import new_id

    with _cluster(chosen, address) as client:
        prepared = chosen.before(client) if chosen.before else None
        pids = worker_pids(client)
        writer = RecordingWriter(Path(folder), new_id())
        name = f"truth.{chosen.name}"
        writer.head(id=new_id(), started=time.time(), workload=name, capture=level)
        observer = Observer(client, writer, f"truth-{writer.path.name}", level=level)
        observer.install()
        with Outside(pids, Network() if address else None) as outside:
            observer.clock_on()
            outside.start()
            known = chosen.body(client, prepared) or {}
            outside.stop()
            observer.clock_off()
        observer.uninstall()
        if chosen.after:
            known |= chosen.after(client, prepared)
        writer.tail(
            outcome="ok",
            error="",
            **observer.tail(),
            client_seconds=outside.seconds,
        )
    truths = outside.truths(known.pop("no_workers_after", float("inf"))) | known
    if "spans" in known:
        busy = outside.overlap(known["spans"])
        n_threads = chosen.cluster["n_workers"] * chosen.cluster["threads_per_worker"]
        truths["compute_time"] = busy
        busy += known.get("failed_time", 0.0)
        held = truths.get("worker_seconds", n_threads * outside.seconds)
        truths["idle_time"] = held - busy
    return {
        "scenario": chosen.name,
        "level": level,
        "path": str(writer.path),
        "slack": known.get("slack", 0.0),  # seconds by which truths may be off
        "truths": {name: truths[name] for name in chosen.metrics if name in truths},
    }
