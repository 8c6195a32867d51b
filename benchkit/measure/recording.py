"""A recording: the raw columns of one execution, written to disk while it runs.

A folder of small JSON files: `head.json` (metadata before the start), `NNNNNN.json` (drained
segments, in order), `tail.json` (outcome). Without a tail the measuring process was killed; all
segments drained before that are present. Texts are written without secrets.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchkit.measure.errors import UsageError
from benchkit.measure.secrets import has_secret, redact

#: Rows of samples have other columns in each format, so only this one can be read.
RECORDING_FORMAT = 3
SUFFIX = ".recording"
#: A writer writes a file each second. After this time in s without a new file its process is
#: considered dead, on whatever host it ran.
WRITER_SILENT_S = 600.0
#: Time in s within which the process that started a writer stores the recording of a dead writer.
STORE_WITHIN_S = 5.0
#: Reserves disk space for the tail, so that the outcome can be written to a full disk.
RESERVE_FILE = ".room"
RESERVE_BYTES = 2**16
#: Entries of a tail that may be long; omitted if the disk is full.
LONG_ENTRIES = ("evidence", "logs", "traceback")


class RecordingWriter:
    """Write one recording. Each file is written under a temporary name, then renamed."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = Path(folder) / f"{run_id}{SUFFIX}"
        self.path.mkdir(parents=True, exist_ok=False)
        self.n_segments = 0
        self._lock = threading.Lock()

    def head(self, **facts: Any) -> None:
        """Write the metadata that exist before the run starts."""
        writer = {"pid": os.getpid(), "host": socket.gethostname()}
        content = {"format": RECORDING_FORMAT, "writer": writer, **redact(_with_text_keys(facts))}
        self._write("head.json", content)
        with suppress(OSError):
            (self.path / RESERVE_FILE).write_bytes(os.urandom(RESERVE_BYTES))

    def segment(self, tables: dict[str, Any]) -> None:
        """Append one drained segment.

        Thread-safe: the capture and the end of a run write from different threads.
        """
        # Names of tasks, spans and workers may contain secrets, too; most segments have none.
        if has_secret("\n".join(_texts(tables))):
            tables = redact(tables)
        with self._lock:
            self.n_segments += 1
            self._write(f"{self.n_segments:06d}.json", tables)

    def tail(self, **facts: Any) -> None:
        """Write the outcome, which finishes the recording.

        If the disk became full after the head was written, the reserved space is used. If that is
        not enough, `LONG_ENTRIES` are omitted.
        """
        (self.path / RESERVE_FILE).unlink(missing_ok=True)
        facts = redact(_with_text_keys(facts))
        try:
            self._write("tail.json", facts)
        except OSError as error:
            omitted = [name for name in LONG_ENTRIES if facts.pop(name, None)]
            if not omitted:
                raise
            line = f"{', '.join(omitted)}: {error.strerror or error}"
            errors = [*facts.get("capture_errors", ()), line]
            self._write("tail.json", {**facts, "capture_errors": errors})

    def _write(self, name: str, content: dict[str, Any]) -> None:
        draft = self.path / f".{name}.tmp"
        try:
            draft.write_text(json.dumps(content, default=_encode), encoding="utf-8")
            os.replace(draft, self.path / name)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _with_text_keys(content: Any) -> Any:
    """Return content with all keys of dicts as text: keys of Dask's tasks may be tuples."""
    if isinstance(content, dict):
        return {
            name if isinstance(name, str) else str(name): _with_text_keys(value)
            for name, value in content.items()
        }
    return (
        [_with_text_keys(item) for item in content]
        if isinstance(content, (list, tuple))
        else content
    )


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from _texts(name)
            if isinstance(value, str) and isinstance(name, str):
                yield f"{name}={value!r}"  # so that the name of an entry counts
            else:
                yield from _texts(value)
    elif isinstance(content, (list, tuple, set, frozenset)):
        for item in content:
            yield from _texts(item)


def _encode(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if hasattr(value, "item"):  # a NumPy scalar
        return value.item()
    return str(value)


def _decode(content: dict[str, Any]) -> Any:
    return base64.b64decode(content["base64"]) if content.keys() == {"base64"} else content


@dataclass
class Recording:
    """The content of a recording."""

    path: Path  # Folder of the recording
    # head, tail: Metadata and outcome; `tail` is empty if the measuring process was killed.
    head: dict[str, Any] = field(default_factory=dict)
    tail: dict[str, Any] = field(default_factory=dict)
    # Drained tables in order, columns as bytes or lists.
    segments: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # Files that could not be read, one line each

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """Read a recording, also an incomplete one, of this format."""
        recording = cls(Path(path))
        recording.head = json.loads((recording.path / "head.json").read_text(encoding="utf-8"))
        found = recording.head.get("format")
        if found != RECORDING_FORMAT:
            raise UsageError(
                f"{path}: a recording of format {found}, and this benchkit reads format "
                f"{RECORDING_FORMAT}: `benchkit store check` of the release that wrote it stores it"
            )
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
        """Whether the measuring process wrote the outcome."""
        return bool(self.tail)

    def column(self, table: str, name: str, code: str) -> array[Any]:
        """Return a column of all segments, concatenated."""
        out = array(code)
        for segment in self.segments:
            out.frombytes(segment.get(table, {}).get(name, b""))
        return out

    def block(self, table: str, width: int) -> array[Any]:
        """Return a table of float64 of all segments, concatenated."""
        out = array("d")
        for segment in self.segments:
            data = segment.get(table, b"")
            out.frombytes(data[: len(data) // (8 * width) * 8 * width])
        return out

    def blob(self, table: str) -> bytes:
        """Return a table of bytes of all segments, concatenated."""
        return b"".join(segment.get(table, b"") for segment in self.segments)

    def rows(self, table: str) -> list[Any]:
        """Return a table of rows of all segments, concatenated."""
        return [row for segment in self.segments for row in segment.get(table, ())]

    def last(self, table: str, default: Any = None) -> Any:
        """Return the newest version of a table that is sent completely each time."""
        for segment in reversed(self.segments):
            if table in segment:
                return segment[table]
        return default


def file_system_time(folder: Path) -> float:
    """Return the time of the clock that dates new files in a folder, in s.

    On a network drive that is the server's clock; ages that this machine's clock judges are wrong
    if it is set wrong. Without permission to write it is this machine's clock.
    """
    probe = folder / f".clock-{uuid4().hex}"
    try:
        probe.touch(exist_ok=False)
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink()


def is_abandoned(path: str | Path) -> bool:
    """Return whether no process will write or store a recording any more.

    This is the case if its writer is dead or has not written for `WRITER_SILENT_S`. For a finished
    recording only the second counts: the process that started its writer still stores it.
    """
    path = Path(path)
    newest = max((file.stat().st_mtime for file in path.iterdir()), default=0.0)
    silent_s = file_system_time(path.parent) - newest
    if silent_s > WRITER_SILENT_S:
        return True
    is_finished = (path / "tail.json").exists()
    return not is_finished and silent_s > STORE_WITHIN_S and _writer_ended(path)


def waits_for_adoption(path: str | Path) -> bool:
    """Return whether a finished recording is not stored yet although its writer ended.

    The process that started the writer may have been killed, or stores the recording just now.
    """
    path = Path(path)
    return (path / "tail.json").exists() and not is_abandoned(path) and _writer_ended(path)


def _writer_ended(path: Path) -> bool:
    """Return whether the writer of a recording is a process of this host that ended."""
    import psutil  # with distributed

    try:
        writer = json.loads((path / "head.json").read_text(encoding="utf-8")).get("writer") or {}
        # os.kill(pid, 0) would interrupt the process on Windows.
        is_here = writer.get("host") == socket.gethostname()
        return is_here and not psutil.pid_exists(int(writer["pid"]))
    except (OSError, KeyError, ValueError):
        return False
