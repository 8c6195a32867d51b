"""Read a performance report of distributed: the Bokeh document in its page.

The tabs hold a summary, the task stream, samples of the scheduler's process and call stacks. The
stream has a rectangle for each activity of a task, a stack a bar for each frame. The JSON of Bokeh
1 and 2 lists all objects side by side, that of Bokeh 3 nests them; both are read.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import key_split, parse_bytes

from benchkit.formatting import counted
from benchkit.measure.capture.columns import (
    ACTIONS,
    SCHEDULER_COLUMNS,
)
from benchkit.measure.engines.tables import Activity, Task
from benchkit.store.interchange.coiled import ImportReport
from benchkit.store.interchange.converted import (
    Converted,
    as_key,
    import_converted,
    packed_rows,
    rows_of_tasks,
    worker_row,
)
from benchkit.store.store import Store

TOOL = "performance-report"
#: The metrics that a report holds.
_METRICS = (
    "duration",
    "compute_time",
    "transfer_time",
    "disk_read_time",
    "disk_write_time",
    "n_tasks",
    "scheduler_cpu_mean",
    "scheduler_memory_peak",
)
#: Tasks in the stream of a scheduler by default (distributed.scheduler.dashboard.tasks): with as
#: many, older ones are missing.
MAX_STREAM = 100_000
#: Seconds of one sample of a profiler, as distributed assumes when it draws them.
_SAMPLE_S = 0.01
#: Color of a task that failed.
_FAILED = "black"
#: Parts of a duration as `dask.utils.format_time` writes it.
_TIME = re.compile(r"(?<![\d.])([\d.]+)\s*(us|ms|hr|d|m|s)\b")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "hr": 3600.0, "d": 86400.0}


def import_performance_report(store: Store, path: Path) -> ImportReport:
    """Add the run of a performance report to a store."""
    return import_converted(store, path, TOOL, read_report)


def read_report(page: bytes) -> Converted:
    """Return what a performance report holds of its run."""
    scripts = page.decode("utf-8", "replace").split("<script")[1:]
    found = [
        text.partition("</script>")[0]
        for head, _, text in (script.partition(">") for script in scripts)
        if 'type="application/json"' in head
    ]
    document = _Document([json.loads(html.unescape(text)) for text in found])
    summary = document.text("Summary")
    about, _, code = summary.partition("Calling Code")
    duration = about.partition("Duration:")[2].partition("<")[0].strip()
    if not duration:
        raise ValueError("it has no tab Summary with a duration")
    items = (item.partition("</li>")[0].partition(":") for item in about.split("<li>")[1:])
    facts = {name.strip(): value.strip() for name, _, value in items}
    names = {"dask": "Dask Version", "distributed": "Dask.Distributed Version"}
    n_workers, n_threads = (_whole(facts.get(name)) for name in ("Workers", "Threads"))
    memory = parse_bytes(facts["Memory"]) if facts.get("Memory") else None

    addresses: dict[str, int] = {}
    tasks = list(_tasks(document.columns("Task Stream", "worker_thread"), addresses))
    samples = _samples(document.columns("System", "cpu", "time"))
    started, stopped = _span(tasks, samples, _seconds(duration))
    source = code.partition("<pre>")[2].rpartition("</pre>")[0]
    return Converted(
        started=started,
        stopped=stopped,
        tables={
            **rows_of_tasks(tasks),
            "scheduler": packed_rows(samples, SCHEDULER_COLUMNS),
            **_profiles(document, len(addresses)),
        },
        metrics=_METRICS,
        workers=_workers(addresses, tasks, started, n_workers, n_threads, memory),
        notes=_notes(duration, len(tasks), len(addresses), n_workers),
        n_workers=n_workers,
        n_threads=n_threads,
        memory_limit=memory,
        versions={name: facts[text] for name, text in names.items() if facts.get(text)},
        error=_error(tasks),
        source=source.strip("\n"),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _seconds(text: str) -> float:
    """Return the seconds of a duration in the words of Dask.

    Examples
    --------
    >>> _seconds("12m 30s"), _seconds("1.50 s")
    (750.0, 1.5)
    """
    return sum(float(number) * _UNITS[unit] for number, unit in _TIME.findall(text))


# -- the document ---------------------------------------------------------------------------------


class _Document:
    """The objects of a Bokeh document, by tab."""

    def __init__(self, content: Any) -> None:
        self._objects = {str(item["id"]): item for item in _objects_in(content, {})}

    def _tab(self, title: str) -> Iterator[dict[str, Any]]:
        for item in self._objects.values():
            attributes = item["attributes"]
            if _kind(item) in ("Panel", "TabPanel") and attributes.get("title") == title:
                yield from _objects_in(attributes.get("child"), self._objects)

    def text(self, title: str) -> str:
        """Return the text in a tab, as HTML."""
        texts = (item["attributes"].get("text") for item in self._tab(title))
        return next((text for text in texts if isinstance(text, str)), "")

    def columns(self, title: str, *names: str) -> dict[str, list[Any]]:
        """Return the data of a tab that have these columns; empty if there are none."""
        for item in self._tab(title):
            if _kind(item) == "ColumnDataSource":
                data = item["attributes"]["data"]
                pairs = data.get("entries", ()) if data.get("type") == "map" else data.items()
                columns = {str(name): values for name, values in pairs}
                if set(names) <= columns.keys():
                    return {name: _values(values) for name, values in columns.items()}
        return {}


def _kind(item: Mapping[str, Any]) -> Any:
    return item.get("name") if item.get("type") == "object" else item.get("type")


def _objects_in(content: Any, known: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each object in a JSON value once; references are looked up in `known`."""
    stack, seen = [content], set()
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            if "id" in item and "attributes" not in item:
                item = known.get(str(item["id"]), {})
            if isinstance(item.get("attributes"), dict) and "id" in item:
                if str(item["id"]) in seen:
                    continue
                seen.add(str(item["id"]))
                yield item
            if _kind(item) != "ColumnDataSource":  # has long lists, and no objects
                stack.extend(item.values())


def _values(column: Any) -> list[Any]:
    """Return a column: a list, or an array in the JSON of Bokeh 2 or 3."""
    if isinstance(column, list):
        # Bokeh 3 writes NaN as an object.
        return [float(v["value"]) if isinstance(v, dict) else v for v in column]
    data = column["__ndarray__"] if "__ndarray__" in column else column["array"]
    if isinstance(data, list):
        return data
    text = data["data"] if isinstance(data, dict) else data
    order = "<" if column.get("order", "little") == "little" else ">"
    array = np.frombuffer(base64.b64decode(text), np.dtype(column["dtype"]).newbyteorder(order))
    values: list[Any] = array.tolist()
    return values


# -- the tables -----------------------------------------------------------------------------------


def _tasks(rects: Mapping[str, Sequence[Any]], addresses: dict[str, int]) -> Iterator[Task]:
    """Yield the tasks of a task stream with their other activities; number the workers.

    The rectangles of a task follow each other: transfers and reading, computing, then writing.
    """
    names = ("key", "worker_thread", "worker", "name", "color", "start", "duration")
    threads: dict[str, int] = {}
    task: Task | None = None
    is_computed = False
    for key, thread, worker, name, color, middle, width in zip(
        *(rects.get(column, ()) for column in names), strict=True
    ):
        begin, stop = (middle - width / 2) / 1e3, (middle + width / 2) / 1e3
        own_key, number = as_key(key), threads.setdefault(thread, len(threads))
        action = _action(str(name), own_key)
        is_new = task is None or (task.key, task.thread) != (own_key, number)
        if is_new or (is_computed and action == "compute"):
            if task is not None:
                yield task
            place = addresses.setdefault(str(worker), len(addresses))
            task, is_computed = Task(own_key, place, number, stop, stop), False
        assert task is not None
        if action == "compute":
            task.begin, task.stop, task.ok, is_computed = begin, stop, color != _FAILED, True
            continue
        task.activities.append(Activity(action, begin, stop))
        if not is_computed:  # a task that failed before it computed keeps this moment
            task.begin = task.stop = stop
    if task is not None:
        yield task


def _action(name: str, key: str) -> str:
    """Return the activity of a rectangle: its name is the prefix of the task, after the activity.

    Examples
    --------
    >>> _action("transfer-sum", "sum-1"), _action("transfer-x", "transfer-x-1")
    ('transfer', 'compute')
    """
    if name == key_split(key):
        return "compute"
    return next((action for action in ACTIONS if name.startswith(f"{action}-")), "compute")


def _samples(monitor: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the samples of the scheduler's process, by the capture's names."""
    names = ("time", "cpu", "memory")
    rows = zip(*(monitor.get(name, ()) for name in names), strict=True)
    return [
        {"time": time / 1e3, "monitor_time": time / 1e3, "cpu": cpu, "rss": rss}
        for time, cpu, rss in rows
    ]


def _span(
    tasks: Sequence[Task],
    samples: Sequence[Mapping[str, Any]],
    duration: float,
) -> tuple[float, float]:
    """Return start and end of a report.

    Each of these moments is not before the start: the first task, the first sample (the page has
    only the last 1000), and the last sample, which is taken after the end, less the duration.
    """
    first = [task.begin for task in tasks]
    first += [activity.begin for task in tasks for activity in task.activities]
    first += [row["time"] for row in samples[:1]]
    first += [row["time"] - duration for row in samples[-1:]]
    if not first:
        raise ValueError("it has neither tasks nor samples, and so no time")
    return min(first), min(first) + duration


def _workers(
    addresses: Mapping[str, int],
    tasks: Sequence[Task],
    started: float,
    n_workers: int | None,
    n_threads: int | None,
    memory: int | None,
) -> list[dict[str, Any]]:
    """Return the workers of the task stream; threads and memory are those of all, divided."""
    seen: dict[int, set[int]] = {}
    for task in tasks:
        seen.setdefault(task.worker, set()).add(task.thread)
    each = n_threads // n_workers if n_workers and n_threads and not n_threads % n_workers else 0
    limit = memory // n_workers if memory and n_workers else 0
    return [
        worker_row(index, address, started, nthreads=each or len(seen[index]), memory_limit=limit)
        for address, index in addresses.items()
    ]


def _profiles(document: _Document, n_workers: int) -> dict[str, Any]:
    """Return the call stacks of tasks, of all workers together, and those of the scheduler."""
    tasks, scheduler = (
        _stacks(document.columns(title, "line_number", "width"), root)
        for title, root in (
            ("Worker Profile (compute)", "all tasks"),
            ("Scheduler Profile (administrative)", "scheduler"),
        )
    )
    reports = {str(index): {"profile": b"" if index else tasks} for index in range(n_workers)}
    return {"reports": reports, "scheduler_profile": [scheduler] if scheduler else []}


def _stacks(bars: Mapping[str, Sequence[Any]], root: str) -> bytes:
    """Return the stacks of a flame graph as the capture sends them; a bar is below its caller."""
    samples = round(_seconds(str(bars["time"][0])) / _SAMPLE_S) if bars.get("time") else 0
    frames: dict[tuple[str, str, int], int] = {}
    nodes: list[int] = []
    path: list[int] = []  # node of each level above the bar
    names = ("bottom", "name", "filename", "line_number", "width")
    rows = zip(*(bars.get(name, ()) for name in names), strict=True)
    for number, (level, name, file, line, width) in enumerate(rows):
        frame = (str(name), str(file), int(line)) if number else (root, "", 0)
        del path[int(level) :]
        parent = path[-1] if path else -1
        path.append(number)
        nodes += [parent, frames.setdefault(frame, len(frames)), round(float(width) * samples)]
    content = {"frames": list(frames), "nodes": nodes, "cycles": []}
    return zlib.compress(json.dumps(content).encode(), 1) if samples else b""


# -- what the reader must know --------------------------------------------------------------------


def _notes(
    duration: str, n_tasks: int, n_seen: int, n_workers: int | None
) -> list[tuple[str, tuple[str, ...], str]]:
    text = (
        f"the report gives the duration as {duration!r}, and not when it began: times count from "
        "its first task or sample of the scheduler, of which there is one each 0.5 s"
    )
    notes: list[tuple[str, tuple[str, ...], str]] = [("estimated", ("duration",), text)]
    if n_tasks >= MAX_STREAM:
        text = f"the task stream has {n_tasks} tasks, all that a scheduler keeps: older are missing"
        notes.append(("cut", ("n_tasks", "compute_time", "transfer_time"), text))
    if n_workers is not None and n_workers > n_seen:
        text = f"{n_workers - n_seen} of {counted(n_workers, 'worker')} ran no task: not named"
        notes.append(("unmeasured", (), text))
    return notes


def _error(tasks: Sequence[Task]) -> str:
    n_failed = sum(not task.ok for task in tasks)
    return f"{counted(n_failed, 'task')} failed, says the task stream" if n_failed else ""
