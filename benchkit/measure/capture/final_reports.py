"""The final reports of a run, requested once when the clock has stopped: reports, logs, spans."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchkit.measure.capture.columns import NAN, look_up, text
from benchkit.measure.capture.task_groups import Groups
from benchkit.measure.capture.worker_log import IDLE_TALK, MAX_LOG_LINES, warnings_of
from benchkit.measure.capture.worker_reports import WorkerReportPoller

__all__ = ["fine_now", "fine_rows", "collect_final_reports"]

#: Seconds or bytes: rounding error of a sum after all its parts are subtracted.
ROUNDING = 1e-9

#: Seconds that workers and nannies have to reply.
REPORT_TIMEOUT_S = 6.0
REPORT_TIMEOUT_PER_WORKER_S = 0.03

Note = Callable[[str, Any], None]


async def collect_final_reports(
    asking: WorkerReportPoller,
    groups: Groups,
    note: Note,
    window: tuple[float, float],
) -> dict[str, Any]:
    """Request the remaining data of all workers and the logs of nannies and scheduler.

    Parameters
    ----------
    asking : WorkerReportPoller
        The poller of this run, with the window of each worker.
    groups : Groups
        The task groups whose spans are returned.
    note : callable
        ``note(where, what)`` records an error.
    window : tuple of float
        Start and stop of the clock, Unix s on the scheduler's clock.

    Returns
    -------
    dict
        ``reports`` by worker index, ``spans`` and ``logs``; a table that failed is absent.
    """
    start, stop = window
    scheduler, workers = asking.scheduler, asking.workers
    states = dict(scheduler.workers)

    async def ask(msg: dict, asked: list[str], **options: Any) -> dict:
        call = scheduler.broadcast(msg=msg, workers=asked, on_error="ignore", **options)
        try:
            patience_s = REPORT_TIMEOUT_S + len(states) * REPORT_TIMEOUT_PER_WORKER_S
            return await asyncio.wait_for(call, patience_s)
        except Exception as error:
            note(msg["op"].rpartition("_")[2], error)
            return {}

    # One call per worker, so that a worker that hangs delays only its own report.
    op = {"op": f"{asking.name}_report"}
    asked = [ask({**op, **asking.question(one, stop, last=True)}, [one]) for one in states]
    log_msg = {"op": "get_logs", "start": start, "timestamps": True}
    with_nanny = [address for address, state in states.items() if state.nanny]
    *answers, logs = await asyncio.gather(*asked, ask(log_msg, with_nanny, nanny=True))
    reports: dict[str, Any] = {}
    for address, answer in zip(states, answers, strict=True):
        index, report = workers.get(address, -1), answer.get(address)
        if not isinstance(report, dict):
            note("report", f"none came from {address}")
            continue
        for line in report.pop("errors", ()):
            note(f"report of {address}", line)
        reports[str(index)] = report
    out: dict[str, Any] = {"reports": reports}
    for title, found in (
        ("spans", lambda: _span_rows(scheduler, groups)),
        ("logs", lambda: _other_logs(scheduler, logs, start)),
    ):
        try:
            out[title] = found()
        except Exception as error:
            note(title, error)
    return out


def _other_logs(scheduler: Any, answers: dict, start: float) -> list[list]:
    """Return log rows of scheduler and nannies: (source, time, level, text)."""
    rows = [["scheduler", *line] for line in warnings_of(scheduler, start)]
    # Nannies in one process share their log handler: keep each line once.
    lines = {tuple(line) for answer in answers.values() for line in answer}
    serious = sorted(line for line in lines if line[1] not in IDLE_TALK)[-MAX_LOG_LINES:]
    return rows + [["nanny", moment, level, text(line)] for moment, level, line in serious]


def _span_rows(scheduler: Any, groups: Groups) -> list[list]:
    """Return the spans of this run's tasks, and the parents of these spans."""
    extension = scheduler.extensions.get("spans")  # since 2023.6
    if extension is None:
        return []
    wanted: dict[str, Any] = {}
    for group, counts in zip(groups.members, groups.counts, strict=True):
        span = extension.spans.get(getattr(group, "span_id", None)) if counts[0] else None
        while span is not None:
            wanted[span.id] = span
            span = span.parent
    numbers = ("enqueued", "start", "stop", "active_cpu_seconds")
    return [
        [
            span.id,
            text("/".join(span.name)),
            span.parent.id if span.parent is not None else "",
            *(look_up(span, (name,)) or NAN for name in numbers),
        ]
        for span in wanted.values()
    ]


def fine_now(scheduler: Any) -> dict[tuple, float]:
    """Return fine metrics so far by (span, context, ..., activity, unit); span "" for the rest."""
    totals = scheduler.cumulative_worker_metrics.items()
    found = {("", *key): value for key, value in totals if isinstance(key, tuple) and len(key) > 2}
    extension = scheduler.extensions.get("spans")  # since 2023.6
    for span_id, span in extension.spans.items() if extension is not None else ():
        for key, value in getattr(span, "_cumulative_worker_metrics", {}).items():
            found[(span_id, *key)] = value
            if ("", *key) in found:  # the sum of all rows stays equal to the scheduler's sum
                found[("", *key)] -= value
    return found


def fine_rows(now: dict[tuple, float], before: dict[tuple, float]) -> list[tuple]:
    """Return rows of context, prefix, activity, unit, value, span: what was added since `before`.

    Both arguments are results of `read_fine_metrics`.
    """
    rows: dict[tuple, float] = defaultdict(float)
    for key, value in now.items():
        added = value - before.get(key, 0)
        if abs(added) <= ROUNDING:
            continue
        span, *words = map(text, key)
        prefix = words[1] if len(words) > 3 else ""
        rows[words[0], prefix, words[-2], words[-1], span] += added
    return [(*key[:4], float(value), key[4]) for key, value in rows.items()]
