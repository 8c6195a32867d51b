"""A folder with workloads and environments, and the commands that measure them on a cluster."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from benchkit.store.store import Store
from helpers.commands import run_benchkit

#: Variable that marks all processes of a test's cluster.
MARK = "BENCHKIT_TEST_CLUSTER"
#: Seconds until processes and jobs of a closed cluster are gone.
GONE_WITHIN_S = 30.0
WORKLOAD = """import time
from benchkit.measure import workload

@workload(metrics={"memory": "B", "threads": "1"})
def naps(client, scale):
    "Sleep on each thread."
    return client.map(lambda i: time.sleep(0.2), range(scale.threads), pure=False)

@naps.check
def _(result, scale):
    return {"memory": scale.memory, "threads": scale.threads}
"""


class Project:
    """Workload ``own.naps``, environments, a store.

    Parameters
    ----------
    folder : path
        Empty folder.
    mark : str
        Value of `MARK` in the processes of the cluster.
    variables : mapping of str to str, optional
        Environment variables of the commands.
    hosts : validation.hosts.Hosts, optional
        Hosts on whose client the commands run.
    **clusters : mapping
        Cluster options of each environment, by its name.
    """

    def __init__(
        self, folder: Path, mark: str, variables=None, hosts=None, **clusters: dict[str, Any]
    ) -> None:
        self.folder, self.mark, self.hosts = folder, mark, hosts
        self.variables = {**os.environ, MARK: mark, **(variables or {})}
        (folder / "w").mkdir(parents=True, exist_ok=True)
        (folder / "w" / "own.py").write_text(WORKLOAD)
        for name, cluster in clusters.items():
            self.add(name, cluster)

    def add(self, name: str, cluster: dict[str, Any], **more: Any) -> None:
        """Write an environment file."""
        path = self.folder / "e" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump({"cluster": cluster, **more}))

    def command(self, *arguments: str, timeout_s: float = 240.0):
        """Run a benchkit command to its end."""
        folders = ["--workloads", "w", "--environments", "e", "--store", "store"]
        words = [arguments[0], *folders, *arguments[1:]]
        if self.hosts is None:
            return run_benchkit(words, self.folder, timeout_s=timeout_s, **self.variables)
        return self.hosts.run(
            [sys.executable, "-m", "benchkit", *words],
            cwd=self.folder,
            env=self.variables,
            timeout=timeout_s,
        )

    def runs(self) -> list[dict[str, Any]]:
        """Return outcome, cluster and metrics of each stored run, oldest first."""
        if not (self.folder / "store").exists():
            return []
        store = Store(self.folder / "store")
        return [_facts(store, run_id) for run_id in sorted(store.runs()["id"])]

    def processes(self) -> set[psutil.Process]:
        """Return the processes of the cluster."""
        marked = set()
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    marked.add(process)
            except (psutil.Error, OSError):  # it ended
                pass
        return marked

    def assert_run_uses(self, environment: str, *, n_workers: int, memory: int, threads: int):
        """Run the workload once; check the size of the cluster that was measured."""
        done = self.command("run", "-e", environment, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        (record,) = json.loads(done.stdout)
        run = _facts(Store(self.folder / "store"), record["id"])
        assert run["outcome"] == "ok"
        assert run["cluster"]["n_workers"] == n_workers
        assert run["metrics"] == {"memory": memory, "threads": threads}
        assert run["cluster"]["memory_limit"] == memory
        return run

    def assert_ab_has_verdict(self, first: str, second: str, *options: str, n_workers: int):
        """Compare two environments in two blocks; check the verdict, and the cluster of each run.

        Parameters
        ----------
        first, second : str
            The environments.
        *options : str
            More words of the command.
        n_workers : int
            Size of each cluster.
        """
        before = len(self.runs())
        words = (first, second, "-n", "2", "--json", *options)
        done = self.command("ab", *words, timeout_s=900)
        measured = self.runs()[before:]
        failed = [run for run in measured if run["outcome"] not in ("ok", "infrastructure")]
        assert not failed, f"{failed}\n{done.stderr}"
        assert done.returncode in (0, 1), done.stderr + done.stdout
        measured = [run for run in measured if run["outcome"] == "ok"]  # others were repeated
        sizes = [run["cluster"]["n_workers"] for run in measured]
        assert sizes == [n_workers] * len(measured), f"{measured}\n{done.stderr}"
        assert len(measured) >= 4
        rows = [row for row in json.loads(done.stdout) if row["metric"] == "duration"]
        assert [row["workload"] for row in rows] == ["own.naps"]
        assert rows[0]["verdict"] in ("same", "undecided", "slower", "faster"), rows

    def assert_refused(self, environment: str, *texts: str) -> str:
        """Run on a cluster that cannot start: one line, in bounded time, and no run is stored.

        Returns what the command printed to stderr.
        """
        before = len(self.runs())
        done = self.command("run", "-e", environment)  # for a quarter of the default limit at most
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, done.stdout + done.stderr
        for text in texts:
            assert text in lines[0], done.stderr
        assert "Traceback" not in done.stderr + done.stdout, done.stderr + done.stdout
        assert len(self.runs()) == before
        assert done.returncode == 3, done.stderr
        return done.stderr


def _facts(store: Store, run_id: str) -> dict[str, Any]:
    attrs = store.open(run_id).tree.attrs
    record = json.loads(attrs["record"])
    return {
        "outcome": record["outcome"],
        "error": attrs.get("error", ""),
        "traceback": attrs.get("traceback", ""),
        "phase": attrs.get("phase", ""),
        "cluster": json.loads(attrs["cluster_description"]),
        "metrics": json.loads(record["extra_metrics"]),
    }


def require(program: str, package: str) -> str:
    """Return the path of a program; fail without it in CI, skip elsewhere."""
    found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is not installed: apt-get install {package}")
        pytest.skip(f"{program} is not installed")
    return found


def free_port() -> int:
    """Return a TCP port that nothing listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = GONE_WITHIN_S) -> None:
    """Wait until a condition holds; fail with its description."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.2)


def accepts_connections(port: int) -> bool:
    """Return whether a server listens at a port of this machine."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def stop(process: subprocess.Popen, timeout_s: float = 20.0) -> None:
    """End a server, by force if it does not end by itself."""
    process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout_s)
