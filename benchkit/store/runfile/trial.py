"""Read an HDF5 file without a digest completely, in another process with limits.

Damage can make HDF5 loop in C code, under the lock that all readers of a process share, and a file
of 2 MB can hold gigabytes of zeros. The other process is kept for the next file, and ends when it
has waited `IDLE_S` or with the process that uses it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["IDLE_S", "MOST_BYTES", "MOST_CPU_S", "TrialError", "check_size", "try_to_read"]

#: CPU seconds to read one file of up to 10 MB; larger files get more in proportion.
MOST_CPU_S = 10
#: Seconds of wall time for each CPU second: the machine may be busy.
_WALL_PER_CPU = 12
#: Bytes of memory that a variable may need, and times its size in the file above that.
MOST_BYTES = 2**26
_MOST_RATIO = 200
#: Bytes of memory of the other process.
_MOST_MEMORY = 4 * 2**30
#: Seconds without a file after which the other process ends.
IDLE_S = 60
_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None


class TrialError(Exception):
    """A file cannot be read within the limits."""


def check_size(name: str, n_bytes: int, n_stored: int) -> None:
    """Raise an error for a variable that needs far more memory than it has in the file."""
    if n_bytes > max(MOST_BYTES, _MOST_RATIO * n_stored):
        raise ValueError(f"{name} has {n_stored} B in the file, but needs {n_bytes} B of memory")


def try_to_read(path: Path, size: int) -> None:
    """Read a file in another process."""
    cpu_s = max(MOST_CPU_S, round(MOST_CPU_S * size / 1e7))
    try:
        with _lock:
            answer = _ask({"path": str(path.absolute()), "cpu_s": cpu_s}, _WALL_PER_CPU * cpu_s)
    except OSError as error:
        from benchkit.errors import StoreError  # not in the other process

        text = f"{path}: has no digest, and no process starts that tries to read it"
        raise StoreError(f"{text}: {error.strerror or error}") from error
    if answer is None:
        raise TrialError(f"HDF5 needs more than {cpu_s} s of CPU or {_MOST_MEMORY // 2**30} GiB")
    if answer:
        raise TrialError(answer)


def _ask(request: dict[str, Any], wall_s: float) -> str | None:
    """Return the answer of the other process: "" or an error; None if it died or was too slow."""
    global _process
    if _process is None or _process.poll() is not None:
        _process = _start()
    for attempt in (1, 2):
        assert _process.stdin is not None
        try:
            _process.stdin.write(json.dumps(request).encode() + b"\n")
            _process.stdin.flush()
            break
        except OSError:  # it ended after `IDLE_S`
            if attempt == 2:
                raise
            _process = _start()
    assert _process.stdout is not None
    answer = _read_line(_process.stdout, wall_s)
    if answer is None:
        _process.kill()
        _process.wait()
        _process = None
    return answer


def _start() -> subprocess.Popen[bytes]:
    # By its file: the package `benchkit` imports xarray, which takes a second.
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).absolute())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # threads reserve memory
    )


def _read_line(stream: IO[bytes], wall_s: float) -> str | None:
    """Return the text in the next line; None after `wall_s`, or if the stream ended."""
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(wall_s)
    return str(json.loads(lines[0])) if lines and lines[0] else None


# -- in the other process -------------------------------------------------------------------------


def _serve() -> None:
    """Answer requests until the pipe is closed, or for `IDLE_S` there is none."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stream = os.fdopen(0, "rb", buffering=0)
    while _is_asked(stream):
        line = stream.readline()
        if not line:
            return
        request = json.loads(line)
        _limit_cpu(request["cpu_s"])
        os.write(1, json.dumps(_error_of(request["path"])).encode() + b"\n")


def _is_asked(stream: IO[bytes]) -> bool:
    """Wait for a request or the end of the stream; return whether there was one in `IDLE_S`."""
    if os.name == "nt":  # cannot wait for a pipe with a timeout
        return True
    return bool(select.select([stream], [], [], IDLE_S)[0])


def _limit_cpu(seconds: int) -> None:
    """End this process by a signal if it uses more CPU from now on."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + seconds + 1
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def _error_of(path: str) -> str:
    """Read a file completely; return what is wrong, or an empty text."""
    import h5py

    def visit(item: Any) -> None:
        for attribute in item.attrs:
            item.attrs[attribute]
        if isinstance(item, h5py.Dataset):
            check_size(item.name, item.nbytes, item.id.get_storage_size())
            if item.dtype.kind == "O":
                item.asstr()[()] if h5py.check_string_dtype(item.dtype) else item[()]
            else:
                item[()]

    try:
        with h5py.File(path, "r") as file:
            visit(file)
            file.visititems(lambda name, item: visit(item))
    except MemoryError:
        return f"HDF5 needs more than {_MOST_MEMORY // 2**30} GiB of memory"
    except Exception as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ""


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules have common names
    _serve()
