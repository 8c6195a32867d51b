"""Lock a dataset against concurrent processes while it is made or removed."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchkit.measure.errors import DatasetError

try:
    import fcntl
except ImportError:  # Windows has no such lock; the rename is still atomic
    fcntl = None  # type: ignore[assignment]

#: The largest recipe takes minutes; a longer wait means that the other process hangs.
LOCK_TIMEOUT_S = 3600.0
#: Seconds between two attempts to get the lock: far less than making any data takes.
LOCK_POLL_S = 0.1
#: Error numbers of file systems without locks (some network and cluster file systems).
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextmanager
def dataset_lock(folder: Path, key: str, *, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the lock of a dataset; the kernel releases it when the process ends."""
    timeout_s = LOCK_TIMEOUT_S if timeout_s is None else timeout_s
    path = folder / "locks" / f"{key}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Never remove the file: two processes could then lock two files of the same name.
    with path.open("a+") as file:
        _acquire(file, key, time.monotonic() + timeout_s)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _acquire(file: Any, key: str, end: float) -> None:
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() >= end:
                file.seek(0)
                raise DatasetError(
                    f"dataset {key} is being made by {file.read() or 'another process'}: "
                    "wait, or end that process"
                ) from error
            time.sleep(LOCK_POLL_S)
        else:
            return
