"""Serve the dashboard of a store in a fork of a process that has imported Panel."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from helpers.command_server import CommandServer

#: Seconds in which a server starts, and in which it ends.
MAX_START_S, MAX_END_S = 300, 60
SERVER = CommandServer("benchkit.show.dashboard.server", "benchkit.show.dashboard.app")


@contextmanager
def served(store: str, *options: str, port: int = 0, page: Any = None) -> Iterator[str]:
    """Serve the dashboard of a store; yield its URL.

    Leave `page` before the server ends: the page may still be loading its styles.
    """
    words = ["benchkit", "dashboard", "--store", str(store), "--port", str(port), *options]
    with tempfile.TemporaryDirectory() as output:
        pid = SERVER.start(words, str(Path.cwd()), dict(os.environ), output)
        try:
            yield _printed_url(pid, Path(output))
            if page is not None:
                page.goto("about:blank")
        finally:
            os.kill(pid, signal.SIGTERM)
            assert SERVER.wait(pid, MAX_END_S) is not None, "the server does not end"


def _printed_url(pid: int, output: Path) -> str:
    """Wait until a server has printed its URL."""
    stdout, end = output / "stdout", time.monotonic() + MAX_START_S
    while not (stdout.exists() and stdout.read_text().endswith("\n")):
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE, (output / "stderr").read_text()
        assert time.monotonic() < end, f"no URL in {MAX_START_S} s"
        time.sleep(0.02)
    return stdout.read_text().strip()
