"""What runs on each worker: values for its heartbeats, and one report at the end."""

from __future__ import annotations

import contextlib
from array import array
from collections import defaultdict
from typing import Any

import distributed
from distributed import profile
from distributed.diagnostics.plugin import WorkerPlugin

from benchkit.measure.capture.columns import NAN, text
from benchkit.measure.capture.loop_lag import LoopLag

__all__ = ["IDLE_TALK", "MAX_LOG_LINES", "Probe", "warnings_of"]

#: A transfer takes 48 B in its worker, so that all of them take 24 MB.
MAX_TRANSFERS = 500_000
MAX_LOG_LINES = 1000
IDLE_TALK = ("DEBUG", "INFO")


class Probe(WorkerPlugin):
    """Adds to a worker's heartbeat what the worker alone knows, and reports once at the end."""

    def __init__(self, name: str, level: str) -> None:
        self.name = name
        self.level = level

    def setup(self, worker: Any) -> None:
        """Start when the worker joins."""
        self.worker = worker
        self.lag = LoopLag()
        self.peak = 0
        self.trimmed = False
        # The high-water mark belongs to the process: who resets it tells all other probes in it,
        # of other captures and, where workers share a process, of other workers.
        self.siblings = vars(distributed).setdefault("_benchkit_probes", {})
        self.siblings[self.name, worker.address] = self
        self.peers: dict[str, int] = {}
        self.transfers = array("d")
        self.n_missed = 0
        self.logs = (worker.transfer_incoming_log, worker.transfer_outgoing_log)
        self.newest = [log[-1] if log else None for log in self.logs]
        worker.metrics[self.name] = self.read
        worker.handlers[f"{self.name}_report"] = self.report

    def teardown(self, worker: Any) -> None:
        """Leave no trace; a worker that closes in peace says so, because one that dies cannot."""
        if worker.status.name.startswith("closing"):
            with contextlib.suppress(Exception):
                worker.log_event(self.name, {"leaving": worker.address})
        worker.metrics.pop(self.name, None)
        worker.handlers.pop(f"{self.name}_report", None)
        self.siblings.pop((self.name, worker.address), None)
        if not self.siblings:
            vars(distributed).pop("_benchkit_probes", None)
        self.lag.stop()

    def read(self, worker: Any) -> dict[str, float]:
        """Return the values of this heartbeat."""
        self._note_transfers()
        peak = _high_water_mark()
        for probe in list(self.siblings.values()):
            probe.peak = max(probe.peak, peak)
        out = {"rss_peak": self.peak or NAN, "tick_max": self.lag.read()[1]}
        self.peak = 0
        process = worker.monitor.proc
        with contextlib.suppress(Exception):
            cpu = process.cpu_times()
            out["cpu_time"] = cpu.user + cpu.system
        with contextlib.suppress(Exception):
            counters = process.io_counters()
            out["io_read"], out["io_write"] = counters.read_bytes, counters.write_bytes
        with contextlib.suppress(Exception):
            import psutil

            out["net_read_total"] = psutil.net_io_counters().bytes_recv
        return out

    def _note_transfers(self) -> None:
        """Copy what is new in the worker's own logs, which keep the last 1000 only."""
        for direction, log in enumerate(self.logs):
            fresh: list[dict] = []
            for entry in reversed(log):
                if entry is self.newest[direction]:
                    break
                fresh.append(entry)
            else:
                self.n_missed += bool(log) and len(log) == log.maxlen  # at least one
            if fresh:
                self.newest[direction] = fresh[0]
            for entry in reversed(fresh):
                if len(self.transfers) >= 6 * MAX_TRANSFERS:
                    self.n_missed += 1
                    continue
                who = str(entry.get("who"))
                self.transfers.extend(
                    (
                        direction,
                        self.peers.setdefault(who, len(self.peers)),
                        entry["stop"],
                        entry["total"],
                        NAN if entry.get("compressed") is None else entry["compressed"],
                        entry["duration"],
                    )
                )

    def report(self, start: float, stop: float) -> dict[str, Any]:
        """Return what is asked for once, when the clock has stopped: plain lists and numbers."""
        out: dict[str, Any] = {"errors": []}
        questions: dict[str, Any] = {"transfers": self._sum_transfers, "logs": self._log_lines}
        if self.level == "full":
            questions |= {"profile": self._call_stacks, "memory": self._trimmed_memory}
        for name, ask in questions.items():
            try:
                out[name] = ask(start, stop)
            except Exception as error:
                out["errors"].append(f"{name}: {type(error).__name__}: {text(error, 200)}")
        if self.n_missed:
            out["errors"].append(f"transfers: {self.n_missed} or more were not counted")
        return out

    def _sum_transfers(self, start: float, stop: float) -> list[list]:
        """Return rows of outgoing 0 or 1, peer's address, count, bytes, compressed, seconds."""
        self._note_transfers()
        peers = list(self.peers)
        sums: dict[tuple, list[float]] = {}
        rows = iter(self.transfers)
        for direction, peer, moment, nbytes, compressed, seconds in zip(*[rows] * 6, strict=True):
            if start <= moment <= stop:
                found = sums.setdefault((int(direction), peers[int(peer)]), [0, 0.0, 0.0, 0.0])
                for index, value in enumerate((1, nbytes, compressed, seconds)):
                    found[index] += value
        return [[*pair, *found] for pair, found in sums.items()]

    def _log_lines(self, start: float, stop: float) -> list[list]:
        return warnings_of(self.worker, start - self.worker.scheduler_delay)

    def _call_stacks(self, start: float, stop: float) -> dict[str, list]:
        """Return the call stacks of tasks, sampled by the worker itself, as a flat tree.

        Nodes are rows of (parent or -1, index of the frame, count), a parent before its children;
        the roots' frames are prefixes of tasks.
        """
        worker = self.worker
        by_prefix: dict[str, list[dict]] = defaultdict(list)
        for moment, trees in list(worker.profile_keys_history):
            if start <= moment <= stop + 1:  # a cycle of a second ends after what it tells of
                for prefix, tree in trees.items():
                    by_prefix[prefix].append(tree)
        for prefix, tree in worker.profile_keys.items():
            by_prefix[prefix].append(tree)
        frames: dict[tuple, int] = {}
        nodes: list[int] = []
        for prefix, trees in by_prefix.items():
            tree = profile.merge(*trees)
            if tree["count"]:
                _flatten(tree, (text(prefix), "", 0), frames, nodes)
        return {"frames": [list(frame) for frame in frames], "nodes": nodes}

    def _trimmed_memory(self, start: float, stop: float) -> float:
        """Return RSS in B after free memory was given back; NaN where that would be no measure."""
        if any(name != self.name for name, _ in self.siblings):
            return NAN  # somebody else is measuring here, whose memory this would change
        import ctypes

        # Workers that share a process share its memory: with hundreds it is given back once.
        if not any(probe.trimmed for probe in self.siblings.values()):
            try:
                ctypes.CDLL("libc.so.6").malloc_trim(0)
            except (OSError, AttributeError):
                return NAN  # not Linux with the GNU library
            self.trimmed = True
        return float(self.worker.monitor.proc.memory_info().rss)


def _flatten(tree: dict, root: tuple, frames: dict[tuple, int], nodes: list[int]) -> None:
    stack = [(tree, -1, root)]
    while stack:  # not by recursion: stacks of tasks can be as deep as Python's own
        node, parent, frame = stack.pop()
        number = len(nodes) // 3
        nodes += [parent, frames.setdefault(frame, len(frames)), node["count"]]
        for child in node["children"].values():
            code = child["description"]
            place = (text(code["name"]), text(code["filename"]), code["line_number"])
            stack.append((child, number, place))


def warnings_of(server: Any, start: float) -> list[list]:
    """Return rows of time, level, text that a server logged since `start`, on its own clock."""
    lines = server.get_logs(start=start, timestamps=True)
    kept = [line for line in lines if line[1] not in IDLE_TALK][:MAX_LOG_LINES]
    return [[moment, level, text(line)] for moment, level, line in reversed(kept)]


def _high_water_mark() -> int:
    """Return the highest RSS of this process since the last call in bytes, or 0 if unknown.

    Linux keeps it as VmHWM; writing 5 to clear_refs starts it anew (proc(5)).
    """
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    peak = int(line.split()[1]) * 1024
                    break
            else:
                return 0
        with open("/proc/self/clear_refs", "wb") as file:
            file.write(b"5")
    except OSError:
        return 0
    return peak
