"""Tables of the content of a run: its groups, their variables, its metrics and its record.

All code that reads or writes runs iterates over these tables. A new metric needs a line here and a
line in `benchkit.store.build.metrics`. Defines names and units, reads no files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

__all__ = [
    "METRICS",
    "OUTCOMES",
    "RECORD_FIELDS",
    "RUN_FORMAT",
    "Metric",
]

#: Version of the run file; increased by a change that an older reader would misread.
RUN_FORMAT = 1

#: How a run can end. Only `ok` feeds statistics.
OUTCOMES = (
    "ok",
    "wrong_answer",
    "failed",
    "timeout",
    "lost_workers",
    "infrastructure",
    "skipped",
)


@dataclass(frozen=True)
class Metric:
    """A number that describes a run.

    Parameters
    ----------
    name : str
        Name of the metric.
    units : str
        Unit: s, B, %, USD, or "1" for counts and shares.
    long_name : str
        Description for labels.
    source : str
        Data from which the metric is computed.
    better : {"lower", "higher", ""}, default "lower"
        Direction of an improvement; "" if there is none.
    version : int, default 1
        Version of the definition; values of different versions are not compared.
    """

    name: str
    units: str
    long_name: str
    source: str
    better: str = "lower"
    version: int = 1

    @property
    def attrs(self) -> dict[str, str | int]:
        """Attributes of the metric in the file."""
        return {name: text for name, text in asdict(self).items() if name != "name"}


#: Metrics whose definition changed: workers of one process count once, memory is sampled by the
#: worker, attempts that failed and waits of seceded tasks are not computing, spilling is read from
#: the fine metrics, and CPU and GIL are weighted by time.
_VERSIONS = dict.fromkeys(
    (
        "memory_mean",
        "memory_peak",
        "memory_trimmed",
        "compute_time",
        "disk_read_time",
        "disk_write_time",
        "idle_time",
        "cpu_time",
        "network_bytes",
        "disk_bytes",
        "scheduler_cpu_mean",
        "gil_contention_mean",
        "n_workers_lost",
    ),
    2,
)
_SPILL_SOURCE = "fine metrics, else task groups"
_IDLE_SOURCE = "threads x time - compute_time - failed_time"

#: Metrics by name, in the order of tables.
METRICS: dict[str, Metric] = {
    metric.name: replace(metric, version=_VERSIONS.get(metric.name, 1))
    for metric in (
        Metric("duration", "s", "wall time of the workload", "clock marks on the scheduler"),
        Metric("memory_mean", "B", "cluster process memory, mean over time", "process samples"),
        Metric(
            "memory_peak",
            "B",
            "cluster process memory, highest sum",
            "process samples, high-water marks",
        ),
        Metric(
            "memory_peak_bound",
            "B",
            "upper bound of memory_peak",
            "high-water marks of all processes",
            "",
        ),
        Metric(
            "memory_peak_worker",
            "B",
            "highest process memory of a single worker",
            "high-water mark, heartbeats, nanny's restart event",
        ),
        Metric("memory_trimmed", "B", "process memory after the run, trimmed", "malloc_trim"),
        Metric("spilled_peak", "B", "spilled bytes on disk, highest sum", "heartbeats"),
        Metric("compute_time", "s", "thread-seconds of computing", "task groups"),
        Metric("seceded_time", "s", "seconds that seceded tasks waited", "task stream"),
        Metric("failed_time", "s", "thread-seconds of failed attempts", "fine metrics"),
        Metric("transfer_time", "s", "sum of the durations of fetches", "task groups"),
        Metric("disk_read_time", "s", "thread-seconds of reading spilled data", _SPILL_SOURCE),
        Metric("disk_write_time", "s", "thread-seconds of writing spilled data", _SPILL_SOURCE),
        Metric("serialize_time", "s", "(de)serialization and (de)compression", "fine metrics"),
        Metric("idle_time", "s", "thread-seconds without a task", _IDLE_SOURCE),
        Metric("cpu_time", "s", "CPU seconds of the workers' processes", "process CPU counters"),
        Metric(
            "network_bytes",
            "B",
            "bytes received by the workers' machines, other processes included",
            "network interfaces",
        ),
        Metric("disk_bytes", "B", "bytes read and written by workers", "process I/O counters"),
        Metric("scheduler_cpu_mean", "%", "CPU use of the scheduler's process", "system monitor"),
        Metric("scheduler_memory_peak", "B", "memory of the scheduler's process", "system monitor"),
        Metric("scheduler_lag_max", "s", "longest delay of the scheduler's event loop", "timer"),
        Metric("worker_tick_max", "s", "longest delay of a worker's event loop", "timer"),
        Metric("gil_contention_mean", "1", "share of time spent waiting for the GIL", "gilknocker"),
        Metric("n_tasks", "1", "tasks that ended", "scheduler transitions", ""),
        Metric("n_transfers", "1", "fetches of dependencies between workers", "heartbeats"),
        Metric("transfer_bytes", "B", "bytes of dependencies fetched by workers", "transfer logs"),
        Metric("p2p_bytes", "B", "bytes sent by P2P shuffles", "fine metrics"),
        Metric("n_steals", "1", "stolen tasks", "stealing events", ""),
        Metric("n_workers_lost", "1", "lost workers", "scheduler events"),
        Metric("n_tasks_recomputed", "1", "tasks computed again after worker loss", "transitions"),
        Metric("worker_seconds", "s", "seconds of worker lifetime", "times of joining and leaving"),
        Metric("cost", "USD", "cost of the cluster during the run", "price table"),
    )
}


#: The record: one flat JSON object per run, the row of the store's index. Name -> dtype, where
#: `json` is a string that holds JSON. Every metric is a field too (float64, missing if unknown).
RECORD_FIELDS: dict[str, str] = {
    "id": "str",
    "workload": "str",  # the variant's full name: the key of rows, series and issues
    "category": "str",
    "owner": "str",  # person or team that should look at a regression
    "params": "json",
    "version": "int",
    "source_hash": "str",
    "environment": "str",
    "experiment": "str",
    "arm": "str",
    "block": "int",
    "order": "int",
    "tags": "json",
    "started": "time",  # UTC, microseconds
    "outcome": "str",
    "error": "str",  # one line
    "phase": "str",  # step in which the run ended: open, prepare, warm-up, workload, check, ...
    "capture": "str",
    "scale": "float",
    "seed": "int",
    "host": "str",
    "git_commit": "str",
    "cluster": "str",  # dotted name of the class, or the address
    "n_workers": "int",
    "n_threads": "int",
    "memory_limit": "int",  # B, all workers together
    "python": "str",
    "dask": "str",
    "distributed": "str",
    "biggest_group": "str",  # task group with the most thread-seconds
    "biggest_group_share": "float",  # of all busy thread-seconds
    "packages_hash": "str",
    "extra_metrics": "json",
    "metric_versions": "json",  # name -> version of its definition, where that is not 1
    "quality": "json",  # name of a metric -> kinds of its limits, see `Run.quality`
}
