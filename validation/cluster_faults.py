"""Faults of a cluster in the middle of a measured run, and what they lose.

A steady workload runs on a scheduler and two workers in separate
processes, measured by another process; each task writes the time of its end to a file. In the
middle a fault happens. Then the run is read from a store, and its tasks are compared with those
files. A capture is drained each second: tasks that ended less than a second before a scheduler or a
client was killed, or before a disk was full, may be lost; earlier tasks may not. Only tasks are
compared; more is lost of the data polled from workers every five seconds (call stacks, transfers,
warnings).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from distributed import Client, fire_and_forget

from benchkit import Store
from benchkit.measure.capture_client import DRAIN_EVERY_S
from benchkit.store.build.run_from_recording import run_from_recording

__all__ = ["FAULTS", "compare", "try_once"]

ROOT = Path(__file__).parents[1]
#: Tasks of 50 ms on two threads: seven seconds in total.
N_TASKS = 280
#: Seconds from the first task to the fault.
FAULT_AT_S = 3.0
#: Seconds to send a call and to write a segment, in addition to the drain interval.
SLACK_S = 0.3
DEADLINE_S = 25.0

STEADY = """
import os, time
from benchkit.measure import workload

def stamp(number, folder):
    time.sleep(0.05)
    line = f"{number} {time.time()}\\n".encode()
    file = os.open(os.path.join(folder, "stamps"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)

@workload(category="fault", deadline_s=DEADLINE_S)
def steady(client):
    \"\"\"Tasks of 50 ms, each of which writes the time of its end.\"\"\"
    keys = [f"stamp-{number}" for number in range(N_TASKS)]
    folder = os.environ["BENCHKIT_STAMPS"]
    return client.map(stamp, range(N_TASKS), folder=folder, key=keys, retries=5)
""".replace("N_TASKS", str(N_TASKS)).replace("DEADLINE_S", str(DEADLINE_S))

MEASURE = """
import sys
from benchkit.measure.entrypoint import measure

if __name__ == "__main__":
    address, folder = sys.argv[1:]
    print(measure("fault.steady", workloads=["workloads"], folder=folder,
                  cluster={"address": address}))
"""


@dataclass
class Stage:
    """Processes and folders of one fault, and the time at which it happened."""

    folder: Path
    scheduler: subprocess.Popen
    measuring: subprocess.Popen
    address: str
    fault_time: float = 0.0

    @property
    def recordings(self) -> Path:
        """Return the folder in which the measuring process writes recordings."""
        return self.folder / "store" / "tmp" / "recordings"

    @property
    def stamps(self) -> dict[str, float]:
        """Return the time at which each task ended, by key, as the task wrote it."""
        path = self.folder / "stamps"
        lines = path.read_text().splitlines() if path.exists() else []
        return {f"stamp-{line.split()[0]}": float(line.split()[1]) for line in lines}


# -- faults ---------------------------------------------------------------------------------------


def kill_scheduler(stage: Stage) -> None:
    """Kill the scheduler."""
    stage.scheduler.send_signal(signal.SIGKILL)


def kill_worker(stage: Stage) -> None:
    """Kill a worker; its nanny starts another."""
    with Client(stage.address, set_as_default=False) as client:
        pids = client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)


def kill_client(stage: Stage) -> None:
    """Kill the measuring process; the next check of the store recovers its recording."""
    stage.measuring.send_signal(signal.SIGKILL)


def hold_gil(stage: Stage) -> None:
    """Hold the GIL of a worker in a task for longer than the deadline."""

    def hold() -> None:
        import ctypes

        ctypes.PyDLL(None).sleep(60)  # PyDLL, unlike CDLL, keeps the GIL

    with Client(stage.address, set_as_default=False) as client:
        fire_and_forget(client.submit(hold, key="hold", priority=100))
        time.sleep(0.5)


def block_scheduler(stage: Stage) -> None:
    """Block the scheduler's loop for 10 s."""
    with Client(stage.address, set_as_default=False) as client:
        client.run_on_scheduler(time.sleep, 10)


def fill_disk(stage: Stage) -> None:
    """Fill the disk that holds the store completely."""
    with open(stage.folder / "store" / "other", "wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))


#: Fault -> expected outcome, whether tasks that ended within a drain interval may be lost, and the
#: number of tasks that a worker could not report because a task held the GIL.
FAULTS: dict[Callable[[Stage], None], tuple[str, bool, int]] = {
    kill_scheduler: ("infrastructure", True, 0),
    kill_worker: ("ok", False, 0),
    kill_client: ("infrastructure", True, 0),
    hold_gil: ("timeout", False, 1),
    block_scheduler: ("ok", False, 0),
    fill_disk: ("ok", True, 0),
}


# -- processes ------------------------------------------------------------------------------------


@contextlib.contextmanager
def started_stage(folder: Path) -> Iterator[Stage]:
    """Start scheduler, workers and the measuring process; wait for the first task."""
    started: list[subprocess.Popen] = []

    def start(*command: str, **options: object) -> subprocess.Popen:
        streams = {"stdout": subprocess.DEVNULL, "stderr": open(folder / "log", "ab"), **options}
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "BENCHKIT_STAMPS": str(folder)},
            start_new_session=True,
            **streams,  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    (folder / "workloads").mkdir()
    (folder / "workloads" / "fault.py").write_text(STEADY)
    (folder / "go.py").write_text(MEASURE)
    where = folder / "scheduler.json"
    options = ("--scheduler-file", str(where), "--no-dashboard")
    scheduler = start("-m", "distributed.cli.dask_scheduler", "--port", "0", *options)
    for _ in range(2):
        limits = ("--nthreads", "1", "--memory-limit", "512MiB")
        start("-m", "distributed.cli.dask_worker", *limits, *options)
    try:
        wait_for(lambda: where.exists() and where.read_text().endswith("}"))
        address = json.loads(where.read_text())["address"]
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        recordings = folder / "store" / "tmp" / "recordings"
        recordings.mkdir(parents=True)
        measuring = start("go.py", address, str(recordings), stdout=subprocess.PIPE, text=True)
        stage = Stage(folder, scheduler, measuring, address)
        wait_for(lambda: bool(stage.stamps))
        yield stage
    finally:
        for process in started:  # and its children: a nanny starts a worker
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait until a condition holds."""
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            raise TimeoutError("the process did not start")
        time.sleep(0.05)


@contextlib.contextmanager
def small_disk(folder: Path, wanted: bool) -> Iterator[None]:
    """Mount a disk of 4 MiB at the path of the store."""
    if not wanted:
        yield
        return
    store = folder / "store"
    store.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(store)],
        check=True,
        capture_output=True,
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(store)], check=True)


def try_once(fault: Callable[[Stage], None]) -> dict:
    """Cause one fault once; return the run, the end times of tasks and the time of the fault."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as name,
        small_disk(Path(name), fault is fill_disk),
    ):
        folder = Path(name)
        with started_stage(folder) as stage:
            time.sleep(FAULT_AT_S)
            stage.fault_time = time.time()
            fault(stage)
            output, _ = stage.measuring.communicate(timeout=180)
            stamps = stage.stamps
        if fault is fill_disk:
            (folder / "store" / "other").unlink()
        if fault is kill_client:
            time.sleep(6)  # after this time the recording counts as abandoned
            store = Store(folder / "store")
            (run_id,) = store.check().rescued
        else:
            store = Store(folder / "store")
            run_id = store.add(run_from_recording(Path(output.split()[-1])))
        run = store.open(run_id)
        return {"run": run, "stamps": stamps, "fault_time": stage.fault_time}


def compare(result: dict, may_lose: bool, n_unreported: int) -> dict:
    """Compare the tasks of the run with the times that the tasks wrote."""
    run, stamps, fault_time = result["run"], result["stamps"], result["fault_time"]
    blob = run.tree["tasks/key_blob"].values.tobytes()
    kept = set(zlib.decompress(blob).decode().split("\n"))
    missing = [moment for key, moment in stamps.items() if key not in kept]
    limit = fault_time - DRAIN_EVERY_S - SLACK_S if may_lose else float("inf")
    rows = int(run.tree["tasks"].sizes["task"])
    counted = int(run.task_groups()["n_tasks"].sum())
    errors = json.loads(run.tree.attrs["capture_errors"])
    return {
        "outcome": run.outcome,
        "ended": len(stamps),
        "kept": len(kept & stamps.keys()),
        "missing": len(missing),
        "beyond": max(0, sum(moment < limit for moment in missing) - n_unreported),
        "oldest": max((fault_time - moment for moment in missing), default=0.0),
        "unequal": rows + int(run.tree["tasks"].attrs["n_dropped"]) != counted,
        "errors": [re.sub(r"tcp://\S+", "...", line) for line in errors],
    }
