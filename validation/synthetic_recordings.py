"""Synthetic recordings, simple enough that the expected results can be computed by hand.

Two workers on one host, with one and two threads; the clock runs from 1000 to 1010 s.
"""

import json
import zlib
from array import array
from pathlib import Path
from typing import Any

from benchkit.measure.capture.columns import (
    ACTIONS,
    EVENT_COLUMNS,
    GRAPH_COLUMNS,
    MEMORY_COLUMNS,
    SAMPLE_COLUMNS,
    SCHEDULER_COLUMNS,
    TASK_COLUMNS,
)
from benchkit.measure.recording import RecordingWriter
from benchkit.measure.run_ids import new_id

ON, OFF = 1000.0, 1010.0
NAN = float("nan")
MB = 10**6


def worker(index: int, **facts: Any) -> dict[str, Any]:
    """Return the facts that the capture records about a worker."""
    return {
        "worker": index,
        "address": f"tcp://10.0.0.1:{index}",
        "name": str(index),
        "host": "10.0.0.1",
        "nthreads": 1,
        "memory_limit": 1000 * MB,
        "joined": ON - 5,
        "left": None,
        **facts,
    }


def group(name: str, **facts: Any) -> dict[str, Any]:
    """Return a row of task groups."""
    return {
        "name": name,
        "seconds": {},
        "nbytes": 0,
        "n_tasks": 0,
        "n_erred": 0,
        "n_retried": 0,
        "start": ON + 1,
        "stop": ON + 9,
        "prefix": name,
        "dependencies": [],
        "span": "",
        **facts,
    }


def rows(columns: Any, *entries: dict[str, Any]) -> bytes:
    """Return float64 rows; columns that an entry omits are NaN."""
    return array("d", [entry.get(name, NAN) for entry in entries for name in columns]).tobytes()


def table(columns: dict[str, str], *entries: dict[str, Any]) -> dict[str, bytes]:
    """Return typed columns; columns that an entry omits are 0."""
    return {
        name: array(code, [entry.get(name, 0) for entry in entries]).tobytes()
        for name, code in columns.items()
    }


def segment(
    *,
    samples: Any = (),
    scheduler: Any = (),
    memory: Any = (),
    tasks: Any = (),
    keys: Any = (),
    task_events: Any = (),
    workers: Any = None,
    state: Any = None,
    **tables: Any,
) -> dict[str, Any]:
    """Return one drained segment."""
    events = [{**each, "action": ACTIONS.index(each["action"])} for each in task_events]
    return {
        "samples": rows(SAMPLE_COLUMNS, *samples),
        "scheduler": rows(SCHEDULER_COLUMNS, *scheduler),
        "memory": rows(MEMORY_COLUMNS, *memory),
        "tasks": table(TASK_COLUMNS, *tasks),
        "keys": "".join(f"{key}\n" for key in keys).encode(),
        "task_events": table(EVENT_COLUMNS, *events),
        "workers": [worker(0), worker(1, nthreads=2)] if workers is None else workers,
        "state": {"t_on": ON, "t_off": OFF, "now": OFF + 1, "n_dropped": 0, **(state or {})},
        "events": [],
        "task_errors": [],
        "groups": [],
        "fine": [],
        **tables,
    }


def graph(*nodes: tuple[int, tuple[int, ...]], wanted: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return tables of one submission; a node is its group and its dependencies."""
    dependencies = [dependency for _, before in nodes for dependency in before]
    rows = [
        {"group": group, "n_dependencies": len(before), "order": place}
        for place, (group, before) in enumerate(nodes)
    ]
    times = {"received": ON + 1, "materialized": ON + 1.2, "ordered": ON + 1.3, "started": ON + 1.4}
    return {
        "nodes": table(GRAPH_COLUMNS["nodes"], *rows),
        "dependencies": array("i", dependencies).tobytes(),
        "submissions": table(GRAPH_COLUMNS["submissions"], {**times, "n_wanted": len(wanted)}),
        "wanted": array("i", wanted).tobytes(),
        "releases": table(GRAPH_COLUMNS["releases"], *({"time": OFF, "node": n} for n in wanted)),
        "producers": array("i", [0]).tobytes(),
        "node_options": [(0, '{"retries": 1}')],
    }


def stacks(frames: list, nodes: list[int]) -> bytes:
    """Return call stacks in the format in which workers send them, all of one cycle."""
    parents, counts = nodes[::3], nodes[2::3]
    innermost = list(counts)
    for parent, count in zip(parents, counts, strict=True):
        if parent >= 0:
            innermost[parent] -= count
    entries = [value for pair in enumerate(innermost) if pair[1] for value in pair]
    content = {"frames": frames, "nodes": nodes, "cycles": [[ON, ON + 1, entries]]}
    return zlib.compress(json.dumps(content).encode())


def record(
    folder: Path,
    *segments: dict[str, Any],
    killed: bool = False,
    capture: str = "full",
    **tail: Any,
) -> Path:
    """Write a recording and return its path."""
    writer = RecordingWriter(folder, new_id())
    writer.head(
        id=writer.path.name.partition(".")[0],
        started=ON - 10,
        workload="t.made[size=1]",
        category="t",
        params={"size": 1},
        capture=capture,
    )
    for each in segments:
        writer.segment(each)
    if not killed:
        writer.tail(**{"outcome": "ok", "error": "", "t_on": ON, "t_off": OFF, **tail})
    return writer.path
