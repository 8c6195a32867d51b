"""A recording: the raw columns of one execution, on disk as they arrive.

A folder of small JSON files, written by whoever measures and read by whoever keeps:
`head.json` (known before), `NNNNNN.json` (drained segments, in order), `tail.json` (how it ended).
A recording without a tail was killed; what had been drained is all there. Standard library only;
knows nothing of what the columns mean.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["RECORDING_FORMAT", "Recording", "RecordingWriter", "is_abandoned", "is_recording"]

RECORDING_FORMAT = 1
SUFFIX = ".recording"
#: A writer drains each second. One that was not heard of for so long is dead, wherever it was;
#: a dead one's recording is taken by who started it within this time, or by nobody.
SILENT_S, TAKEN_WITHIN_S = 600.0, 5.0
#: Holds place on the disk for the tail, which says how it ended.
ROOM, ROOM_BYTES = ".room", 2**16
#: What of a tail may be long.
LONG_FACTS = ("evidence", "logs", "traceback")


class RecordingWriter:
    """Writes one recording. Each file appears whole or not at all (write, then rename)."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = Path(folder) / f"{run_id}{SUFFIX}"
        self.path.mkdir(parents=True, exist_ok=False)
        self.n_segments = 0
        self._lock = threading.Lock()

    def head(self, **facts: Any) -> None:
        """Write what is known before the run starts."""
        writer = {"pid": os.getpid(), "host": socket.gethostname()}
        self._write("head.json", {"format": RECORDING_FORMAT, "writer": writer, **facts})
        with suppress(OSError):
            (self.path / ROOM).write_bytes(os.urandom(ROOM_BYTES))

    def segment(self, tables: dict) -> None:
        """Append one drained segment: bytes become base64, everything else is JSON.

        From any thread: what is scraped arrives beside what is drained.
        """
        with self._lock:
            self.n_segments += 1
            self._write(f"{self.n_segments:06d}.json", tables)

    def tail(self, **facts: Any) -> None:
        """Write how the run ended. The recording is finished then.

        There is room for this on a disk that became full since the head was written; where it
        needs more than that, logs and evidence stay out.
        """
        (self.path / ROOM).unlink(missing_ok=True)
        facts = _with_names(facts)
        try:
            self._write("tail.json", facts)
        except OSError as error:
            spared = [name for name in LONG_FACTS if facts.pop(name, None)]
            if not spared:
                raise
            line = f"{', '.join(spared)}: {error.strerror or error}"
            errors = [*facts.get("capture_errors", ()), line]
            self._write("tail.json", {**facts, "capture_errors": errors})

    def _write(self, name: str, content: dict) -> None:
        draft = self.path / f".{name}.tmp"
        try:
            draft.write_text(json.dumps(content, default=_encode), encoding="utf-8")
            os.replace(draft, self.path / name)
        finally:
            draft.unlink(missing_ok=True)


def _with_names(content: Any) -> Any:
    """Return content whose dicts have keys that JSON knows: those of Dask's tasks may be tuples."""
    if isinstance(content, dict):
        return {
            name if isinstance(name, str) else str(name): _with_names(value)
            for name, value in content.items()
        }
    return [_with_names(one) for one in content] if isinstance(content, (list, tuple)) else content


def _encode(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if hasattr(value, "item"):  # a NumPy scalar
        return value.item()
    return str(value)


def _decode(content: dict) -> Any:
    return base64.b64decode(content["base64"]) if content.keys() == {"base64"} else content


@dataclass
class Recording:
    """A recording as read back.

    Attributes
    ----------
    head, tail : dict
        Facts from before and after; `tail` is empty when the measuring process was killed.
    segments : list of dict
        Drained tables in order, columns as bytes or lists.
    problems : list of str
        Files that could not be read, one line each.
    """

    path: Path
    head: dict = field(default_factory=dict)
    tail: dict = field(default_factory=dict)
    segments: list[dict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """Read a recording, as much of it as is there.

        Raises
        ------
        FileNotFoundError
            There is no recording at `path`: its head is missing.
        """
        recording = cls(Path(path))
        recording.head = json.loads((recording.path / "head.json").read_text(encoding="utf-8"))
        tail = recording.path / "tail.json"
        if tail.exists():
            recording.tail = json.loads(tail.read_text(encoding="utf-8"))
        for file in sorted(recording.path.glob("[0-9]*.json")):
            try:
                content = json.loads(file.read_text(encoding="utf-8"), object_hook=_decode)
            except (OSError, ValueError) as error:
                recording.problems.append(f"{file.name}: {error}")
            else:
                recording.segments.append(content)
        return recording

    @property
    def finished(self) -> bool:
        """Whether the measuring process lived to say how it ended."""
        return bool(self.tail)

    def column(self, table: str, name: str, code: str) -> array:
        """Return one column over all segments; `code` is its `array` type code."""
        out = array(code)
        for segment in self.segments:
            out.frombytes(segment.get(table, {}).get(name, b""))
        return out

    def block(self, table: str, width: int) -> array:
        """Return a table of float64 rows over all segments, flat; `width` columns a row."""
        out = array("d")
        for segment in self.segments:
            data = segment.get(table, b"")
            out.frombytes(data[: len(data) // (8 * width) * 8 * width])
        return out

    def blob(self, table: str) -> bytes:
        """Return a table of plain bytes over all segments, concatenated."""
        return b"".join(segment.get(table, b"") for segment in self.segments)

    def rows(self, table: str) -> list:
        """Return a list table over all segments, concatenated."""
        return [row for segment in self.segments for row in segment.get(table, ())]

    def last(self, table: str, default: Any = None) -> Any:
        """Return the newest snapshot of a table that is sent whole each time."""
        for segment in reversed(self.segments):
            if table in segment:
                return segment[table]
        return default


def is_abandoned(path: str | Path) -> bool:
    """Whether nobody will take a recording any more: who wrote it is dead, or long silent.

    A finished one is given as long: who started its writer is about to take it.
    """
    path = Path(path)
    newest = max((file.stat().st_mtime for file in path.iterdir()), default=0.0)
    silent_s = time.time() - newest
    if silent_s > SILENT_S:
        return True
    try:
        writer = json.loads((path / "head.json").read_text(encoding="utf-8")).get("writer") or {}
    except (OSError, ValueError):
        return False
    if writer.get("host") != socket.gethostname() or (path / "tail.json").exists():
        return False
    try:
        os.kill(int(writer["pid"]), 0)
    except ProcessLookupError:
        return silent_s > TAKEN_WITHIN_S
    except (OSError, KeyError, ValueError):
        return False
    return False


def is_recording(path: str | Path) -> bool:
    """Whether `path` is a folder that holds a recording."""
    return (Path(path) / "head.json").is_file()
