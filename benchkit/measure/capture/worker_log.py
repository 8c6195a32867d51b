"""Data of a run that only the worker has: transfers, log lines, call stacks of tasks."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from distributed.metrics import time

from benchkit.measure.capture.columns import NAN, text

#: A transfer takes 48 B of memory in its worker: 24 MB at the limit.
MAX_TRANSFERS = 500_000
#: Warnings of a worker that are kept: a warning for each task says no more than the first ones.
MAX_LOG_LINES = 1000
IGNORED_LEVELS = ("DEBUG", "INFO")
#: Cycles of the profiler of an event loop that are sent together.
CYCLES_PER_PART = 10
#: Directions of transfers. The sender's log has a transfer when the receiver has acknowledged it:
#: of those that began before the clock stopped, some are acknowledged later.
INCOMING, OUTGOING, ACKNOWLEDGED_LATE = 0, 1, 2


class WorkerLog:
    """Return the data of one worker by time window, with acknowledgement.

    Requests acknowledge: `start` equal to the previous `stop` confirms the last reply; repeating
    the previous `start` means that it was lost, and the data are sent again. Ends of windows only
    grow: on a slow link a request that was given up can arrive after its successor, and a request
    with an earlier end is not answered. Windows are in time of the scheduler's clock, and the
    worker's estimate of the clock offset changes with each heartbeat. Therefore the entries that
    were sent are remembered, not their times.
    """

    def __init__(self, worker: Any, clock: Callable[[], float] = time) -> None:
        self.worker, self.clock = worker, clock
        self.clock_start = self.sent_until = NAN
        #: By kind of data: end of the newest window that was answered.
        self.answered: dict[str, float] = {}
        self.peers: dict[str, int] = {}
        #: Six numbers per transfer: transfers in the last reply, and transfers not yet sent.
        self.sent_transfers, self.transfers = array("d"), array("d")
        #: Time at which the clock stopped, on the clock of the worker's log: later transfers are
        #: not of the run, but the acknowledgements of some sent before are still on the way.
        self.stopped = NAN
        self.n_missed = 0
        self.logs = (worker.transfer_incoming_log, worker.transfer_outgoing_log)
        self.newest = [log[-1] if log else None for log in self.logs]
        #: By the end of a window: its end in the worker's log on the worker's own clock, and the
        #: newest tree of call stacks in the window.
        self.log_ends: dict[float, float] = {}
        self.tree_ends: dict[float, Any] = {}
        #: The newest tree of call stacks when the clock started ("on") and when it stopped ("off").
        self.cuts: dict[str, Any] = {}
        self.n_lines = self.n_lines_dropped = 0

    def copy_transfers(self) -> None:
        """Copy new entries of the worker's transfer logs, which keep only the last 1000."""
        stopped = self.stopped == self.stopped
        for direction, log in enumerate(self.logs):
            if stopped and direction == INCOMING:
                continue
            new_entries: list[dict[str, Any]] = []
            for entry in reversed(log):
                if entry is self.newest[direction]:
                    break
                new_entries.append(entry)
            else:
                # If all entries of a full log are new, at least one was overwritten.
                self.n_missed += bool(log) and len(log) == log.maxlen
            if new_entries:
                self.newest[direction] = new_entries[0]
            for entry in reversed(new_entries):
                if stopped and entry["start"] > self.stopped:
                    continue
                if len(self.transfers) >= 6 * MAX_TRANSFERS:
                    self.n_missed += 1
                    continue
                peer_address = str(entry.get("who"))
                self.transfers.extend(
                    (
                        ACKNOWLEDGED_LATE if stopped else direction,
                        self.peers.setdefault(peer_address, len(self.peers)),
                        entry["stop"],
                        entry["total"],
                        NAN if entry.get("compressed") is None else entry["compressed"],
                        entry["duration"],
                    )
                )

    def cut_transfers(self, edge: str) -> None:
        """Mark the clock's `edge` by the position in the log.

        Times would not do: the worker's estimate of the scheduler's clock can be wrong by more than
        the last step of a run takes.
        """
        self.copy_transfers()
        if edge == "off":
            self.stopped = self.clock() + self.worker.scheduler_delay
        elif not self.answered and self.stopped != self.stopped:  # else the call arrives late
            self.transfers, self.clock_start = array("d"), -float("inf")

    def read_transfers(self, start: float, stop: float) -> list[list[Any]]:
        """Return the transfers of a window, summed by direction and peer."""
        if self._is_late("transfers", stop):
            return []
        self.copy_transfers()
        if self.clock_start != self.clock_start:
            self.clock_start = start
        if start != self.sent_until:  # the last reply was lost
            self.transfers = self.sent_transfers + self.transfers
        self.sent_transfers, later = array("d"), array("d")
        peers = list(self.peers)
        sums: dict[tuple[Any, ...], list[float]] = {}
        rows = iter(self.transfers)
        for row in zip(*[rows] * 6, strict=True):
            direction, peer, moment, nbytes, compressed, seconds = row
            if moment > stop and self.stopped != self.stopped:
                later.extend(row)
            elif moment > self.clock_start:
                self.sent_transfers.extend(row)
                total = sums.setdefault((int(direction), peers[int(peer)]), [0, 0.0, 0.0, 0.0])
                for index, value in enumerate((1, nbytes, compressed, seconds)):
                    total[index] += value
        self.transfers, self.sent_until = later, stop
        return [[*pair, *total] for pair, total in sums.items()]

    def _is_late(self, kind: str, stop: float) -> bool:
        """Return whether a window ends before one that was answered, else note its end."""
        late = stop < self.answered.get(kind, stop)
        if not late:
            self.answered[kind] = stop
        return late

    def read_log(self, start: float, stop: float) -> list[list[Any]]:
        """Return the warnings and errors that the worker logged in a window."""
        if self._is_late("logs", stop):
            return []
        ahead = self.worker.scheduler_delay
        after = self.log_ends.get(start, start - ahead)
        until = stop if stop == float("inf") else min(stop - ahead, self.clock())
        rows = warnings_of(self.worker, after)
        rows = [[moment + ahead, *line] for moment, *line in rows if after < moment <= until]
        self.log_ends = {start: after, stop: until}
        room = max(0, MAX_LOG_LINES - self.n_lines)
        self.n_lines += len(rows[:room])
        self.n_lines_dropped += len(rows[room:])
        return rows[:room]

    def cut_call_stacks(self, edge: str) -> None:
        """Begin a new tree of call stacks when the clock of the run starts or stops."""
        self.worker.cycle_profile()
        self.cuts.setdefault(edge, self.worker.profile_keys_history[-1])

    def read_call_stacks(self, start: float, stop: float, *, last: bool) -> bytes:
        """Return the call stacks of tasks, sampled by the worker itself, as a flat tree."""
        if self._is_late("profile", stop):
            return b""
        history = list(self.worker.profile_keys_history)
        last_sent, off = self.tree_ends.get(start, self.cuts.get("on")), self.cuts.get("off")
        new_entries: list[Any] = []
        for entry in reversed(history):
            if entry is last_sent or (last_sent is None and entry[0] <= start):
                break
            if last and entry is off:
                new_entries.clear()  # trees that began after the clock stopped
            new_entries.append(entry)
        # A tree that began before the window's end is sent after its second is over.
        end = stop + 1 if last else stop
        chosen = [entry for entry in reversed(new_entries) if entry[0] <= end or (last and off)]
        self.tree_ends = {start: last_sent, stop: chosen[-1] if chosen else last_sent}
        if last and not off and not (history and history[-1][0] > stop):
            chosen.append((stop, dict(self.worker.profile_keys)))
        begin = last_sent[0] if last_sent is not None else start
        begins = [begin, *(moment for moment, _ in chosen)]
        return pack_cycles(
            (begin, *entry) for begin, entry in zip(begins, chosen, strict=False) if entry[1]
        )


class LoopProfile:
    """Read the call stacks of an event loop's thread, which Dask's profiler samples."""

    def __init__(self, loop: Any) -> None:
        # Empty if the profiler is off, as in Python 3.11, which it makes crash.
        self.history = getattr(loop, "profile", ())
        self.last: Any = None

    def read(self, start: float, stop: float, *, last: bool) -> bytes:
        """Return the cycles since the last call that lie in the run, at least in part."""
        # The newest cycle goes on. It is sent at the end.
        history = list(self.history)
        new: list[Any] = []
        for number, (begin, tree) in reversed(list(enumerate(history))):
            if tree is self.last:
                break
            is_newest = number == len(history) - 1
            end = time() if is_newest else history[number + 1][0]
            if begin < stop and end > start and (last or not is_newest):
                new.append((begin, end, {"scheduler": tree}))
        if not last and len(new) < CYCLES_PER_PART:
            return b""
        self.last = new[0][2]["scheduler"] if new else self.last
        return pack_cycles(reversed(new))


def pack_cycles(cycles: Iterable[tuple[float, float, dict[str, Any]]]) -> bytes:
    """Return cycles of a profiler: begin, end and trees by their roots' names, as one flat tree."""
    frames: dict[tuple[Any, ...], int] = {}
    nodes: dict[tuple[int, int], int] = {}
    counts: list[int] = []
    rows: list[tuple[float, float, list[int]]] = []
    for begin, end, trees in cycles:
        entries: list[int] = []
        for name, tree in list(trees.items()):
            if tree["count"]:
                _flatten(tree, (text(name), "", 0), frames, nodes, counts, entries)
        rows.append((begin, end, entries))
    flat = [value for key, count in zip(nodes, counts, strict=True) for value in (*key, count)]
    content = {"frames": list(frames), "nodes": flat, "cycles": rows}
    return zlib.compress(json.dumps(content).encode(), 1) if flat else b""


def _flatten(
    tree: dict[str, Any],
    root: tuple[Any, ...],
    frames: dict[tuple[Any, ...], int],
    nodes: dict[tuple[int, int], int],
    counts: list[int],
    entries: list[int],
) -> None:
    """Add a tree to `counts`, and to `entries` the innermost frames: node and samples."""
    stack = [(tree, -1, root)]
    while stack:  # no recursion: stacks can be as deep as Python allows
        node, parent, frame = stack.pop()
        number = nodes.setdefault((parent, frames.setdefault(frame, len(frames))), len(nodes))
        if number == len(counts):
            counts.append(0)
        counts[number] += node["count"]
        children = list(node["children"].values())
        innermost = node["count"] - sum(child["count"] for child in children)
        if innermost > 0:
            entries += [number, innermost]
        for child in children:
            description = child["description"]
            frame_of_child = (
                text(description["name"]),
                text(description["filename"]),
                description["line_number"],
            )
            stack.append((child, number, frame_of_child))


def warnings_of(server: Any, start: float) -> list[list[Any]]:
    """Return the warnings and errors that a scheduler or worker has logged."""
    lines = server.get_logs(start=start, timestamps=True)
    kept = [line for line in lines if line[1] not in IGNORED_LEVELS][:MAX_LOG_LINES]
    return [[moment, level, text(line)] for moment, level, line in reversed(kept)]
