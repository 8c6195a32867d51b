"""What is asked for once, when the clock has stopped: reports, logs, spans."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchkit.measure.capture.columns import NAN, look_up, text
from benchkit.measure.capture.groups import Groups
from benchkit.measure.capture.probe import IDLE_TALK, MAX_LOG_LINES, warnings_of

__all__ = ["fine_rows", "last_words"]

#: Seconds that workers and nannies have to answer.
REPORT_TIMEOUT_S = 6.0
REPORT_TIMEOUT_PER_WORKER_S = 0.03
#: Call stacks come from this many workers, evenly chosen: with hundreds, one is like another.
MAX_PROFILED = 64

Note = Callable[[str, Any], None]


async def last_words(
    name: str,
    scheduler: Any,
    workers: dict[Any, int],
    groups: Groups,
    note: Note,
    window: tuple[float, float],
) -> dict[str, Any]:
    """Ask all workers for their reports; nannies and scheduler for their logs.

    Parameters
    ----------
    name : str
        Of the capture, whose probes answer.
    scheduler : Scheduler
        Whose workers are asked.
    workers : dict
        The number of each worker by address.
    groups : Groups
        Whose spans are wanted.
    note : callable
        ``note(where, what)`` for what goes wrong.
    window : tuple of float
        When the clock started and stopped, Unix s on the scheduler's clock.
    """
    start, stop = window
    states = dict(scheduler.workers)

    async def ask(msg: dict, asked: list[str], **options: Any) -> dict:
        call = scheduler.broadcast(msg=msg, workers=asked, on_error="ignore", **options)
        try:
            patience_s = REPORT_TIMEOUT_S + len(states) * REPORT_TIMEOUT_PER_WORKER_S
            return await asyncio.wait_for(call, patience_s)
        except Exception as error:
            note(msg["op"].rpartition("_")[2], error)
            return {}

    msg = {"op": f"{name}_report", "start": start, "stop": stop}
    # One by one, so that a worker that hangs takes no other's report with it.
    questions = [ask(msg, [address]) for address in states]
    log_msg = {"op": "get_logs", "start": start, "timestamps": True}
    with_nanny = [address for address, state in states.items() if state.nanny]
    *answers, logs = await asyncio.gather(*questions, ask(log_msg, with_nanny, nanny=True))
    reports: dict[str, Any] = {}
    every = max(1, -(-len(states) // MAX_PROFILED))
    for number, (address, answer) in enumerate(zip(states, answers, strict=True)):
        report = answer.get(address)
        if not isinstance(report, dict):
            note("report", f"none came from {address}")
            continue
        for line in report.pop("errors", ()):
            note(f"report of {address}", line)
        if number % every:
            report.pop("profile", None)
        reports[str(workers.get(address, -1))] = report
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
    """Return what the scheduler and the nannies logged, rows of (who, time, level, text)."""
    rows = [["scheduler", *line] for line in warnings_of(scheduler, start)]
    # Nannies in one process share their handler: each line once.
    lines = {tuple(line) for answer in answers.values() for line in answer}
    serious = sorted(line for line in lines if line[1] not in IDLE_TALK)[-MAX_LOG_LINES:]
    return rows + [["nanny", moment, level, text(line)] for moment, level, line in serious]


def _span_rows(scheduler: Any, groups: Groups) -> list[list]:
    """Return the spans that tasks of this run belong to, and the spans around those."""
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


def fine_rows(now: Any, before: dict) -> list[tuple]:
    """Return rows of context, prefix, activity, unit, value for what was added since `before`."""
    rows: dict[tuple, float] = defaultdict(float)
    for key, value in now.items():
        if not isinstance(key, tuple) or len(key) < 3:
            continue
        value -= before.get(key, 0)
        if not value:
            continue
        words = [text(word) for word in key]
        prefix = words[1] if len(words) > 3 else ""
        rows[words[0], prefix, words[-2], words[-1]] += value
    return [(*key, float(value)) for key, value in rows.items()]
