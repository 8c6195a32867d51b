"""Progress of an experiment, read from its plan, its runs and its current recordings.

Only the store is read, no process is contacted: read access to the store is sufficient. The
recordings of a store in a bucket are seen on the measuring machine only: elsewhere, an experiment
is running until its next run is overdue, and the measurement in progress is not known.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchkit.errors import UsageError
from benchkit.experiment.run.estimate import Estimate, known_durations
from benchkit.experiment.run.plan import plan_name, read_plan
from benchkit.formatting import format_outcome
from benchkit.measure.recording import file_system_time
from benchkit.measure.run_ids import id_time
from benchkit.store.storage import RECORDINGS
from benchkit.store.store import Store

#: States of a planned measurement.
OPEN, RUNNING, DONE, FAILED = "planned", "running", "done", "failed"
#: Seconds without a write after which an experiment has stopped: a running one writes each second.
SILENT_S = 120.0
#: Seconds for an environment and a cluster to start, in addition to the deadline of a measurement,
#: after which the next run of an experiment on another machine is overdue.
START_S = 900.0
#: Seconds between two runs from which the gap counts as a pause of the experiment.
PAUSE_S = 300.0


@dataclass(frozen=True)
class Status:
    """Progress of an experiment."""

    id: str  # Id of the experiment
    plan: dict[str, Any]  # Plan as written at the start
    # A row per planned measurement in order: `block`, `variant`, `arm`, `state` (one of planned,
    # running, done, failed), `run` (id, or ""), `outcome` as text and `duration` (s).
    entries: pd.DataFrame
    runs: pd.DataFrame  # Rows of the store's index that belong to the experiment
    # Whether a measurement is running, judged by the modification times of files; on another
    # machine than the measuring one, by the time since the last run.
    alive: bool
    # Estimated seconds until the whole plan is done; adaptive plans end earlier.
    remaining_seconds: float

    def count(self, state: str) -> int:
        """Return the number of planned measurements in a state."""
        return int((self.entries["state"] == state).sum())


def read_status(store: Store, experiment: str = "latest") -> Status:
    """Return the progress of an experiment."""
    plan = read_plan(store, experiment)
    runs = store.runs(experiment=plan["id"]) if len(store) else store.runs()
    running, alive = _current_recordings(store.files.workspace(f"{RECORDINGS}/{plan['id']}"))
    planned = pd.DataFrame(plan["plan"], columns=["order", "block", "variant", "arm", "deadline_s"])
    # A repeated measurement has several runs: use the last one.
    last = {
        (int(run.block), run.arm, run.workload): run
        for run in runs.dropna(subset=["block", "arm"]).itertuples()
    }
    rows = []
    for entry in planned.itertuples():
        run = last.get((entry.block, entry.arm, entry.variant))
        state = OPEN if run is None else DONE if run.outcome == "ok" else FAILED
        if (entry.block, entry.arm, entry.variant) in running:
            state = RUNNING
        rows.append(
            {
                "block": entry.block,
                "variant": entry.variant,
                "arm": entry.arm,
                "state": state,
                "run": "" if run is None else str(run.id),
                "outcome": "" if run is None else format_outcome(run._asdict()),
                "duration": float("nan") if run is None else getattr(run, "duration", None),
            }
        )
    names = ["block", "variant", "arm", "state", "run", "outcome", "duration"]
    entries = pd.DataFrame(rows, columns=names)
    if not isinstance(store.path, Path) and (entries["state"] == OPEN).any():
        alive = alive or _is_expected(store, plan, runs)
    remaining = _remaining_seconds(store, entries, runs)
    return Status(plan["id"], plan, entries, runs, alive, remaining)


def latest_running(store: Store) -> str:
    """Return the id of the running experiment."""
    folder = store.files.workspace(RECORDINGS)
    alive = [path.name for path in folder.glob("*") if _current_recordings(path)[1]]
    planned = [name for name in sorted(alive) if store.files.exists(plan_name(name))]
    if planned or isinstance(store.path, Path):
        return planned[-1] if planned else ""
    with suppress(UsageError):  # no experiment
        status = read_status(store)
        return status.id if status.alive else ""
    return ""


def _is_expected(store: Store, plan: dict[str, Any], runs: pd.DataFrame) -> bool:
    """Return whether the next run of an experiment on another machine is not overdue."""
    # Logs are published at the end; a bisection publishes them after each step.
    is_bisection = "bisection" in plan.get("words", {})
    if store.files.list(f"experiments/{plan['id']}", ".log") and not is_bisection:
        return False
    last = float(plan.get("started", id_time(plan["id"])))
    ended = (runs["started"] + pd.to_timedelta(runs["duration"].fillna(0), unit="s")).dropna()
    if len(ended):
        last = max(last, ended.max().timestamp())
    deadline_s = max(float(entry["deadline_s"]) for entry in plan["plan"])
    return time.time() - last < deadline_s + START_S


def _current_recordings(folder: Path) -> tuple[set[tuple[int, str, str]], bool]:
    """Return the running measurements, and whether a file was written within `SILENT_S`."""
    running, newest, now = set(), 0.0, time.time()
    with suppress(OSError):  # files appear and disappear during the scan
        newest = folder.stat().st_mtime
        now = file_system_time(folder.parent)
        for path in folder.glob("*.recording"):
            head = json.loads((path / "head.json").read_text(encoding="utf-8"))
            written = max(file.stat().st_mtime for file in (path, *path.iterdir()))
            newest = max(newest, written)
            if not (path / "tail.json").exists() and now - written < SILENT_S:
                running.add((int(head["block"]), str(head["arm"]), str(head["workload"])))
    return running, now - newest < SILENT_S


def _remaining_seconds(store: Store, entries: pd.DataFrame, runs: pd.DataFrame) -> float:
    estimate = Estimate(entries["variant"], known_durations(store))
    started = runs["started"].sort_values()
    gaps = started.diff().dt.total_seconds().shift(-1)
    ended = entries[entries["state"].isin([DONE, FAILED])]
    elapsed = dict(zip(runs["id"].loc[started.index], gaps, strict=True))
    for row in ended.itertuples():
        elapsed_s = float(elapsed.get(row.run, math.nan))
        duration = math.nan if row.duration is None else float(row.duration)
        if elapsed_s < duration + PAUSE_S:  # a longer gap: the experiment was resumed later
            estimate.finished(row.variant, elapsed_s, duration)
        else:
            estimate.discard(row.variant)
    return estimate.remaining_seconds
