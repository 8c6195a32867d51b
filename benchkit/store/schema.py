"""Tables of the content of a run: its groups, their variables, its metrics and its record.

All code that reads or writes runs iterates over these tables. A new metric needs a line here and a
line in `benchkit.store.build.metrics`. Defines names and units, reads no files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = [
    "ACTIVITIES",
    "COORDINATES",
    "COORDINATE_SOURCES",
    "GROUPS",
    "METRICS",
    "OUTCOMES",
    "RECORD_FIELDS",
    "RUN_FORMAT",
    "Metric",
    "Variable",
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

#: Activities that the seconds of a worker thread are split into, in the order plots stack them.
ACTIVITIES = (
    "compute",
    "transfer",
    "disk-read",
    "disk-write",
    "serialize",
    "deserialize",
    "other",
)


@dataclass(frozen=True)
class Variable:
    """A variable of a run file.

    Parameters
    ----------
    name : str
        Name within its group.
    dims : tuple of str
        Names of the dimensions.
    units : str
        Unit in the notation of UDUNITS; "1" for counts and indices, "" for texts.
    long_name : str
        Description for labels.
    source : str
        Part of Dask or of the system that reports the values.
    dtype : str, default "f8"
        NumPy type code, or "str".
    """

    name: str
    dims: tuple[str, ...]
    units: str
    long_name: str
    source: str
    dtype: str = "f8"

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of the variable in the file."""
        return {"units": self.units, "long_name": self.long_name, "source": self.source}


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
    """

    name: str
    units: str
    long_name: str
    source: str
    better: str = "lower"

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of the metric in the file."""
        return {name: text for name, text in asdict(self).items() if name != "name"}


_SPILL_SOURCE = "fine metrics, else task groups"

#: Metrics by name, in the order of tables.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("duration", "s", "wall time of the workload", "clock marks on the scheduler"),
        Metric("memory_mean", "B", "cluster process memory, mean over time", "heartbeats"),
        Metric("memory_peak", "B", "cluster process memory, highest sum", "heartbeats"),
        Metric(
            "memory_peak_worker",
            "B",
            "highest process memory of a single worker",
            "high-water mark, heartbeats, nanny's restart event",
        ),
        Metric("memory_trimmed", "B", "process memory after the run, trimmed", "malloc_trim"),
        Metric("spilled_peak", "B", "spilled bytes on disk, highest sum", "heartbeats"),
        Metric("compute_time", "s", "thread-seconds of computing", "task groups"),
        Metric("transfer_time", "s", "thread-seconds of fetching dependencies", "task groups"),
        Metric("disk_read_time", "s", "thread-seconds of reading spilled data", _SPILL_SOURCE),
        Metric("disk_write_time", "s", "thread-seconds of writing spilled data", _SPILL_SOURCE),
        Metric("serialize_time", "s", "(de)serialization and (de)compression", "fine metrics"),
        Metric("idle_time", "s", "thread-seconds without a task", "threads x time - compute_time"),
        Metric("cpu_time", "s", "CPU seconds of the workers' processes", "process CPU counters"),
        Metric("network_bytes", "B", "bytes received by the hosts of workers", "host counters"),
        Metric("disk_bytes", "B", "bytes read and written by workers", "process I/O counters"),
        Metric("scheduler_cpu_mean", "%", "CPU use of the scheduler's process", "system monitor"),
        Metric("scheduler_memory_peak", "B", "memory of the scheduler's process", "system monitor"),
        Metric("scheduler_lag_max", "s", "longest delay of the scheduler's event loop", "timer"),
        Metric("worker_tick_max", "s", "longest delay of a worker's event loop", "timer"),
        Metric("gil_contention_mean", "1", "share of time spent waiting for the GIL", "gilknocker"),
        Metric("n_tasks", "1", "tasks that ended", "scheduler transitions", ""),
        Metric("n_transfers", "1", "fetches of dependencies between workers", "heartbeats"),
        Metric("n_steals", "1", "stolen tasks", "stealing events", ""),
        Metric("n_workers_lost", "1", "lost workers", "scheduler events"),
        Metric("n_tasks_recomputed", "1", "tasks computed again after worker loss", "transitions"),
        Metric("worker_seconds", "s", "seconds of worker lifetime", "times of joining and leaving"),
        Metric("cost", "USD", "cost of the cluster during the run", "price table"),
    )
}


def _per_worker(name: str, units: str, long_name: str, source: str) -> Variable:
    return Variable(name, ("time", "worker"), units, long_name, source)


def _over_time(name: str, units: str, long_name: str, source: str) -> Variable:
    return Variable(name, ("time",), units, long_name, source)


def _per_group(name: str, units: str, long_name: str, source: str, dtype: str = "f8") -> Variable:
    return Variable(name, ("task_group",), units, long_name, source, dtype)


def _per_pair(name: str, units: str, long_name: str, source: str) -> Variable:
    return Variable(name, ("source", "destination"), units, long_name, source)


_HEARTBEAT, _MEMORY, _PROBE = "heartbeat", "WorkerState.memory", "worker probe"
_TRANSFERS, _STACKS = "workers' transfer logs", "workers' profilers"
_SPANS, _LOGS = "spans extension", "logs of scheduler, nannies and workers"

#: Variables by group of the run file. Times are seconds since the measurement started, on the
#: scheduler's clock; the root attribute `clock_on` is that start as Unix time.
GROUPS: dict[str, tuple[Variable, ...]] = {
    "workers": (
        _per_worker("process", "B", "process memory (RSS)", _MEMORY),
        _per_worker("managed", "B", "memory of task results", _MEMORY),
        _per_worker("unmanaged_old", "B", "memory outside of Dask, older than 30 s", _MEMORY),
        _per_worker("unmanaged_recent", "B", "memory outside of Dask, recent", _MEMORY),
        _per_worker("spilled", "B", "task results on disk", _MEMORY),
        _per_worker("rss_peak", "B", "highest RSS since the last sample", f"{_PROBE}: VmHWM"),
        _per_worker("cpu", "%", "CPU use of the process", _HEARTBEAT),
        _per_worker("cpu_time", "s", "CPU seconds of the process, cumulative", _PROBE),
        _per_worker("net_read", "B/s", "bytes received by the host", _HEARTBEAT),
        _per_worker("net_write", "B/s", "bytes sent by the host", _HEARTBEAT),
        _per_worker("disk_read", "B/s", "bytes read by the host's disks", _HEARTBEAT),
        _per_worker("disk_write", "B/s", "bytes written by the host's disks", _HEARTBEAT),
        _per_worker("net_read_total", "B", "bytes received by the host, cumulative", _PROBE),
        _per_worker("io_read", "B", "bytes read by the process, cumulative", _PROBE),
        _per_worker("io_write", "B", "bytes written by the process, cumulative", _PROBE),
        _per_worker("tick_max", "s", "longest event loop delay since last sample", _PROBE),
        _per_worker("gil", "1", "share of time spent waiting for the GIL", _HEARTBEAT),
        _per_worker("executing", "1", "tasks executing", _HEARTBEAT),
        _per_worker("ready", "1", "tasks ready to run", _HEARTBEAT),
        _per_worker("in_memory", "1", "task results held in memory or on disk", _HEARTBEAT),
        _per_worker("num_fds", "1", "open file descriptors", _HEARTBEAT),
        _per_worker("transfer_incoming_bytes", "B", "bytes being fetched", _HEARTBEAT),
        _per_worker("transfer_incoming_count", "1", "active fetches", _HEARTBEAT),
        _per_worker("transfer_incoming_total", "1", "fetches, cumulative", _HEARTBEAT),
        _per_worker("transfer_outgoing_bytes", "B", "bytes being sent", _HEARTBEAT),
        _per_worker("transfer_outgoing_count", "1", "active sends", _HEARTBEAT),
        _per_worker("bandwidth", "B/s", "measured bandwidth", _HEARTBEAT),
        _per_worker("time_delay", "s", "scheduler's clock minus the worker's", "WorkerState"),
        Variable("trimmed", ("worker",), "B", "RSS after the run, trimmed", "malloc_trim"),
    ),
    "scheduler": (
        _over_time("lag_mean", "s", "mean event loop delay since last sample", "timer"),
        _over_time("lag_max", "s", "longest event loop delay since last sample", "timer"),
        _over_time("cpu", "%", "CPU use of the scheduler's process", "system monitor"),
        _over_time("rss", "B", "memory of the scheduler's process", "system monitor"),
        _over_time("n_workers", "1", "connected workers", "Scheduler.workers"),
        _over_time("n_tasks", "1", "tasks on the scheduler", "Scheduler.tasks"),
        _over_time("queued", "1", "queued tasks", "Scheduler.queued"),
        _over_time("unrunnable", "1", "tasks that no worker can run", "Scheduler.unrunnable"),
        _over_time("occupancy", "s", "work assigned to workers", "Scheduler.total_occupancy"),
        _over_time("transitions", "1", "task transitions since clock on", "transition counter"),
        _over_time("process", "B", "process memory of all workers", _MEMORY),
        _over_time("managed", "B", "memory of task results", _MEMORY),
        _over_time("unmanaged_old", "B", "memory outside of Dask, older than 30 s", _MEMORY),
        _over_time("unmanaged_recent", "B", "memory outside of Dask, recent", _MEMORY),
        _over_time("spilled", "B", "task results on disk", _MEMORY),
    ),
    "task_groups": (
        Variable(
            "seconds",
            ("task_group", "action"),
            "s",
            "thread-seconds by activity",
            "TaskGroup.all_durations; (de)serialize: fine metrics",
        ),
        _per_group("nbytes", "B", "size of the task results", "TaskGroup", "i8"),
        _per_group("n_tasks", "1", "tasks that ended", "transitions", "i8"),
        _per_group("n_erred", "1", "tasks that ended in an error", "transitions", "i8"),
        _per_group("n_retried", "1", "repeated attempts", "transitions", "i8"),
        _per_group("start", "s", "first start of a task", "TaskGroup"),
        _per_group("stop", "s", "last end of a task", "TaskGroup"),
        _per_group("prefix", "", "prefix of the task group", "TaskGroup", "str"),
        _per_group("dependencies", "", "names of the dependencies, JSON list", "TaskGroup", "str"),
        _per_group("span", "", "span of the group", "TaskGroup", "str"),
    ),
    "fine": (
        Variable("value", ("metric",), "see coordinate unit", "fine performance metric", "workers"),
    ),
    "tasks": (
        Variable("group", ("task",), "1", "index into task_groups", "transition", "i4"),
        Variable("worker", ("task",), "1", "index into workers, -1 unknown", "transition", "i4"),
        Variable("thread", ("task",), "1", "number of the thread in the run", "transition", "i4"),
        Variable("ok", ("task",), "1", "1 finished, 0 failed", "transition", "i1"),
        Variable("nbytes", ("task",), "B", "size of the result, -1 unknown", "transition", "i8"),
        Variable("start", ("task",), "s", "start of computation", "startstops"),
        Variable("duration", ("task",), "s", "duration of computation", "startstops"),
        Variable("key_blob", ("byte",), "", "keys: zlib-compressed lines", "transition", "u1"),
    ),
    "task_events": (
        Variable("task", ("event",), "1", "index into tasks", "startstops", "i4"),
        Variable("action", ("event",), "1", "index into attribute `actions`", "startstops", "i1"),
        Variable("source", ("event",), "1", "sending worker, -1 none", "startstops", "i4"),
        Variable("start", ("event",), "s", "start", "startstops"),
        Variable("stop", ("event",), "s", "end", "startstops"),
    ),
    "events": (
        Variable("time", ("event",), "s", "time on the scheduler", "log_event, tasks"),
        Variable("topic", ("event",), "", "kind of event", "log_event, tasks", "str"),
        Variable("worker", ("event",), "1", "index into workers, -1 none", "log_event", "i4"),
        Variable("message", ("event",), "", "content of the event, JSON", "log_event", "str"),
    ),
    "errors": (
        Variable("time", ("error",), "s", "time of the error", "transition"),
        Variable("key", ("error",), "", "task key", "transition", "str"),
        Variable("worker", ("error",), "1", "index into workers, -1 unknown", "transition", "i4"),
        Variable("exception", ("error",), "", "text of the exception", "transition", "str"),
        Variable("traceback", ("error",), "", "last 4 kB of the traceback", "transition", "str"),
    ),
    "transfers": (
        _per_pair("count", "1", "fetches of task results", _TRANSFERS),
        _per_pair("bytes", "B", "size of the fetched results", _TRANSFERS),
        _per_pair("bytes_compressed", "B", "compressed bytes, counted by the sender", _TRANSFERS),
        _per_pair("seconds", "s", "sum of the durations of the fetches", _TRANSFERS),
    ),
    "profile": (
        Variable("parent", ("frame",), "1", "index of the calling frame, -1 root", _STACKS, "i4"),
        Variable("code", ("frame",), "1", "index of a line of code_blob", _STACKS, "i4"),
        Variable("count", ("frame",), "1", "samples, including called frames", _STACKS, "i8"),
        Variable("code_blob", ("byte",), "", "code: zlib-compressed lines", _STACKS, "u1"),
    ),
    "spans": (
        Variable("id", ("span",), "", "id, as in task_groups", _SPANS, "str"),
        Variable("name", ("span",), "", "tags, outermost first, joined by /", _SPANS, "str"),
        Variable("parent", ("span",), "", "id of the enclosing span", _SPANS, "str"),
        Variable("enqueued", ("span",), "s", "time of submission to the scheduler", _SPANS),
        Variable("start", ("span",), "s", "first start of a task", _SPANS),
        Variable("stop", ("span",), "s", "last end of a task", _SPANS),
        Variable("active_cpu_seconds", ("span",), "s", "available thread-seconds", _SPANS),
    ),
    "logs": (
        Variable("time", ("line",), "s", "time of the log message", _LOGS),
        Variable("level", ("line",), "", "WARNING, ERROR or CRITICAL", _LOGS, "str"),
        Variable("text", ("line",), "", "last 4 kB of the message", _LOGS, "str"),
        Variable("server", ("line",), "", "scheduler, nanny or worker", _LOGS, "str"),
        Variable("worker", ("line",), "1", "index into workers, -1 none", _LOGS, "i4"),
    ),
}

#: Coordinates by dimension: (name, dtype, units, long_name). `time` has no entry of its own dim.
COORDINATES: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "time": (("time", "f8", "s", "time after clock on, scheduler's clock"),),
    "worker": (
        ("address", "str", "", "address; a restarted worker has a new entry"),
        ("name", "str", "", "name"),
        ("host", "str", "", "host"),
        ("nthreads", "i4", "1", "number of threads"),
        ("memory_limit", "i8", "B", "memory limit, 0 none"),
        ("joined", "f8", "s", "time of joining; negative: before clock on"),
        ("left", "f8", "s", "time of leaving; NaN: stayed until the end"),
    ),
    "task_group": (("task_group", "str", "", "name of the task group"),),
    "action": (("action", "str", "", "activity"),),
    "source": (("source", "i4", "1", "index into workers of the sender"),),
    "destination": (("destination", "i4", "1", "index into workers of the receiver, -1: client"),),
    "metric": (
        ("context", "str", "", "execute, get-data, gather-dep, p2p, memory-monitor, ..."),
        ("prefix", "str", "", "task prefix; for P2P the place of the activity; or empty"),
        ("activity", "str", "", "activity"),
        ("unit", "str", "", "unit of the value"),
        ("span", "str", "", "id of the span, as in spans; empty: no span or no task"),
    ),
}

#: Source of the coordinates of a dimension.
COORDINATE_SOURCES = {
    "time": "scheduler's clock",
    "worker": "WorkerState",
    "task_group": "TaskGroup",
    "action": "TaskGroup",
    "source": "workers",
    "destination": "workers",
    "metric": "workers",
}

#: The record: one flat JSON object per run, the row of the store's index. Name -> dtype, where
#: `json` is a string that holds JSON. Every metric is a field too (float64, missing if unknown).
RECORD_FIELDS: dict[str, str] = {
    "id": "str",
    "workload": "str",  # the variant's full name: the key of rows, series and issues
    "category": "str",
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
}
