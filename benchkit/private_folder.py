"""Temporary folders for files with secrets: keys, logs and notebooks of kernels, configurations.

A process that is killed leaves its folders; the next one that makes a folder removes them.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from benchkit.interruption import uninterrupted


def private_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that only this user can read; remove those of processes that have ended."""
    # Containers may share the folder, but not their numbers of processes.
    host = re.sub(r"\W", "_", socket.gethostname())
    prefix = f"benchkit-{host}-"
    user = getattr(os, "geteuid", None)  # Windows has none
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        process = folder.name.removeprefix(prefix).partition("-")[0]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            with suppress(OSError):
                if user is None or folder.lstat().st_uid == user():
                    shutil.rmtree(folder, ignore_errors=True)
    with uninterrupted():
        return tempfile.TemporaryDirectory(
            prefix=f"{prefix}{os.getpid()}-", ignore_cleanup_errors=True
        )
