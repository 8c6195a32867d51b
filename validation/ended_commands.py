"""Run a command of benchkit in a process group of its own, end it, and list what is left."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import psutil

ROOT = Path(__file__).parents[1]
#: Value that must not appear in a file of the store, nor be printed.
SECRET = "PlantedSecret0x7f3a9c1d5e"
#: Seconds in which processes end whose parent was killed.
ORPHANS_S = 40
#: Each run prints the secret, as libraries do in debug logs, and has a task that takes long.
WORKLOAD = """
import os, time
from benchkit.measure import workload

def nap(seconds):
    print("worker: token is", os.environ["NAP_TOKEN"], flush=True)
    open(os.environ["NAP_STAMP"], "a").write("x")
    time.sleep(seconds)
    return 1

@workload(category="ended", deadline_s=60)
def short(client):
    "Sleep for a short time."
    return client.submit(nap, 0.01)

@workload(category="ended", deadline_s=60)
def sleepy(client):
    "Sleep for a long time."
    os.write(1, f"kernel: token is {os.environ['NAP_TOKEN']}\\n".encode())
    return client.submit(nap, 30)
"""
ENVIRONMENT = f"""
cluster: {{n_workers: 1, threads_per_worker: 1}}
variables: {{NAP_TOKEN: {SECRET}}}
"""
FOLDERS = ("--workloads", "w", "--environments", "e")
_TAG = ("--tag", f"api_token={SECRET}")
RUN = ("run", "ended.sleepy", "-e", "plain", *FOLDERS, *_TAG)
AB = ("ab", "plain", "other", "ended.*", *FOLDERS, *_TAG, "-n", "2", "--no-null")
NIGHTLY = ("nightly", "ended.*", "-e", "plain", *FOLDERS, *_TAG, "--output", "night")
BISECT = ("bisect", "ended.short", "-e", "plain", *FOLDERS, *_TAG, "--package", "dask",
          "--good", "2024.9.0", "--bad", "2024.10.0")  # fmt: skip


class EndedCommand:
    """A command that runs in a folder, with its own store and folder for temporary files."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        *,
        prepare: Callable[[], object] | None = None,
        in_terminal: bool = False,
        **variables: str,
    ) -> None:
        self.folder, self.mark = folder, uuid4().hex
        self.store = folder / "store"
        # Not below `folder`: a path of a socket has 107 characters at most.
        self.temporary = Path(tempfile.mkdtemp(prefix="ended-"))
        self.stamp = folder / "stamp"
        for name in ("w", "e"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "w" / "ended.py").write_text(WORKLOAD)
        for name in ("plain", "other"):
            (folder / "e" / f"{name}.yaml").write_text(ENVIRONMENT)
        variables |= {
            "BENCHKIT_STORE": str(self.store), "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT), "ENDED_MARK": self.mark, "NAP_STAMP": str(self.stamp),
        }  # fmt: skip
        self.output = folder / "output"
        self.output.touch()
        self.terminal, output = os.openpty()
        if in_terminal:
            prepare = partial(fcntl.ioctl, output, termios.TIOCSCTTY, 0)
        else:
            os.close(output)
            output = os.open(self.output, os.O_WRONLY)

        def begin() -> None:
            # A background job ignores SIGINT, and one of `nohup` SIGHUP: a process inherits that.
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            if prepare is not None:
                prepare()

        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchkit", *words],
            cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True, preexec_fn=begin,
        )  # fmt: skip
        os.close(output)

    @property
    def text(self) -> str:
        """Return what the command has printed."""
        return self.output.read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """Return the running processes with the environment variable of this command."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError, psutil.Error):
                if self.mark.encode() in path.read_bytes():
                    process = psutil.Process(int(path.parent.name))
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def has_process(self, text: str) -> bool:
        """Return whether a process whose command line contains a text runs."""
        for process in self.processes():
            with suppress(psutil.Error):
                if text in " ".join(process.cmdline()):
                    return True
        return False

    def ports(self) -> list[int]:
        """Return the ports on which processes of this command listen."""
        ports = []
        for process in self.processes():
            with suppress(psutil.Error):
                list_ports = getattr(process, "net_connections", None) or process.connections
                listening = (c for c in list_ports() if c.status == "LISTEN")
                ports += [connection.laddr.port for connection in listening]
        return ports

    def await_state(self, state: str, timeout_s: float = 120) -> None:
        """Wait for a moment: kernel, worker, task, run, tool, or a text that is printed."""
        states: dict[str, Callable[[], bool]] = {
            "kernel": lambda: self.has_process("launch_new_instance"),
            "worker": lambda: self.has_process("spawn_main"),
            "task": self.stamp.exists,
            "run": lambda: any(self.store.glob("runs/*/*.nc")),
            "tool": lambda: self.has_process("uv pip") or self.has_process("uv venv"),
        }
        reached = states.get(state, lambda: state in self.text)
        end = time.monotonic() + timeout_s
        while not reached():
            if time.monotonic() > end or self.process.poll() is not None:
                self.kill()
                raise AssertionError(f"{state} was not reached: {self.text}")
            time.sleep(0.02)

    def files_with_secret(self, *folders: Path) -> list[str]:
        """Return the files below folders, by default the store, that contain the secret."""
        found = []
        for folder in folders or (self.store,):
            for path in folder.rglob("*"):
                with suppress(OSError):
                    if path.is_file() and SECRET.encode() in path.read_bytes():
                        found.append(path.relative_to(folder).as_posix())
        return found

    def drafts(self) -> list[str]:
        """Return hidden files of the store, and what is left of recordings."""
        names = [path.name for path in self.store.glob("experiments/**/.*")]
        return names + [path.name for path in self.store.glob("tmp/recordings/*/*")]

    def remains(self) -> dict[str, Sequence[object]]:
        """Return what the ended command has left, by kind."""
        left: dict[str, Sequence[object]] = {
            "processes": [process.cmdline() for process in self.processes()],
            "ports": self.ports(),
            "temporary": [path.name for path in self.temporary.iterdir()],
            "drafts": self.drafts(),
            "secrets": self.files_with_secret(),
        }
        return {kind: names for kind, names in left.items() if names}

    def send(self, number: int, *, to_group: bool) -> None:
        """Send a signal to the process, and to its group as a terminal and `timeout` do."""
        self.process.send_signal(number)
        if to_group:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def close_terminal(self) -> None:
        """Close the terminal: the system sends SIGHUP, and each later write fails."""
        os.close(self.terminal)

    def await_end(self, timeout_s: float = 90) -> int:
        """Return the exit code; after that, wait for processes without a parent."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        if code == -signal.SIGKILL:
            end = time.monotonic() + ORPHANS_S
            while self.processes() and time.monotonic() < end:
                time.sleep(0.1)
        return code

    def kill(self) -> None:
        """Kill all processes of the command."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        self.process.wait()
