"""Hosts on one machine, for tests of Dask on a network.

A host has a name, processes, a boot id, clocks and a network link of its own: it is a set of
namespaces of the kernel. A link has a rate, a latency, a loss, and can be cut, each while programs
run; its counters of bytes are the kernel's. All hosts end with the process that made them, however
that ends, and leave nothing. Shared are the machine's processors, memory and files.

Needs Linux, /dev/net/tun, Debian's `iproute2` and `util-linux`, and root or user namespaces.
The measured side imports this module, too: standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from validation.hosts.sitecustomize import CLOCK, UPTIME, set_clock
from validation.hosts.switch import FOLDER, UPTIME_STEP_S

__all__ = ["SITE", "UPTIME_STEP_S", "Hosts", "Network", "missing"]

#: Folder of `sitecustomize`.
SITE = Path(__file__).parent
ROOT = SITE.parents[1]
PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
#: Seconds until a scheduler and workers run, on a busy machine.
START_S = 120.0


def missing() -> str:
    """Return in a line what this machine lacks for hosts and how to get it; "" if nothing."""
    for program, package in PROGRAMS.items():
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            return f"{program} is not installed: apt-get install {package}"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened: run the tests as root, or chmod 666 /dev/net/tun"
    words = ["unshare", "--user", "--map-root-user", "--net", "--mount", "mount", "-t", "tmpfs"]
    if subprocess.run([*words, "hosts", FOLDER], capture_output=True).returncode:
        return (
            "namespaces cannot be made: run the tests as root, or "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
    return ""


class Network:
    """The hosts as their client sees them: ``Network()`` in a program on the host "client"."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self.pids: dict[str, int] = json.loads(Path(f"{root}{FOLDER}/hosts.json").read_text())

    def ip(self, host: str) -> str:
        """Return the address of a host."""
        return f"10.0.0.{list(self.pids).index(host) + 1}"

    def set_link(self, host: str, **settings: float) -> None:
        """Change the link of a host: `rate` in Mbit/s, `latency` in ms, `loss` in %, `up`."""
        with socket.socket(socket.AF_UNIX) as switch:
            switch.connect(f"{self._root}{FOLDER}/control")
            switch.send(json.dumps([list(self.pids).index(host), settings]).encode())
            assert switch.recv(10) == b"done"

    def set_clock(self, host: str, ahead_s: float) -> None:
        """Set the wall clock of a host to that of the machine and some seconds."""
        set_clock(f"{self._root}{FOLDER}/clock-{host}", ahead_s)

    def pid(self, host: str, pid: int) -> int:
        """Return the process id that a process of a host has where its client sees it."""
        own = os.readlink(f"{self._root}/proc/{self.pids[host]}/ns/pid")
        for folder in Path(f"{self._root}/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended
                status = (folder / "status").read_text()
                (line,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
                if line.split()[-1] == str(pid) and os.readlink(folder / "ns/pid") == own:
                    return int(folder.name)
        raise ProcessLookupError(f"{host} has no process {pid}")

    def counters(self, host: str) -> tuple[int, int]:
        """Return the bytes that a host's link received and sent, as its kernel counts them."""
        table = Path(f"{self._root}/proc/{self.pids[host]}/net/dev").read_text()
        (line,) = (line for line in table.splitlines() if line.strip().startswith("eth0:"))
        fields = line.split(":")[1].split()
        return int(fields[0]), int(fields[8])

    def received_by_workers(self) -> int:
        """Return the bytes that the links of the workers' hosts received."""
        workers = [host for host in self.pids if host not in ("node0", "client")]
        return sum(self.counters(host)[0] for host in workers)


class Hosts(Network):
    """Hosts node0, node1, ... and "client", while a ``with`` block runs.

    All links begin alike: `rate` is in Mbit/s in each direction, `loss` in % of the packets on a
    link. A packet passes two links, so that to another host and back takes four times `latency`
    (ms). `clocks` are the seconds by which wall clocks are ahead. Each host's monotonic clock is
    `UPTIME_STEP_S` ahead of the one before it. Logs and workers' directories are in `folder`.
    """

    def __init__(
        self,
        n: int,
        folder: Path,
        *,
        rate: float = 1000.0,
        latency: float = 0.1,
        loss: float = 0.0,
        clocks: dict[str, float] | None = None,
        path: str = os.pathsep.join(map(str, (ROOT, ROOT / "tests"))),
    ) -> None:
        self.names = [f"node{number}" for number in range(n)]
        self._folder, self._path = folder, path
        self._link = (rate, latency, loss)
        self._clocks = clocks or {}
        self._started: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Hosts:
        words = ["unshare", "--user", "--map-root-user", "--net", "--uts", "--pid", "--mount"]
        words += ["--fork", "--kill-child", sys.executable, "-I", str(SITE / "switch.py")]
        self._switch = subprocess.Popen(
            [*words, *map(str, self._link), *self.names],
            stdin=subprocess.PIPE,  # ends when this process ends, and the hosts with it
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert self._switch.stdout is not None
        try:
            self._pid = int(self._switch.stdout.readline())
            assert self._switch.stdout.readline() == "ready\n"
            with suppress(OSError):  # else other programs delay the packets
                realtime = os.SCHED_RR | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(self._pid, realtime, os.sched_param(1))
            super().__init__(f"/proc/{self._pid}/root")
            for name in self.pids:
                self.set_clock(name, self._clocks.get(name, 0.0))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.close()
        self._switch.stdout.close()
        for process in (self._switch, *self._started):
            process.wait(60)

    def start_cluster(
        self,
        python: str = sys.executable,
        *,
        nthreads: int = 1,
        memory_limit: str = "1 GiB",
        env: Any = None,
    ) -> str:
        """Start a scheduler on node0 and a worker on each other node; return the address."""
        dask, (scheduler, *workers) = [python, "-m"], self.names
        address = f"tcp://{self.ip(scheduler)}:8786"
        options = ["--host", self.ip(scheduler), "--port", "8786", "--no-dashboard"]
        self.start(scheduler, [*dask, "distributed.cli.dask_scheduler", *options], env=env)
        for name in workers:
            options = ["--host", self.ip(name), "--name", name, "--no-dashboard"]
            options += ["--nthreads", str(nthreads), "--memory-limit", memory_limit]
            options += ["--local-directory", str(self._folder / name)]
            self.start(name, [*dask, "distributed.cli.dask_worker", address, *options], env=env)
        end = time.monotonic() + START_S
        for name in workers:
            while "Registered to:" not in self.log(name):
                assert time.monotonic() < end, f"{name}: no worker: {self.log(name)[-2000:]}"
                time.sleep(0.05)
        return address

    def start(
        self, host: str, words: list[str], *, cwd: Path | None = None, env: Any = None, **pipes: Any
    ) -> subprocess.Popen[Any]:
        """Start a program on a host; its output goes to the host's log."""
        spaces = f"{self._root}/proc/{self.pids[host]}/ns"
        files = {"mount": "mnt", "uts": "uts", "net": "net", "pid": "pid"}
        if host in self.names:  # the client has the machine's
            files["time"] = "time"
        enter = ["nsenter", "--preserve-credentials", f"--user=/proc/{self._pid}/ns/user"]
        enter += [f"--{name}={spaces}/{file}" for name, file in files.items()]
        enter += ["sh", "-c", 'cd "$0" && exec "$@"', str(cwd or self._folder)]
        given = os.environ if env is None else env
        own = {CLOCK: f"{FOLDER}/clock-{host}", "PYTHONPATH": f"{SITE}:{self._path}"}
        if host in self.names:
            own[UPTIME] = str(UPTIME_STEP_S * (self.names.index(host) + 1))
        with open(self._folder / f"{host}.log", "ab") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **pipes}
            process = subprocess.Popen(
                [*enter, *words], env={**given, **own}, start_new_session=True, **options
            )
        self._started.append(process)
        return process

    def run(self, words: list[str], *, timeout: float = 240.0, **options: Any) -> Any:
        """Run a program on the host "client" to its end, like `subprocess.run`."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = self.start("client", words, **pipes, **options)
        output, errors = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def log(self, host: str) -> str:
        """Return what the programs of a host wrote."""
        return (self._folder / f"{host}.log").read_text()
