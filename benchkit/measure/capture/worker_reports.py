"""Poll workers for data that only they have, during the run and once after the clock stopped."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from math import nextafter
from typing import Any

from distributed.metrics import time

from benchkit.measure.capture.columns import NAN, look_up, text
from benchkit.measure.capture.task_groups import TaskGroups
from benchkit.measure.capture.worker_log import IGNORED_LEVELS, MAX_LOG_LINES, warnings_of

#: At most this many requests per second, over all workers.
MAX_REQUESTS_PER_S = 20.0
#: Minimum interval as a share of the run so far, longer than 5 s after five minutes: in a run of
#: hours the data of one minute is a small loss.
INTERVAL_SHARE_OF_RUN = 1 / 60
#: Seconds that a worker has to reply while the clock runs.
REPLY_TIMEOUT_S = 6.0
#: Seconds. More recent entries may not be in the worker's logs yet.
LOG_DELAY_S = 0.25
#: If the client has not drained for this many seconds, no more data is gathered for it.
MAX_CLIENT_SILENCE_S = 30.0
#: Call stacks come from at most this many workers, evenly chosen; workers are similar.
MAX_PROFILED_WORKERS = 64
#: Seconds or bytes: rounding error of a sum after all its parts are subtracted.
ROUNDING = 1e-9

#: Seconds that workers and nannies have to reply.
FINAL_REPLY_TIMEOUT_S = 6.0
FINAL_REPLY_TIMEOUT_PER_WORKER_S = 0.03


AddError = Callable[[str, Any], None]


class WorkerReportPoller:
    """Gather parts of the workers' reports while the clock runs.

    The window of a request begins where the window of the last reply ended: a lost reply is
    requested again, and no data is sent twice. Each request to a worker ends later than the one
    before, by which the worker recognises requests that arrive late.
    """

    def __init__(
        self, name: str, scheduler: Any, workers: dict[Any, int], interval_s: float
    ) -> None:
        self.name, self.scheduler, self.workers = name, scheduler, workers
        self.interval_s = interval_s
        self.start = float("inf")
        self.stopped = False
        #: By worker index: end of the last window received, and time of the last request.
        self.window_ends: dict[int, float] = {}
        self.request_times: dict[int, float] = {}
        #: By worker index: end of the last window requested.
        self.last_stops: dict[int, float] = {}
        self.profiled: dict[int, bool] = {}
        self.parts: list[list[Any]] = []
        self.pending: dict[int, asyncio.Future[None]] = {}

    def request(self, address: str, stop: float, *, last: bool) -> dict[str, Any]:
        """Return the arguments of a request to a worker."""
        index = self.workers.get(address, -1)
        # Decided once per worker, so that the call stacks of a worker are complete or absent.
        every = max(1, -(-len(self.scheduler.workers) // MAX_PROFILED_WORKERS))
        stacks = self.profiled.setdefault(index, index % every == 0)
        start = self.window_ends.get(index, self.start)
        if index in self.last_stops:  # later even if the scheduler's clock was set back
            stop = max(stop, nextafter(self.last_stops[index], float("inf")))
        self.last_stops[index] = stop
        return {"start": start, "stop": stop, "stacks": stacks, "last": last}

    def send_requests(self, tick_s: float, last_call: float) -> None:
        """Send requests to workers whose last report is old enough."""
        now = time()
        if self.stopped or now - last_call > MAX_CLIENT_SILENCE_S:
            return
        states = self.scheduler.workers
        age = now - self.start if self.start < now else 0.0
        every = max(self.interval_s, len(states) / MAX_REQUESTS_PER_S, INTERVAL_SHARE_OF_RUN * age)
        due = []
        for address in states:
            index = self.workers.get(address, -1)
            last_time = max(
                self.window_ends.get(index, self.start), self.request_times.get(index, 0.0)
            )
            if index >= 0 and index not in self.pending and now - last_time >= every:
                due.append((last_time, address, index))
        # Spread the requests over time: all workers may have the same window start.
        at_most = 1 + int(len(states) * tick_s / every)
        for _, address, index in sorted(due)[:at_most]:
            self.request_times[index] = now
            request = self.request(address, now - LOG_DELAY_S, last=False)
            self.pending[index] = asyncio.ensure_future(self._request(address, index, request))

    async def _request(self, address: str, index: int, request: dict[str, Any]) -> None:
        try:
            call = getattr(self.scheduler.rpc(address), f"{self.name}_report")
            part = await asyncio.wait_for(call(**request), REPLY_TIMEOUT_S)
        except Exception:  # worker gone, busy or without plugin: requested again later
            return
        finally:
            self.pending.pop(index, None)
        # A part with errors is requested again; the final report contains the errors.
        if isinstance(part, dict) and not part.pop("errors", True):
            self.window_ends[index] = request["stop"]
            self.parts.append([index, part])

    async def stop(self, timeout_s: float) -> None:
        """Stop polling; the final reports contain the data of cancelled requests."""
        self.stopped = True
        if self.pending:
            _, unfinished = await asyncio.wait(list(self.pending.values()), timeout=timeout_s)
            for future in unfinished:
                future.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel pending requests without waiting."""
        self.stopped = True
        for future in list(self.pending.values()):
            future.cancel()

    def drain(self) -> dict[str, list[Any]]:
        """Return the parts of reports received since the last call."""
        parts, self.parts = self.parts, []
        return {"told": parts} if parts else {}


async def collect_final_reports(
    poller: WorkerReportPoller,
    groups: TaskGroups,
    add_error: AddError,
    window: tuple[float, float],
) -> dict[str, Any]:
    """Request the remaining data of all workers and the logs of nannies and scheduler."""
    start, stop = window
    scheduler, workers = poller.scheduler, poller.workers
    states = dict(scheduler.workers)

    async def call(msg: dict[str, Any], addresses: list[str], **options: Any) -> dict[str, Any]:
        broadcast = scheduler.broadcast(msg=msg, workers=addresses, on_error="ignore", **options)
        try:
            timeout_s = FINAL_REPLY_TIMEOUT_S + len(states) * FINAL_REPLY_TIMEOUT_PER_WORKER_S
            return await asyncio.wait_for(broadcast, timeout_s)
        except Exception as error:
            add_error(msg["op"].rpartition("_")[2], error)
            return {}

    # One call per worker, so that a worker that hangs delays only its own report.
    op = {"op": f"{poller.name}_report"}
    calls = [
        call({**op, **poller.request(address, stop, last=True)}, [address]) for address in states
    ]
    log_msg = {"op": "get_logs", "start": start, "timestamps": True}
    with_nanny = [address for address, state in states.items() if state.nanny]
    *replies, logs = await asyncio.gather(*calls, call(log_msg, with_nanny, nanny=True))
    reports: dict[str, Any] = {}
    for address, reply in zip(states, replies, strict=True):
        index, report = workers.get(address, -1), reply.get(address)
        if not isinstance(report, dict):
            add_error("report", f"not received from {address}")
            continue
        for line in report.pop("errors", ()):
            add_error(f"report of {address}", line)
        reports[str(index)] = report
    out: dict[str, Any] = {"reports": reports}
    readers: dict[str, Callable[[], list[list[Any]]]] = {
        "spans": lambda: _span_rows(scheduler, groups),
        "logs": lambda: _log_rows(scheduler, logs, start),
    }
    for title, read_rows in readers.items():
        try:
            out[title] = read_rows()
        except Exception as error:
            add_error(title, error)
    return out


def _log_rows(scheduler: Any, replies: dict[str, Any], start: float) -> list[list[Any]]:
    """Return log rows of scheduler and nannies: (source, time, level, text)."""
    rows = [["scheduler", *line] for line in warnings_of(scheduler, start)]
    # Nannies in one process share their log handler: keep each line once.
    lines = {tuple(line) for reply in replies.values() for line in reply}
    kept = sorted(line for line in lines if line[1] not in IGNORED_LEVELS)[-MAX_LOG_LINES:]
    return rows + [["nanny", moment, level, text(line)] for moment, level, line in kept]


def _span_rows(scheduler: Any, groups: TaskGroups) -> list[list[Any]]:
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


def read_fine_metrics(scheduler: Any) -> dict[tuple[Any, ...], float]:
    """Return the totals of the scheduler's fine performance metrics."""
    totals = scheduler.cumulative_worker_metrics.items()
    metrics = {
        ("", *key): value for key, value in totals if isinstance(key, tuple) and len(key) > 2
    }
    extension = scheduler.extensions.get("spans")  # since 2023.6
    for span_id, span in extension.spans.items() if extension is not None else ():
        for key, value in getattr(span, "_cumulative_worker_metrics", {}).items():
            metrics[(span_id, *key)] = value
            if ("", *key) in metrics:  # the sum of all rows stays equal to the scheduler's sum
                metrics[("", *key)] -= value
    return metrics


def fine_metric_rows(
    now: dict[tuple[Any, ...], float], before: dict[tuple[Any, ...], float]
) -> list[tuple[Any, ...]]:
    """Return the fine metrics of a run."""
    rows: dict[tuple[Any, ...], float] = defaultdict(float)
    for key, value in now.items():
        added = value - before.get(key, 0)
        if abs(added) <= ROUNDING:
            continue
        span, *labels = map(text, key)
        prefix = labels[1] if len(labels) > 3 else ""
        rows[labels[0], prefix, labels[-2], labels[-1], span] += added
    return [(*key[:4], float(value), key[4]) for key, value in rows.items()]
