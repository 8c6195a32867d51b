"""Record slow and mended code of public reports: ``python benchmarks/reports.py [--half work]``.

Each pair of `validation.reports` runs twice, slow and mended, each on a new local cluster and
recorded by `benchkit.record`. Prints durations and speed-ups; exit code 1: two answers differ, or a
pair is less fast than it should be. ``--half held_out`` is for the end only. Needs a checkout.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import dask  # noqa: E402
import numpy as np  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from distributed.utils import get_mp_context  # noqa: E402

import benchkit  # noqa: E402
from validation.reports import table  # noqa: E402

FORMS = ("sick", "mended")
#: Imported by all workers before the clock starts: the first task would import them otherwise.
MODULES = ("dask.array", "dask.dataframe", "pandas", "pyarrow.parquet", "xarray")


def main() -> None:
    prepare_workers()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("work", "held_out"), default="work")
    parser.add_argument("--only", metavar="ID", action="append", help="a pair; can be repeated")
    parser.add_argument("--store", metavar="DIR", help="default: a temporary folder")
    arguments = parser.parse_args()
    pairs = table.all_pairs()
    half = table.WORK if arguments.half == "work" else table.HELD_OUT
    chosen = arguments.only or sorted(half)
    if unknown := sorted(set(chosen) - set(pairs)):
        sys.exit(f"--only {unknown[0]}: no such pair; there are {', '.join(pairs)}")
    with tempfile.TemporaryDirectory() as folder:
        store = benchkit.Store(arguments.store or folder)
        passed = [measure(pairs[name], store) for name in chosen]
    print(f"{sum(passed)} of {len(passed)} pairs: same answer, fast enough")
    sys.exit(not all(passed))


def measure(pair: table.Pair, store: benchkit.Store) -> bool:
    """Record both forms of a pair and print a line; return whether the mend is fast enough."""
    if pair.prepare is not None:
        pair.prepare()
    answers, runs = zip(*(record(pair, form, store) for form in FORMS), strict=True)
    seconds = [run.metrics["duration"] for run in runs]
    gain = seconds[0] / seconds[1]
    same = np.allclose(*answers)
    scores = " ".join(str(score(run, pair)) for run in runs)
    faults = "" if same else f"  answers differ: {answers}"
    faults += "" if gain >= pair.speedup else f"  less than {pair.speedup:g}"
    print(
        f"{pair.id:26} {pair.cause:18} {seconds[0]:6.2f} s {seconds[1]:6.2f} s {gain:5.1f}x"
        f"{faults}  {scores}",
        flush=True,
    )
    return bool(same and gain >= pair.speedup)


def record(pair: table.Pair, form: str, store: benchkit.Store) -> tuple[Any, benchkit.Run]:
    """Run one form of a pair on a new cluster; return its answer and its run."""
    options = dict(pair.options(form))
    adapt = options.pop("adapt", None)
    function = getattr(pair, form)
    with (
        LocalCluster(dashboard_address=None, **options) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(options["n_workers"])
        client.run(import_modules, (*MODULES, function.__module__))
        client.submit(sum, range(3)).result()
        if adapt is not None:
            cluster.adapt(**adapt)
        tags = {"form": form, "cause": pair.cause, "half": half_of(pair)}
        with benchkit.record(
            client, workload=f"reports.{pair.id}", tags=tags, store=store
        ) as recorded:
            answer = function(client)
    assert recorded.run is not None
    return answer, recorded.run


def prepare_workers() -> None:
    """Let workers be forks of a process that has imported `MODULES`: they start in a second."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
        get_mp_context().set_forkserver_preload(["distributed", *MODULES])


def half_of(pair: table.Pair) -> str:
    """Return the half of a pair."""
    halves = {"work": table.WORK, "held_out": table.HELD_OUT}
    return next((name for name, ids in halves.items() if pair.id in ids), "spare")


def import_modules(names: tuple[str, ...]) -> None:
    """Import modules in a worker."""
    for name in names:
        importlib.import_module(name)


def score(run: benchkit.Run, pair: table.Pair) -> str:
    """Return what the explanation of a run is worth: to be filled with the mapping of causes.

    For the sick form: whether the first finding means `pair.cause` (or one of `pair.also`), and
    whether an advice of `pair.wrong` is given. For the mended form (the tag ``form``): whether
    anything is found.
    """
    return ""


if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)
    main()
