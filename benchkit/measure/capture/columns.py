"""The columns of a capture's tables, and the conversion of values to numbers and text."""

from __future__ import annotations

from struct import error, pack
from typing import Any

NAN = float("nan")
#: Characters of a text that are kept, such as an error with a value in it.
TEXT_CHARS = 4096
ACTIONS = ("compute", "transfer", "disk-read", "disk-write", "deserialize", "other")

#: Number of values per task in the stream's flat list. The `place` of an event is the index in that
#: list of its task's first value.
ROW = 8
#: Columns of the stream with the type codes of `struct`; `node` is the number in the graph. Values
#: derived from them (number of a thread, duration, task of an event) are computed by the reader:
#: the scheduler is busy.
TASK_COLUMNS = {
    "group": "i",
    "worker": "i",
    "thread_id": "q",
    "ok": "b",
    "nbytes": "q",
    "start": "d",
    "stop": "d",
    "node": "i",
}
#: The submitted graphs: a row per task, per graph, and per result that a client released.
GRAPH_COLUMNS = {
    "nodes": {"group": "i", "n_dependencies": "i", "order": "i"},
    "submissions": {
        "received": "d",
        "materialized": "d",
        "ordered": "d",
        "started": "d",
        "first_node": "i",
        "n_wanted": "i",
        "nbytes": "q",
    },
    "releases": {"time": "d", "node": "i"},
}
EVENT_COLUMNS = {"place": "q", "action": "b", "source": "i", "start": "d", "stop": "d"}

#: Values of `process.Processors`.
PROCESSORS = ("cpu_pressure", "cpu_throttled", "cpu_limit")
_MEMORY = ("process", "managed", "unmanaged_old", "unmanaged_recent", "spilled")
#: Column -> path of its value, from a worker's `state`, its `memory`, its last `beat` (metrics of
#: the heartbeat), the `probe` (values of the worker plugin) or the `counts` of its tasks by state.
_WORKER_PATHS = {
    **{name: f"memory {name}" for name in _MEMORY},
    **{
        name: f"probe {name}"
        for name in (
            "rss_peak",
            "cpu_time",
            "children_cpu_time",
            "machine_cpu_time",
            "net_read_total",
            "loopback_total",
            "io_read",
            "io_write",
            "tick_max",
            "gc_time",
            "gc_max",
            "process_number",
            "machine_number",
            "failed_time",
            "gil_time",
            "clock_step",
            *PROCESSORS,
        )
    },
    "monitor_time": "beat time",
    "cpu": "beat cpu",
    "net_read": "beat host_net_io read_bps",
    "net_write": "beat host_net_io write_bps",
    "disk_read": "beat host_disk_io read_bps",
    "disk_write": "beat host_disk_io write_bps",
    "gil": "beat gil_contention",
    "num_fds": "beat num_fds",
    "executing": "counts executing",
    "ready": "counts ready",
    "in_memory": "counts memory",
    "transfer_incoming_bytes": "beat transfer incoming_bytes",
    "transfer_incoming_count": "beat transfer incoming_count",
    "transfer_incoming_total": "beat transfer incoming_count_total",
    "transfer_outgoing_total": "beat transfer outgoing_count_total",
    "transfer_outgoing_bytes": "beat transfer outgoing_bytes",
    "transfer_outgoing_count": "beat transfer outgoing_count",
    "bandwidth": "beat bandwidth total",
    "gpu_utilization": "beat gpu_utilization",
    "gpu_memory_used": "beat gpu_memory_used",
    "time_delay": "state time_delay",
    "paused": "status paused",
}
#: The same for the `scheduler`: its `memory`, system `monitor`, `sizes` of tables, loop `lag`.
_SCHEDULER_PATHS = {
    "lag_mean": "lag mean",
    "lag_max": "lag max",
    "monitor_time": "monitor time",
    "cpu": "monitor cpu",
    "rss": "monitor memory",
    "n_workers": "sizes workers",
    "n_tasks": "sizes tasks",
    "queued": "sizes queued",
    "unrunnable": "sizes unrunnable",
    "occupancy": "scheduler total_occupancy",
    "transitions": "sizes transitions",
    "gc_time": "gc total",
    "gc_max": "gc max",
    **{name: f"memory {name}" for name in _MEMORY},
    **{name: f"own {name}" for name in ("cpu_time", "loop_cpu_time", *PROCESSORS)},
    "n_paused": "sizes paused",
    "restricted": "sizes restricted",
}
SAMPLE_COLUMNS = ("time", "worker", *_WORKER_PATHS)
#: Samples of each worker's process, made by the worker between two heartbeats.
MEMORY_COLUMNS = ("time", "worker", "rss", "area", "peak")
#: Bytes of results by task group and worker, in memory and spilled, as the scheduler counts them;
#: worker -1: all workers together.
HELD_COLUMNS = ("time", "group", "worker", "nbytes")
#: Seconds that a thread ran and waited for a processor, cumulative. `server`: index of a worker,
#: SCHEDULER or CLIENT; `role`: LOOP, TASK or MAIN; `ident`: Python's number of the thread.
THREAD_COLUMNS = ("time", "server", "role", "ident", "native_id", "ran", "waited")
SCHEDULER, CLIENT = -1, -2
LOOP, TASK, MAIN = 0, 1, 2
#: Samples of the client's process; `rss_area` is the integral of RSS over time.
CLIENT_COLUMNS = (
    "time",
    "rss",
    "rss_area",
    "rss_peak",
    "cpu_time",
    "lag_mean",
    "lag_max",
    *PROCESSORS,
)
SCHEDULER_COLUMNS = ("time", *_SCHEDULER_PATHS)
SAMPLE_PATHS = [tuple(path.split()) for path in _WORKER_PATHS.values()]
SCHEDULER_PATHS = [tuple(path.split()) for path in _SCHEDULER_PATHS.values()]


def look_up(source: Any, path: tuple[str, ...]) -> float:
    """Follow a path of items and attributes to a number."""
    # returned: NaN if a name does not exist in this release of distributed, or the value is no
    # number.
    try:
        for step in path:
            source = source[step] if type(source) is dict else getattr(source, step)
        return float(source)
    except (AttributeError, KeyError, TypeError, ValueError):
        return NAN


def pack_columns(codes: dict[str, str], columns: Any) -> dict[str, bytes]:
    """Convert columns of numbers to bytes.

    Takes a third of the time of ``array(code, values).tobytes()``.
    """
    out = {}
    for (name, code), values in zip(codes.items(), columns, strict=True):
        try:
            out[name] = pack(f"{len(values)}{code}", *values)
        except error:
            converted = (-1 if value is None else int(value) for value in values)
            out[name] = pack(f"{len(values)}{code}", *converted)
    return out


def text(value: Any, limit: int = TEXT_CHARS) -> str:
    """Convert a value to text that UTF-8 can encode."""
    return str(value)[-limit:].encode("utf-8", "backslashreplace").decode()
