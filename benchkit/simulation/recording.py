"""Write the recording of a simulated run: the columns that a capture of a measured run has."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from benchkit._compat.distributed_internals import EPOCH
from benchkit.measure.capture.columns import (
    ACTIONS,
    EVENT_COLUMNS,
    GRAPH_COLUMNS,
    MEMORY_COLUMNS,
    NAN,
    ROW,
    SAMPLE_COLUMNS,
    SCHEDULER_COLUMNS,
    TASK_COLUMNS,
    pack_columns,
)
from benchkit.measure.provenance import collect_provenance
from benchkit.measure.recording import RecordingWriter
from benchkit.simulation.cluster import FinishedTask, VirtualCluster

#: Name of the cluster of a simulated run, in place of a class.
VIRTUAL_CLUSTER = "benchkit.VirtualCluster"


def open_recording(folder: Path, run_id: str, head: Mapping[str, Any]) -> RecordingWriter:
    """Start the recording of a simulated run."""
    writer = RecordingWriter(folder, run_id)
    provenance = {**collect_provenance(str(folder)), "git_commit": ""}
    facts = {"capture": "full", "cluster": {"class": VIRTUAL_CLUSTER}, **provenance, **head}
    writer.head(id=run_id, started=time.time(), simulated=1, **facts)
    return writer


def write_results(writer: RecordingWriter, cluster: VirtualCluster) -> None:
    """Write the results of a simulation and finish the recording."""
    import dask
    import distributed

    groups = _Groups(cluster)
    writer.segment(
        {
            **_tasks(cluster, groups),
            **_samples(cluster),
            "workers": _workers(cluster),
            "groups": groups.rows(),
            **_graph(cluster, groups),
            "fine": [],
            "reports": _reports(cluster),
            "state": {
                "t_on": EPOCH + cluster.started,
                "t_off": EPOCH + cluster.stopped,
                "n_steals": cluster.counts["steals"],
                "transitions": cluster.n_transitions,
            },
        }
    )
    shape = cluster.shape
    versions = {"dask": dask.__version__, "distributed": distributed.__version__}
    writer.tail(
        outcome="ok",
        error="",
        phase="",
        t_on=EPOCH + cluster.started,
        t_off=EPOCH + cluster.stopped,
        client_seconds=cluster.duration,
        simulation={
            "digest": cluster.digest,
            "draw": cluster.draw,
            "model": cluster.model.to_dict(),
            "scheduler_busy": cluster.loop.busy / cluster.stopped,
            "critical_path": cluster.graph.critical_path(),
        },
        cluster={
            "class": VIRTUAL_CLUSTER,
            "n_workers": shape.workers,
            "n_threads": shape.workers * shape.threads,
            "memory_limit": shape.workers * shape.memory_limit,
            "versions": {"client": versions},
        },
    )


class _Groups:
    """Sums by task group, in order of appearance."""

    def __init__(self, cluster: VirtualCluster) -> None:
        from distributed.utils import key_split_group

        self.cluster = cluster
        self.tasks = [row for row in cluster.finished if row.start >= cluster.started]
        self.number: dict[str, int] = {}
        self.name_of_key = {key: str(key_split_group(key)) for key in cluster.keys}
        for row in self.tasks:
            self.number.setdefault(self.name_of_key[row.key], len(self.number))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per group, as `benchkit.measure.capture.task_groups` does."""
        from dask.utils import key_split

        cluster = self.cluster
        rows: list[dict[str, Any]] = [
            {
                "name": name,
                "seconds": {"compute": 0.0, "transfer": 0.0},
                "nbytes": 0,
                "n_tasks": 0,
                "n_erred": 0,
                "n_retried": 0,
                "start": float("inf"),
                "stop": 0.0,
                "prefix": str(key_split(name)),
                "dependencies": set(),
                "span": "",
            }
            for name in self.number
        ]
        for task in self.tasks:
            row = rows[self.number[self.name_of_key[task.key]]]
            row["seconds"]["compute"] += task.stop - task.start
            row["seconds"]["transfer"] += sum(stop - start for start, stop, _ in task.transfers)
            row["nbytes"] += task.nbytes
            row["n_tasks"] += 1
            row["start"] = min(row["start"], EPOCH + task.start)
            row["stop"] = max(row["stop"], EPOCH + task.stop)
        for key, dependencies in zip(cluster.keys, cluster.graph.dependencies, strict=True):
            names = {self.name_of_key[cluster.keys[index]] for index in dependencies}
            if self.name_of_key[key] in self.number:
                rows[self.number[self.name_of_key[key]]]["dependencies"] |= names
        return [{**row, "dependencies": sorted(row["dependencies"])} for row in rows]


def _tasks(cluster: VirtualCluster, groups: _Groups) -> dict[str, Any]:
    threads = cluster.shape.threads
    index_of = {address: worker.index for address, worker in cluster.workers.items()}
    nodes = {key: number for number, key in enumerate(cluster.keys)}
    events: list[tuple[int, int, int, float, float]] = []
    for number, task in enumerate(groups.tasks):
        place, begin, stop = number * ROW, EPOCH + task.start, EPOCH + task.stop
        events += [
            (place, ACTIONS.index("transfer"), index_of[source], EPOCH + first, EPOCH + last)
            for first, last, source in task.transfers
        ]
        events.append((place, ACTIONS.index("compute"), -1, begin, stop))

    def column(name: str, task: FinishedTask) -> Any:
        if name == "group":
            return groups.number[groups.name_of_key[task.key]]
        if name == "thread_id":
            return task.worker * threads + task.thread
        if name in ("start", "stop"):
            return EPOCH + getattr(task, name)
        if name == "node":
            return nodes[task.key]
        return {"ok": 1, "worker": task.worker, "nbytes": task.nbytes}[name]

    return {
        "tasks": pack_columns(
            TASK_COLUMNS, ([column(name, task) for task in groups.tasks] for name in TASK_COLUMNS)
        ),
        "task_events": pack_columns(EVENT_COLUMNS, zip(*events, strict=True)),
        "keys": "".join(f"{task.key}\n" for task in groups.tasks).encode(),
    }


def _graph(cluster: VirtualCluster, groups: _Groups) -> dict[str, Any]:
    """Return the tables of the graph; a node per task, in the order of the submissions."""
    graph, columns = cluster.graph, GRAPH_COLUMNS
    place = {index: place for place, index in enumerate(graph.in_order())}
    wanted = [index for submission in graph.submissions for index in submission.wanted]
    times = [(EPOCH + begin, EPOCH + end) for begin, end in cluster.client.submitted]
    released = [
        (begin, index)
        for (begin, _), submission in zip(times, graph.submissions, strict=True)
        for index in submission.released
    ]
    first = accumulate([0, *(len(submission.tasks) for submission in graph.submissions)])
    rows = [
        (begin, NAN, NAN, end, number, len(submission.wanted), None)
        for (begin, end), number, submission in zip(times, first, graph.submissions, strict=False)
    ]
    nodes = [
        (groups.number.get(groups.name_of_key[key], -1), len(row), place[index])
        for index, (key, row) in enumerate(zip(cluster.keys, graph.dependencies, strict=True))
    ]
    return {
        "nodes": pack_columns(columns["nodes"], zip(*nodes, strict=True)),
        "submissions": pack_columns(columns["submissions"], zip(*rows, strict=True)),
        "releases": pack_columns(
            columns["releases"], list(zip(*released, strict=True)) or [(), ()]
        ),
        "dependencies": array("i", chain(*graph.dependencies)).tobytes(),
        "wanted": array("i", wanted).tobytes(),
        "producers": array("i", graph.producers).tobytes(),
    }


def _workers(cluster: VirtualCluster) -> list[dict[str, Any]]:
    return [
        {
            "worker": worker.index,
            "address": str(worker.address),
            "name": str(worker.index),
            "host": f"host-{cluster.host_of(worker.index)}",
            "nthreads": cluster.shape.threads,
            "memory_limit": cluster.shape.memory_limit,
            "joined": EPOCH - 1,
            "left": None,
        }
        for worker in cluster.workers.values()
    ]


def _samples(cluster: VirtualCluster) -> dict[str, bytes]:
    baseline = cluster.model.baseline_memory
    scheduler, workers, memory = array("d"), array("d"), array("d")
    area = [0.0] * len(cluster.workers)
    before = None
    for sample in cluster.samples.rows:
        now = EPOCH + sample.time
        busy = 0.0
        if before is not None and sample.time > before.time:
            busy = (sample.busy - before.busy) / (sample.time - before.time)
        managed = sum(worker.managed for worker in sample.workers)
        values = {
            "time": now,
            "lag_mean": sample.lag,
            "lag_max": sample.lag,
            "monitor_time": now,
            "cpu": 100 * busy,
            "n_workers": len(sample.workers),
            "n_tasks": sample.n_tasks,
            "queued": sample.queued,
            "occupancy": sample.occupancy,
            "transitions": sample.n_transitions,
            "managed": managed,
            "process": managed + baseline * len(sample.workers),
            "spilled": sum(worker.spilled for worker in sample.workers),
        }
        scheduler.extend(values.get(name, NAN) for name in SCHEDULER_COLUMNS)
        for index, worker in enumerate(sample.workers):
            rss = worker.managed + baseline
            values = {
                "time": now,
                "worker": index,
                "process": rss,
                "managed": worker.managed,
                "spilled": worker.spilled,
                "rss_peak": worker.peak + baseline,
                "executing": worker.executing,
                "ready": worker.ready,
                "in_memory": worker.in_memory,
                "transfer_incoming_total": worker.n_received,
                "process_number": index,
                "machine_number": cluster.host_of(index),
            }
            workers.extend(values.get(name, NAN) for name in SAMPLE_COLUMNS)
            if before is not None:
                average = (rss + before.workers[index].managed + baseline) / 2
                area[index] += average * (sample.time - before.time)
            row = {"time": now, "worker": index, "rss": rss, "area": area[index]}
            row["peak"] = max(rss, worker.peak - worker.spilled + baseline)
            memory.extend(row[name] for name in MEMORY_COLUMNS)
        before = sample
    return {
        "scheduler": scheduler.tobytes(),
        "samples": workers.tobytes(),
        "memory": memory.tobytes(),
    }


def _reports(cluster: VirtualCluster) -> dict[str, dict[str, Any]]:
    """Return the logs of transfers, one for each receiving worker."""
    address = {worker.index: str(name) for name, worker in cluster.workers.items()}
    reports: dict[str, dict[str, Any]] = {str(index): {"transfers": []} for index in address}
    for (source, destination), (count, nbytes, seconds) in cluster.transfers.items():
        row = [False, address[source], count, nbytes, NAN, seconds]
        reports[str(destination)]["transfers"].append(row)
    return reports
