"""The groups of a run file: names, dimensions and units of their variables and coordinates."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ACTIVITIES", "COORDINATES", "COORDINATE_SOURCES", "GROUPS", "Variable"]

#: Activities that the seconds of a worker thread are split into, in the order plots stack them.
#: "failed": attempts that ended in an error; "seceded": the wait of tasks that left their thread.
ACTIVITIES = (
    "compute",
    "transfer",
    "disk-read",
    "disk-write",
    "serialize",
    "deserialize",
    "failed",
    "seceded",
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
        _per_worker("net_read_total", "B", "bytes received by the machine, cumulative", _PROBE),
        _per_worker("loopback_total", "B", "bytes within the machine, cumulative", _PROBE),
        _per_worker("children_cpu_time", "s", "CPU seconds of ended subprocesses", _PROBE),
        _per_worker("machine_cpu_time", "s", "CPU seconds of the machine at the edges", _PROBE),
        _per_worker("monitor_time", "s", "end of the interval of cpu and gil", _HEARTBEAT),
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
        Variable("process_id", ("worker",), "1", "number of the process", _PROBE, "i4"),
        Variable("machine_id", ("worker",), "1", "number of the machine", _PROBE, "i4"),
    ),
    "memory_samples": (
        Variable("time", ("sample",), "s", "time of the sample", _PROBE),
        Variable("worker", ("sample",), "1", "index into workers", _PROBE, "i4"),
        Variable("rss", ("sample",), "B", "process memory (RSS)", _PROBE),
        Variable("area", ("sample",), "B s", "integral of RSS over time", _PROBE),
        Variable("peak", ("sample",), "B", "highest RSS since the last peak", f"{_PROBE}: VmHWM"),
    ),
    "scheduler": (
        _over_time("monitor_time", "s", "end of the interval of cpu", "system monitor"),
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
