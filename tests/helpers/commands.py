"""Run a command; one that does not end fails the test with the call stacks of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
#: Seconds in which a process writes its stacks.
_STACKS_S = 2.0


def run_python(
    words: Sequence[str | Path], folder: Path, *, timeout_s: float = 600, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter of the tests with arguments, in a folder, with benchkit of this tree."""
    done = {"BENCHKIT_STORE": "", "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", **variables}
    environment = {key: value for key, value in {**os.environ, **done}.items() if value}
    process = subprocess.Popen(
        [sys.executable, *map(str, words)], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    try:
        out, error = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _abort(process.pid)
        out, error = process.communicate()
        logs = "".join(
            f"\n{path.name}:\n{path.read_text(errors='replace')[-8000:]}"
            for path in Path(tempfile.gettempdir()).glob(f"benchkit-*-{process.pid}-*/kernel-*.log")
        )
        pytest.fail(
            f"no end within {timeout_s:g} s: {' '.join(map(str, words))}\n"
            f"{out[-2000:]}{error[-8000:]}{logs}"
        )
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def _abort(pid: int) -> None:
    """Let a process and all its children write their call stacks to stderr and end."""
    main = psutil.Process(pid)
    children = main.children(recursive=True)
    main.suspend()  # or it starts others for those that end
    for child in children:
        with suppress(psutil.Error):
            child.send_signal(signal.SIGABRT)
            child.resume()
    psutil.wait_procs(children, timeout=_STACKS_S)
    main.send_signal(signal.SIGABRT)
    main.resume()
    for child in children:
        with suppress(psutil.Error):
            child.kill()
