"""Run a command; one that does not end fails the test with the call stacks of its processes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from helpers.command_server import CommandServer

ROOT = Path(__file__).parents[2]
#: Seconds after which a command fails its test; pytest ends the test after 600.
MAX_S = 550.0
#: Seconds in which a process writes its stacks.
_STACKS_S = 2.0
#: Of this process.
_SERVER = CommandServer()


def run_benchkit(
    words: Sequence[str | Path], folder: Path, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command of benchkit by `run_forked`."""
    return run_forked(["benchkit", *words], folder, **options)


def run_forked(
    words: Sequence[str | Path],
    folder: Path,
    *,
    timeout_s: float = MAX_S,
    server: CommandServer = _SERVER,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a module or a script of a folder, in a process that need not import benchkit first."""
    command = list(map(str, words))
    is_script = command[0].endswith(".py")
    if not hasattr(os, "fork"):
        how = command if is_script else ["-m", *command]
        return run_python(how, folder, timeout_s=timeout_s, **variables)
    if is_script:
        command[0] = str(folder / command[0])  # workers import it by its path
    with tempfile.TemporaryDirectory() as output:
        pid = server.start(command, str(folder), _environment(variables), output)
        code = server.wait(pid, timeout_s)
        if is_late := code is None:
            _abort(pid)
            code = server.wait(pid, timeout_s)
        out, error = (Path(output, name).read_text("utf-8") for name in ("stdout", "stderr"))
    if is_late or code is None:
        _fail(pid, command, timeout_s, out, error)
    return subprocess.CompletedProcess(command, code, out, error)


def run_python(
    words: Sequence[str | Path], folder: Path, *, timeout_s: float = MAX_S, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter of the tests with arguments, in a folder, with benchkit of this tree."""
    command = [sys.executable, *map(str, words)]
    process = subprocess.Popen(
        command, cwd=folder, env=_environment(variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    try:
        out, error = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _abort(process.pid)
        out, error = process.communicate()
        _fail(process.pid, command[1:], timeout_s, out, error)
    return subprocess.CompletedProcess(command, process.returncode, out, error)


def _environment(variables: dict[str, str]) -> dict[str, str]:
    done = {"BENCHKIT_STORE": "", "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", **variables}
    return {key: value for key, value in {**os.environ, **done}.items() if value}


def _fail(pid: int, command: list[str], timeout_s: float, out: str, error: str) -> NoReturn:
    logs = "".join(
        f"\n{path.name}:\n{path.read_text(errors='replace')[-8000:]}"
        for path in Path(tempfile.gettempdir()).glob(f"benchkit-*-{pid}-*/kernel-*.log")
    )
    pytest.fail(
        f"no end within {timeout_s:g} s: {' '.join(command)}\n{out[-2000:]}{error[-8000:]}{logs}"
    )


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
