"""Measure what commands on a store of 1,000 runs cost: ``python benchmarks/commands.py``.

Prints the CPU seconds of each command, of `asv --help` and of some imports: the median of several
rounds in which all take turns, so that a busy machine slows all of them. The ratio to `import
pandas` depends less on the machine than the seconds. Packages and modules are what the process had
imported at its end. ``--store DIR`` keeps the store for the next time; asserts nothing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

#: Command -> its budget in s on a quiet machine.
BUDGETS = {
    "--help": 0.06,
    "list runs": 0.35,
    "list workloads": 0.5,
    "compare --baseline arm:baseline --contender arm:contender": 0.7,
    "regressions": 0.5,
    "diagnose": 1.0,
    "whatif --workers 4,8": 1.0,
    "report run": 4.0,
}
_BIN = Path(sys.executable).parent
#: What the commands are compared with.
OTHERS = {
    "import pandas": [sys.executable, "-c", "import pandas"],
    "import distributed": [sys.executable, "-c", "import distributed"],
    "asv --help": [str(_BIN / "asv"), "--help"],
}
UNIT = "import pandas"
#: A workload with 769 tasks, whose run is the latest of the store.
WORKLOAD = "array.vorticity[data=uncompressible]"
_COUNT = """
import atexit, sys
atexit.register(lambda: print(
    "imported", len({name.partition(".")[0] for name in sys.modules}), len(sys.modules),
    file=sys.stderr))
from benchkit.cli.main import main
main()
"""


def make_store(folder: Path) -> None:
    """Fill a store: 960 runs of 68 nights, an experiment of 40 runs, and a measured run."""
    import benchkit
    from benchkit.measure.run_ids import new_id
    from validation.history_data import fill
    from validation.synthetic_runs import make_run

    store = fill(folder, make_run(), n_nights=68)
    experiment = new_id()
    store.add_many(
        make_run(
            f"made.w{row}", experiment=experiment, arm=arm, environment=arm, block=block,
            order=order, seed=block, duration=10.0 + row + 0.1 * block + 1.5 * order * (row % 2),
        )
        for row in range(4)
        for block in range(5)
        for order, arm in enumerate(("baseline", "contender"))
    )  # fmt: skip
    benchkit.run(WORKLOAD, store=store)


def cpu_s(words: list[str]) -> float:
    """Run a command and return its CPU time in s, with that of its processes."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime


def imported(words: list[str]) -> list[str]:
    """Return the numbers of packages and of modules that a command imports."""
    done = subprocess.run([sys.executable, "-c", _COUNT, *words], capture_output=True, text=True)
    return done.stderr.rpartition("imported ")[2].split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store", type=Path, help="store to use; made if it does not exist")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a command would compile its modules each time
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or Path(folder, "store")
        if not store.exists():
            make_store(store)
        os.environ["BENCHKIT_STORE"] = str(store.absolute())
        commands = {name: [str(_BIN / "benchkit"), *name.split()] for name in BUDGETS}
        everything = {**commands, **OTHERS}
        for words in everything.values():  # a first start compiles and reads files
            cpu_s(words)
        times: dict[str, list[float]] = {name: [] for name in everything}
        for _ in range(given.rounds):
            for name, words in everything.items():
                times[name].append(cpu_s(words))
        unit = statistics.median(times[UNIT])
        print(f"{'':58} {'CPU s':>6} {'budget':>6} {'ratio':>6} {'packages':>8} {'modules':>7}")
        for name, values in times.items():
            median = statistics.median(values)
            budget, counts = "", ["", ""]
            if name in BUDGETS:
                budget, counts = f"{BUDGETS[name]:.2f}", imported(name.split())
            print(
                f"{name:58} {median:6.2f} {budget:>6} {median / unit:6.2f} "
                f"{counts[0]:>8} {counts[1]:>7}",
                flush=True,
            )


if __name__ == "__main__":
    main()
