"""Read a cluster dump of distributed (`Client.dump_cluster_state`, as msgpack or YAML).

A dump is the state of a scheduler and its workers at one moment, with logs of the past. The tasks
come from the transitions in the logs of workers, which keep the newest only; sums by task group are
the scheduler's own. Dumps of old releases have no task groups: their sums are those of the logs.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import msgpack
import yaml
from dask.utils import key_split

from benchkit.formatting import counted
from benchkit.measure.capture.cluster_events import MAX_ERRORS
from benchkit.measure.capture.columns import NAN, SAMPLE_COLUMNS, SAMPLE_PATHS, look_up
from benchkit.measure.capture.columns import text as short_text
from benchkit.measure.capture.task_groups import row_of
from benchkit.measure.capture.worker_log import IGNORED_LEVELS, INCOMING, MAX_LOG_LINES
from benchkit.measure.engines.tables import Task, free_thread
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

TOOL = "cluster-dump"
#: Metrics that the sums by task group hold.
_METRICS = ("compute_time", "transfer_time", "disk_read_time", "disk_write_time", "n_tasks")
#: Bytes of an unpacked dump. A file of 2 MB can hold gigabytes of zeros.
MAX_BYTES = 2**31
_GZIP = b"\x1f\x8b"
#: States of a task on the scheduler that was computed, or will not be.
_ENDED = ("memory", "released", "forgotten", "erred")
#: Items of a transition in the log of a worker: key, state before, recommended state, state after,
#: further recommendations, stimulus, time. Other entries are shorter.
_TRANSITION_ITEMS = 7


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads tuples as lists; dumps of some releases have them."""


_Loader.add_constructor("tag:yaml.org,2002:python/tuple", lambda loader, node: list(
    loader.construct_sequence(node, deep=True)))  # fmt: skip


def import_cluster_dump(store: Store, path: Path) -> ImportReport:
    """Add the run of a cluster dump to a store."""
    is_yaml = path.suffix in (".yaml", ".yml")
    return import_converted(store, path, TOOL, lambda data: read_dump(_load(data, is_yaml)))


def _load(data: bytes, is_yaml: bool) -> Any:
    try:
        if data[:2] == _GZIP:
            with gzip.GzipFile(fileobj=BytesIO(data)) as file:
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES // 2**30} GiB unpacked")
        if is_yaml:
            return yaml.load(data, Loader=_Loader)
        # Lists as tuples, which may be keys of tasks; numbers may be names of workers.
        return msgpack.unpackb(data, use_list=False, strict_map_key=False)
    except (EOFError, OSError, zlib.error, yaml.YAMLError) as error:
        raise ValueError(str(error)) from error


def read_dump(dump: Any) -> Converted:
    """Return what a cluster dump holds of its run."""
    if not (isinstance(dump, dict) and {"scheduler", "workers"} <= dump.keys()):
        raise ValueError("it has no scheduler and workers")
    scheduler = dump["scheduler"]
    states: dict[str, Mapping[str, Any]] = scheduler["workers"]
    addresses = {address: index for index, address in enumerate(states)}
    # Workers that did not answer are a text: the error.
    reports = {addresses[address]: report for address, report in dump["workers"].items()
               if address in addresses and isinstance(report, dict)}  # fmt: skip

    delays = [float(state.get("time_delay") or 0.0) for state in states.values()]
    tasks = [task for index, report in reports.items()
             for task in _executions(index, report.get("log") or (), delays[index])]  # fmt: skip
    known = [
        _group_row(name, group) for name, group in (scheduler.get("task_groups") or {}).items()
    ]
    seen = [float(state["last_seen"]) for state in states.values() if state.get("last_seen")]
    starts = [*(task.begin for task in tasks), *(row["start"] for row in known)]
    starts = [moment for moment in starts if moment == moment]  # NaN: nothing was computed
    stops = [*seen, *(task.stop for task in tasks)]
    if not starts or not stops:
        raise ValueError("no task was computed, so it has no time")
    started = min(starts)

    tables = rows_of_tasks(tasks)
    tables["groups"] = _all_groups(tables["groups"], known)
    counts = Counter(str(task["state"]) for task in scheduler["tasks"].values())
    errors = list(_errors(scheduler, addresses))
    return Converted(
        started=started,
        stopped=max(stops),
        tables={
            **tables,
            "group_names": [row["name"] for row in tables["groups"]],
            "samples": packed_rows(map(_sample, addresses.values(), states.values()),
                                   SAMPLE_COLUMNS),
            "told": [[index, _report(report)] for index, report in reports.items()],
            "task_errors": errors[:MAX_ERRORS],
        },
        metrics=_METRICS if known else (),
        workers=[
            worker_row(
                addresses[address],
                address,
                started,
                name=str(state.get("name")),
                host=str(state.get("host")),
                nthreads=state.get("nthreads") or 0,
                memory_limit=state.get("memory_limit") or 0,
            )
            for address, state in states.items()
        ],
        notes=_notes(len(states) - len(reports), has_groups=bool(known), counts=counts),
        n_workers=len(states),
        n_threads=sum(state.get("nthreads") or 0 for state in states.values()),
        memory_limit=sum(state.get("memory_limit") or 0 for state in states.values()),
        versions=_versions(dump.get("versions") or {}),
        error=_error(errors, counts),
    )  # fmt: skip


# -- the tables -----------------------------------------------------------------------------------


def _executions(worker: int, log: Any, ahead: float) -> Iterator[Task]:
    """Yield the tasks that a worker computed, from the transitions in its log."""
    begins: dict[str, float] = {}
    spans: list[tuple[float, float, str, bool]] = []
    for entry in log:
        if len(entry) != _TRANSITION_ITEMS:
            continue
        key, before, _, after, _, _, moment = entry
        key, moment = as_key(key), float(moment) + ahead
        if after == "executing":
            begins[key] = moment
        elif before in ("executing", "long-running") and after in ("memory", "error"):
            if key in begins:  # else it began before the oldest entry
                spans.append((begins.pop(key), moment, key, after == "memory"))
    ends: list[float] = []
    for begin, stop, key, ok in sorted(spans):
        yield Task(key, worker, free_thread(ends, begin, stop), begin, stop, ok=ok)


def _group_row(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a task group; dependencies are texts: ``<sum-1: memory: 2>``."""
    states = group["states"]
    n_ended = sum(states.get(state) or 0 for state in _ENDED)
    durations = {str(action): float(value) for action, value in group["all_durations"].items()}
    row = row_of(name, durations, [n_ended, states.get("erred") or 0, 0], retries=False)
    return {
        **row,
        "nbytes": group.get("nbytes_total") or 0,
        "start": group.get("start") or NAN,
        "stop": group.get("stop") or NAN,
        "prefix": key_split(name),
        "dependencies": sorted(
            str(text)[1:].partition(": ")[0] for text in group.get("dependencies") or ()
        ),
        "span": group.get("span_id") or "",
    }


def _all_groups(
    computed: list[dict[str, Any]], known: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the groups of the tasks in their order, with the scheduler's sums, then the others."""
    by_name = {row["name"]: row for row in known}
    own = [by_name.pop(row["name"], row) for row in computed]
    return [*own, *by_name.values()]


def _sample(index: int, state: Mapping[str, Any]) -> dict[str, float]:
    """Return the newest sample of a worker: its last heartbeat."""
    beat = state.get("metrics") or {}
    # Old releases have the size of the process only, and other names of the counts.
    source = {
        "state": state,
        "beat": beat,
        "memory": state.get("memory") or {"process": beat.get("memory")},
        "counts": beat.get("task_counts") or {**beat, "memory": beat.get("in_memory")},
        "status": {"paused": "paused" in str(state.get("status"))},
    }
    values = [look_up(source, path) for path in SAMPLE_PATHS]
    return {
        **dict(zip(SAMPLE_COLUMNS[2:], values, strict=True)),
        "time": state.get("last_seen") or NAN,
        "worker": index,
    }


def _report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the transfers that a worker received, by sender, and its warnings, without a time."""
    totals: dict[str, list[float]] = {}
    # The second name is the older.
    log = report.get("transfer_incoming_log") or report.get("incoming_transfer_log") or ()
    for transfer in log:
        total = totals.setdefault(str(transfer["who"]), [0, 0, NAN, 0.0])
        total[0] += len(transfer["keys"])
        total[1] += transfer["total"]
        total[3] += transfer["duration"]
    lines = [
        [NAN, str(level), short_text(line)]
        for level, line in report.get("logs") or ()
        if level not in IGNORED_LEVELS
    ]
    return {
        "transfers": [[INCOMING, peer, *total] for peer, total in totals.items()],
        "logs": lines[:MAX_LOG_LINES][::-1],  # newest first in the dump
    }


def _errors(scheduler: Mapping[str, Any], addresses: Mapping[str, int]) -> Iterator[list[Any]]:
    """Yield the errors of tasks: time, key, worker, exception, traceback."""
    moments = {as_key(entry[0]): entry[-1] for entry in scheduler.get("transition_log") or ()
               if entry[2] == "erred"}  # fmt: skip
    for task in scheduler["tasks"].values():
        # Tasks that depend on a failed task have its state, but no text.
        if task["state"] == "erred" and task.get("exception_text"):
            places = [addresses.get(str(place), -1) for place in task.get("erred_on") or ()]
            key = as_key(task["key"])
            yield [
                moments.get(key, NAN),
                key,
                places[0] if places else -1,
                short_text(task["exception_text"]),
                short_text(task.get("traceback_text") or ""),
            ]


def _versions(versions: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions on the scheduler."""
    packages = dict((versions.get("scheduler") or {}).get("packages") or {})
    found = {name: str(packages[name]) for name in ("dask", "distributed", "python")
             if packages.get(name)}  # fmt: skip
    if "python" in found:  # 3.11.9.final.0
        found["python"] = ".".join(found["python"].split(".")[:3])
    return found


# -- what the reader must know --------------------------------------------------------------------


def _unfinished(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items()) if state not in _ENDED)


def _error(errors: list[list[Any]], counts: Mapping[str, int]) -> str:
    """Return why the run is not finished in one line; empty if all tasks ended without an error."""
    if errors:
        return f"{errors[0][1]}: {errors[0][3]}".splitlines()[0]
    unfinished = _unfinished(counts)
    return f"unfinished when the state was dumped: {unfinished}" if unfinished else ""


def _notes(
    n_silent: int, *, has_groups: bool, counts: Mapping[str, int]
) -> list[tuple[str, tuple[str, ...], str]]:
    text = (
        "the tasks are those in the logs of the workers, which keep the newest; they last from "
        "one transition to the next on the worker, which may be longer than their call"
    )
    notes: list[tuple[str, tuple[str, ...], str]] = [("cut", (), text)]
    if has_groups:
        text = "sums are those of the task groups that the scheduler had not forgotten"
        notes.append(("cut", _METRICS, text))
    else:
        notes.append(("cut", (), "the dump has no task groups: sums are those of the logs"))
    if n_silent:
        text = f"{counted(n_silent, 'worker')} did not answer when the state was dumped"
        notes.append(("cut", (), text))
    if unfinished := _unfinished(counts):
        notes.append(("unfinished", (), f"unfinished when the state was dumped: {unfinished}"))
    return notes
