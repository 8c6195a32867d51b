"""Faults that full memory causes: the rules of these faults then report nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from benchkit.analysis.insight.blame import paused_spans
from benchkit.analysis.insight.findings import Case

__all__ = ["beside_pauses", "collecting_seconds", "filling_seconds", "share_of_disk"]

#: Share of the time of which distributed collects garbage itself on a worker whose memory is full
#: (its ``ThrottledGC.max_in_gc_frac``), after the first collection.
THROTTLED_SHARE = 0.05
#: Growth of a process between two heartbeats, as a share of its memory limit, while it fills up.
FILLS = 0.05


def beside_pauses(case: Case) -> pd.Series:
    """Return which tasks ran while their worker was paused, or became so."""
    start, stop = case.tasks["start"], case.tasks["start"] + case.tasks["duration"]
    found = pd.Series(False, index=case.tasks.index)
    for worker, spans in paused_spans(case.run).items():
        for begin, end in spans:
            found |= (case.tasks["worker"] == worker) & (start < end) & (stop > begin)
    return found


def share_of_disk(case: Case) -> float:
    """Return the share of the seconds of fetches in which the sender read spilled results."""
    fine = case.fine_seconds
    fetches = float(fine.loc[fine["context"] == "gather-dep", "value"].sum())
    reads = (fine["activity"] == "disk-read") & ~fine["context"].isin(["execute", "p2p"])
    return min(1.0, float(fine.loc[reads, "value"].sum()) / fetches) if fetches else 0.0


def collecting_seconds(case: Case) -> np.ndarray | float:
    """Return the most seconds that distributed's own collections of garbage can have taken."""
    if "gc_max" in case.workers and (paused_spans(case.run) or case.metric("disk_write_time")):
        longest = np.nan_to_num(case.workers["gc_max"].values).max(axis=0, initial=0.0)
        return np.asarray(longest + THROTTLED_SHARE * case.duration)
    return 0.0


def filling_seconds(case: Case) -> float:
    """Return the processor seconds, besides tasks, in which memory filled until a worker paused.

    The operating system provides each page of memory when it is used first.
    """
    tasks, times, seconds = case.tasks, case.workers["time"].values, 0.0
    if tasks.empty:
        return seconds
    own = (case.task_seconds("thread-cpu") or 0.0) / max(case.metric("compute_time"), 1e-9)
    for worker in paused_spans(case.run).keys() & set(range(len(case.workers["nthreads"]))):
        rows = np.flatnonzero(case.heartbeats[:, worker])
        size, cpu = (case.workers[name].values[:, worker] for name in ("process", "cpu_time"))
        least = FILLS * float(case.workers["memory_limit"].values[worker])
        begin, length = tasks.loc[tasks["worker"] == worker, ["start", "duration"]].to_numpy().T
        for before, after in pairwise(rows.tolist()):
            if size[after] - size[before] > least:
                within = np.minimum(begin + length, times[after]) - np.maximum(begin, times[before])
                grown = cpu[after] - cpu[before] - own * np.maximum(within, 0.0).sum()
                seconds += max(0.0, float(grown))
    return seconds
