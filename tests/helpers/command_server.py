"""Run modules and scripts in forks of one process that has imported what benchkit imports.

A command imports for 2 s of processor time; a fork of this process needs none of it. It is a
process of its own as after `python -m benchkit`: working folder, variables, output, exit code.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class CommandServer:
    """A process that forks itself for each command, with further modules that it has imported."""

    #: Processor time in s of the commands that have ended, with what they started.
    cpu_s = 0.0

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def start(self, words: list[str], folder: str, variables: dict[str, str], output: str) -> int:
        """Start a module, or a script with its path, and arguments; return the process's id."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, *self._modules], text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                )  # fmt: skip
            return int(self._ask(words=words, folder=folder, env=variables, output=output)["pid"])

    def wait(self, pid: int, timeout_s: float) -> int | None:
        """Return the exit code of a command; None if it still runs after the time."""
        with self._lock:
            answer = self._ask(wait=pid, timeout_s=timeout_s)
        CommandServer.cpu_s += answer["cpu_s"]
        code: int | None = answer["code"]
        return code

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return dict(json.loads(self._process.stdout.readline()))
        except BaseException:
            self._process.kill()  # an answer that comes later would be taken for the next one
            raise


def import_commands() -> None:
    """Import what commands and measuring processes import; no thread may start."""
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
    import pandas  # noqa: F401
    import papermill  # noqa: F401
    import xarray  # noqa: F401

    import benchkit.analysis.compare.compare_runs
    import benchkit.analysis.insight.diagnose
    import benchkit.cli.main
    import benchkit.cli.progress
    import benchkit.experiment.nightly.nightly
    import benchkit.experiment.run.api
    import benchkit.show.reports.html
    import benchkit.show.reports.reports
    import benchkit.show.site
    import benchkit.store.store  # noqa: F401


def _serve() -> dict[str, Any] | None:
    """Answer requests; return that of a command in the fork that runs it, None at the end."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            end = time.monotonic() + request["timeout_s"]
            while not (done := os.wait4(request["wait"], os.WNOHANG))[0]:
                if time.monotonic() > end:
                    break
                time.sleep(0.02)
            pid, status, usage = done
            code = os.waitstatus_to_exitcode(status) if pid else None
            answer = {"code": code, "cpu_s": usage.ru_utime + usage.ru_stime}
        else:
            pid = os.fork()
            if not pid:
                return request
            answer = {"pid": pid}
        print(json.dumps(answer), file=replies, flush=True)
    return None


def _become(request: dict[str, Any]) -> None:
    """Give this fork the folder, variables, output and state of a new interpreter."""
    import faulthandler
    import signal
    import tempfile

    import dask.config

    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        path = os.path.join(request["output"], name)
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
    os.closerange(3, 256)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    time.tzset()
    tempfile.tempdir = None
    dask.config.refresh()
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [request["folder"], *filter(None, paths)]


def main() -> None:
    """Serve until stdin ends, or run a command in a fork."""
    import gc
    import importlib
    import runpy

    import_commands()
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()
    request = _serve()
    if request is not None:
        _become(request)
        name, *_ = sys.argv = request["words"]
        if name.endswith(".py"):
            runpy.run_path(name, run_name="__main__")
        else:
            runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # not this folder: its modules have common names
    main()
