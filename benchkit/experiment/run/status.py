"""How far an experiment is, from what it has written: its plan, its runs, and what it records now.

Reads the store only, so that anybody who can read it may watch; asks no process anything.
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

from benchkit.experiment.run.estimate import Estimate, known_durations
from benchkit.experiment.run.plan import read_plan
from benchkit.store.store import Store

__all__ = ["DONE", "FAILED", "OPEN", "RUNNING", "Status", "latest_running", "read_status"]

OPEN, RUNNING, DONE, FAILED = "planned", "running", "done", "failed"
#: Whoever measures writes every second; this much silence and nobody does any more.
SILENT_S = 120.0
#: So long between two runs is a pause, not the way from one to the next.
PAUSE_S = 300.0


@dataclass(frozen=True)
class Status:
    """How far an experiment is.

    Attributes
    ----------
    id : str
        The experiment.
    plan : dict
        As it was written when it began.
    entries : DataFrame
        A row per planned measurement in order: ``block``, ``variant``, ``arm``, ``state`` (one of
        planned, running, done, failed), ``run`` (id, or ""), ``outcome`` and ``duration`` (s).
    runs : DataFrame
        The rows of the store's index that belong to it.
    alive : bool
        Whether something is being measured, as far as the files tell.
    left_s : float
        Seconds until the whole plan is done, about; adaptive plans end earlier.
    """

    id: str
    plan: dict[str, Any]
    entries: pd.DataFrame
    runs: pd.DataFrame
    alive: bool
    left_s: float

    def count(self, state: str) -> int:
        """Return how many planned measurements are in a state."""
        return int((self.entries["state"] == state).sum())


def read_status(store: Store, experiment: str = "latest") -> Status:
    """Return how far an experiment is.

    Parameters
    ----------
    store : Store
        Where it writes.
    experiment : str, default "latest"
        Its id, or the beginning of it.

    Raises
    ------
    UsageError
        There is no such experiment.
    """
    plan = read_plan(store.path, experiment)
    runs = store.runs(experiment=plan["id"]) if len(store) else store.runs()
    heads, alive = _recorded_now(Path(store.path) / "tmp" / "recordings" / plan["id"])
    planned = pd.DataFrame(plan["plan"], columns=["order", "block", "variant", "arm", "deadline_s"])
    # A measurement that was tried again has several runs: the last one tells.
    last = {
        (int(run.block), run.arm, run.workload): run
        for run in runs.dropna(subset=["block", "arm"]).itertuples()
    }
    rows = []
    for entry in planned.itertuples():
        run = last.get((entry.block, entry.arm, entry.variant))
        state = OPEN if run is None else DONE if run.outcome == "ok" else FAILED
        if (entry.block, entry.arm, entry.variant) in heads:
            state = RUNNING
        rows.append(
            {
                "block": entry.block,
                "variant": entry.variant,
                "arm": entry.arm,
                "state": state,
                "run": "" if run is None else str(run.id),
                "outcome": "" if run is None else str(run.outcome),
                "duration": float("nan") if run is None else getattr(run, "duration", None),
            }
        )
    names = ["block", "variant", "arm", "state", "run", "outcome", "duration"]
    entries = pd.DataFrame(rows, columns=names)
    left = _left_s(store, entries, runs)
    return Status(plan["id"], plan, entries, runs, alive, left)


def latest_running(store: Store) -> str:
    """Return the id of the experiment that is being measured, the latest if several; or ""."""
    folder = Path(store.path) / "tmp" / "recordings"
    alive = [path.name for path in folder.glob("*") if _recorded_now(path)[1]]
    planned = [name for name in sorted(alive) if _plan_of(store, name).exists()]
    return planned[-1] if planned else ""


def _plan_of(store: Store, experiment: str) -> Path:
    return Path(store.path) / "experiments" / experiment / "plan.json"


def _recorded_now(folder: Path) -> tuple[set[tuple[int, str, str]], bool]:
    """Return what is being measured, and whether anything was written of late."""
    heads, newest = set(), 0.0
    with suppress(OSError):  # files come and go while we look
        newest = folder.stat().st_mtime
        for path in folder.glob("*.recording"):
            head = json.loads((path / "head.json").read_text(encoding="utf-8"))
            written = max(file.stat().st_mtime for file in (path, *path.iterdir()))
            newest = max(newest, written)
            if not (path / "tail.json").exists() and time.time() - written < SILENT_S:
                heads.add((int(head["block"]), str(head["arm"]), str(head["workload"])))
    return heads, time.time() - newest < SILENT_S


def _left_s(store: Store, entries: pd.DataFrame, runs: pd.DataFrame) -> float:
    estimate = Estimate(entries["variant"], known_durations(store))
    started = runs["started"].sort_values()
    gaps = started.diff().dt.total_seconds().shift(-1)
    ended = entries[entries["state"].isin([DONE, FAILED])]
    elapsed = dict(zip(runs["id"].loc[started.index], gaps, strict=True))
    for row in ended.itertuples():
        took = float(elapsed.get(row.run, math.nan))
        duration = math.nan if row.duration is None else float(row.duration)
        if took < duration + PAUSE_S:  # else it was taken up again later
            estimate.finished(row.variant, took, duration)
        else:
            estimate.discard(row.variant)
    return estimate.remaining_seconds
