"""Build the DataTree of a run from a recording: groups, metrics, record and attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benchkit.measure.engines import DASK
from benchkit.measure.recording import Recording
from benchkit.store.build.facts import CaptureFacts
from benchkit.store.build.groups import assemble_groups
from benchkit.store.build.metrics import biggest_group, compute_metrics
from benchkit.store.build.quality import (
    BY_WALL_CLOCK,
    Note,
    as_rows,
    imported_notes,
    kinds_by_metric,
    quality_notes,
    simulated_note,
)
from benchkit.store.build.shape import Window
from benchkit.store.schema import GROUPS, METRICS, RECORD_FIELDS, RUN_FORMAT
from benchkit.values import clean_text

#: Values of a recording that become attributes of the run file, in addition to the record.
_TEXTS = ("description", "source", "traceback")
_OBJECTS = (
    "packages",
    "config",
    "variables",
    "host",
    "evidence",
    "logs",
    "argv",
    "sizes",
    "environment_spec",
    "simulation",
)
#: Seconds of steps outside the measured time, as named in the tail of a recording.
_STEP_SECONDS = ("prepare_seconds", "check_seconds")


def run_from_recording(path: str | Path) -> xr.DataTree:
    """Build a run from a recording.

    A recording without a tail comes from a process that was killed: its run has the outcome
    `infrastructure` and all data that reached the disk.
    """
    recording = Recording.read(path)
    window = Window(recording)
    groups = assemble_groups(recording, window)
    metrics: dict[str, float] = {}
    notes: list[Note] = []
    if window.started and np.isfinite(window.off):
        n_steals = recording.last("state", {}).get("n_steals")
        facts = CaptureFacts.of(recording)
        metrics = compute_metrics(groups, window.duration, facts=facts, n_steals=n_steals)
        if facts.clock_was_set:
            metrics = {k: v for k, v in metrics.items() if k not in BY_WALL_CLOCK}
        notes = quality_notes(groups, metrics, window.duration, facts)
        if recording.head.get("simulated"):
            notes = [simulated_note(metrics)]
        if imported := recording.head.get("imported"):
            metrics = {k: v for k, v in metrics.items() if k in imported["metrics"]}
            notes = imported_notes(metrics, imported)
        price = recording.head.get("worker_price")  # USD per worker and hour
        if price is not None and "worker_seconds" in metrics:
            metrics["cost"] = price * metrics["worker_seconds"] / 3600
    record = _record(recording, metrics, groups, notes)

    root = xr.Dataset({name: ((), value, METRICS[name].attrs) for name, value in metrics.items()})
    extra = json.loads(record.get("extra_metrics") or "{}")
    units = recording.head.get("extra_units") or {}
    for name, value in _own_metrics(recording).items():
        root[name] = ((), float(value["value"]), METRICS[name].attrs)
    for name in sorted(extra.keys() - _own_metrics(recording).keys()):
        attrs = {"units": units.get(name, "1"), "long_name": name, "source": "the workload's check"}
        root[name] = ((), float(extra[name]), attrs)
    root.attrs = _attributes(recording, window, record)
    root.attrs["quality"] = json.dumps(as_rows(notes))
    return xr.DataTree.from_dict({"/": root, **{f"/{k}": v for k, v in groups.items()}})


def _record(
    recording: Recording,
    metrics: dict[str, float],
    groups: dict[str, xr.Dataset],
    notes: list[Note],
) -> dict[str, Any]:
    head, tail = recording.head, recording.tail
    cluster = tail.get("cluster") or {}
    versions = (cluster.get("versions") or {}).get("client") or {}
    packages = head.get("packages") or {}
    group, share = biggest_group(groups)
    own = _own_metrics(recording)
    definitions = {
        name: {key: about[key] for key in ("units", "better")} for name, about in own.items()
    }
    METRICS.define(json.dumps(definitions))
    values = {
        **head,
        "started": datetime.fromtimestamp(head["started"], timezone.utc).isoformat(
            timespec="microseconds"
        ),
        "params": json.dumps(head.get("params") or {}),
        "tags": json.dumps(head.get("tags") or {}),
        "outcome": tail.get("outcome", "infrastructure"),
        "error": tail.get("error", "the measuring process was killed"),
        "phase": tail.get("phase", "" if recording.finished else "killed"),
        "engine": head.get("engine") or DASK,
        "host": (head.get("host") or {}).get("host"),
        "cluster": cluster.get("class") or (head.get("cluster") or {}).get("class"),
        "n_workers": cluster.get("n_workers"),
        "workers_requested": _workers_requested(head),
        "n_threads": cluster.get("n_threads"),
        "memory_limit": cluster.get("memory_limit"),
        "python": (head.get("host") or {}).get("python"),
        "dask": versions.get("dask") or packages.get("dask"),
        "distributed": versions.get("distributed") or packages.get("distributed"),
        "schedule": (tail.get("simulation") or {}).get("digest"),
        "biggest_group": group or None,
        "biggest_group_share": share if np.isfinite(share) else None,
        "extra_metrics": json.dumps(tail.get("extra_metrics") or {}),
        "own_metrics": json.dumps(definitions) if definitions else None,
        "metric_versions": json.dumps(versions_of(metrics)),
        "quality": json.dumps(kinds_by_metric(notes)),
        "capture_losses": "; ".join(_capture_errors(recording)),
    }
    record = {name: values[name] for name in RECORD_FIELDS if values.get(name) not in (None, "")}
    record = {k: clean_text(v) if isinstance(v, str) else v for k, v in record.items()}
    return {**record, **metrics, **{name: float(about["value"]) for name, about in own.items()}}


def _own_metrics(recording: Recording) -> dict[str, dict[str, Any]]:
    """Return the metrics that the user defined: value, units and direction by name."""
    own = recording.tail.get("own_metrics") or {}
    taken = {*METRICS.keys(), *RECORD_FIELDS, *GROUPS}
    return {name: about for name, about in own.items() if name not in taken}


def _workers_requested(head: dict[str, Any]) -> int | None:
    """Return the number of workers in the arguments of the cluster's class."""
    requested = (head.get("cluster") or {}).get("n_workers")
    return requested if isinstance(requested, int) else None


def versions_of(metrics: Mapping[str, float]) -> dict[str, int]:
    """Return the versions of the metrics' definitions, where they are not 1."""
    return {name: METRICS[name].version for name in metrics if METRICS[name].version > 1}


def _attributes(recording: Recording, window: Window, record: dict[str, Any]) -> dict[str, Any]:
    head, tail = recording.head, recording.tail
    attrs: dict[str, Any] = {k: v for k, v in record.items() if k in RECORD_FIELDS}
    attrs["benchkit_format"] = RUN_FORMAT
    attrs["record"] = json.dumps(record)
    if window.started:
        attrs["clock_on"], attrs["clock_off"] = window.on, window.off
    measured = ("client_seconds", "clock_step_s", *_STEP_SECONDS)
    attrs |= {name: tail[name] for name in measured if name in tail}
    values = {**head, **tail}
    for name in _TEXTS:
        attrs[name] = clean_text(values.get(name))
    for name in _OBJECTS:
        if values.get(name):
            text = json.dumps(values[name], default=str)
            attrs[f"{name}_json" if name == "host" else name] = text
    attrs["cluster_description"] = json.dumps(tail.get("cluster") or head.get("cluster") or {})
    attrs["capture_errors"] = json.dumps(_capture_errors(recording))
    attrs["complete"] = int(recording.finished)
    return {name: value for name, value in attrs.items() if value is not None}


def _capture_errors(recording: Recording) -> list[str]:
    errors = [*recording.tail.get("capture_errors", []), *recording.problems]
    return [str(error) for error in [*errors, *recording.last("state", {}).get("errors", [])]]
