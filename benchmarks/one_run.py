"""Measure what a run costs in addition to its work: ``python benchmarks/one_run.py``.

A workload that takes about 5 s is run by hand (a script with a `LocalCluster` of the same size), by
``benchkit run``, and by ``benchkit run -n 3``, which count as three runs; all take turns. Prints
the medians of wall and CPU time per run, and the ratio to the time by hand. For one run: begin and
end of each part in the process of the command, in s. Asserts nothing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_BY_HAND = """
import time
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            client.wait_for_workers(2)
            client.gather(client.map(lambda _: time.sleep(0.2), range(50), pure=False))
"""
_WORKLOAD = """
import time
from benchkit import workload

@workload(category="own")
def naps(client, scale):
    "Fifty naps of 0.2 s on two threads."
    client.gather(client.map(lambda _: time.sleep(0.2), range(50), pure=False))
"""
_ENVIRONMENT = "cluster: {n_workers: 2, threads_per_worker: 1}\n"
#: Prints when the parts of a command begin and end.
_TRACED = """
import sys, time
started = time.time()
def timed(owner, name):
    inner = getattr(owner, name)
    def outer(*args, **kwargs):
        begin = time.time() - started
        try:
            return inner(*args, **kwargs)
        finally:
            print(f"{begin:6.2f} {time.time() - started:6.2f} {name}", file=sys.stderr)
    setattr(owner, name, outer)
import benchkit.experiment.run.kernel as kernel
from benchkit.store.store import Store
print(f"{0:6.2f} {time.time() - started:6.2f} imports", file=sys.stderr)
timed(kernel, "build")
for name in ("start", "execute", "close"):
    timed(kernel.MeasuringKernel, name)
timed(Store, "add")
from benchkit.cli.main import main
main()
"""


def measure(words: list[str], folder: Path) -> tuple[float, float]:
    """Run a command and return its wall and CPU time in s, with that of its processes."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: ended with status {status}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, text in {
            "by_hand.py": _BY_HAND,
            "workloads/naps.py": _WORKLOAD,
            "environments/two.yaml": _ENVIRONMENT,
        }.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        run = ["run", "own.naps", "-e", "two", "-q"]
        benchkit = [str(Path(sys.executable).parent / "benchkit"), *run]
        commands = {
            "by hand": ([sys.executable, "by_hand.py"], 1),
            "benchkit run": (benchkit, 1),
            "benchkit run -n 3": ([*benchkit, "-n", "3"], 3),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(given.rounds):
            for name, (words, n_runs) in commands.items():
                wall, cpu = measure(words, folder)
                times[name].append((wall / n_runs, cpu / n_runs))
        by_hand = statistics.median(wall for wall, _ in times["by hand"])
        print(f"{'per run':20} {'wall s':>7} {'CPU s':>7} {'ratio':>6}")
        for name, values in times.items():
            wall, cpu = map(statistics.median, zip(*values, strict=True))
            print(f"{name:20} {wall:7.2f} {cpu:7.2f} {wall / by_hand:6.2f}")
        traced = [sys.executable, "-c", _TRACED, *run]
        done = subprocess.run(traced, cwd=folder, capture_output=True, text=True)
        print(f"\n{'begin':>6} {'end':>6} part", done.stderr, sep="\n")


if __name__ == "__main__":
    main()
