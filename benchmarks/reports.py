"""Record slow and mended code of public reports: ``python benchmarks/reports.py [--half work]``.

Each pair of `validation.reports` runs twice, slow and mended, each on a new local cluster and
recorded by `benchkit.record`. Prints durations and speed-ups; exit code 1: two answers differ, or a
pair is less fast than it should be. ``--half held_out`` is for the end only. Needs a checkout.
"""

import argparse
import importlib
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import dask  # noqa: E402
import numpy as np  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from distributed.utils import get_mp_context  # noqa: E402

import benchkit  # noqa: E402
from benchkit.analysis.insight.diagnose import diagnose  # noqa: E402
from benchkit.analysis.insight.findings import Finding  # noqa: E402
from validation.reports import table  # noqa: E402

FORMS = ("sick", "mended")
#: Imported by all workers before the clock starts: the first task would import them otherwise.
MODULES = ("dask.array", "dask.dataframe", "pandas", "pyarrow.parquet", "xarray")


#: Finding of the diagnosis -> causes of the reports that it means.
MEANINGS: dict[str, tuple[str, ...]] = {
    "blocked_loop": ("scheduler",),
    "blocked_worker": ("gil", "blocked threads"),
    "client": ("client",),
    "client_graph": ("client", "graph"),
    "disk": ("disk", "spill"),
    "garbage": ("python objects",),
    "gather": ("gather", "transfer"),
    "gathered": ("gather", "transfer"),
    "gil": ("gil",),
    "graph": ("graph",),
    "hung": ("restricted", "paused", "workers late"),
    "kept_results": ("memory", "spill", "paused"),
    "large_graph": ("embedded data", "graph"),
    "left_memory": ("memory",),
    "lock": ("lock",),
    "network": ("transfer", "serialization"),
    "no_worker": ("workers late",),
    "p2p": ("shuffle", "rechunk", "transfer"),
    "paused_workers": ("memory", "spill"),
    "python_loop": ("python loop", "python objects"),
    "queued": ("imbalance", "few tasks"),
    "reading": ("disk",),
    "rechunked_back": ("rechunk",),
    "repeated": ("repeated work",),
    "restricted": ("restricted", "imbalance"),
    "scheduler_busy": ("scheduler", "tiny tasks"),
    "seceded": ("blocked threads",),
    "serial_graphs": ("serial submit", "barrier"),
    "skew": ("skew",),
    "slow_host": ("slow worker", "imbalance"),
    "slow_link": ("transfer", "slow link"),
    "slow_start": ("graph", "client"),
    "slow_worker": ("slow worker", "imbalance"),
    "spilling": ("spill", "disk"),
    "stragglers": ("skew",),
    "tiny_tasks": ("tiny tasks",),
    "too_few_tasks": ("few tasks",),
    "waiting_inside": ("disk",),
}
#: Setting that a finding changes -> advice that this is, if it grows and if it shrinks.
SETTINGS = {
    "cluster.n_workers": ("more workers", "fewer workers"),
    "cluster.threads_per_worker": ("more threads", "fewer threads"),
}
#: Findings that are true of the machine with its other work, or of tasks that sleep, in both forms.
LEFT_OUT = {False: {"neighbours"}, True: {"neighbours", "waiting_inside"}}


class Score(NamedTuple):
    """What the diagnosis of a run is worth."""

    form: str
    found: tuple[str, ...]  # Rules, the most expensive first
    place: int  # Of the first right finding; -1: none
    wrong: tuple[str, ...]  # Advice of findings that would harm or change nothing
    named: bool  # Whether all findings are causes that the pair names

    def __str__(self) -> str:
        if self.form == "mended":
            return f"mended: {', '.join(self.found) or '-'}"
        place = {-1: "MISSED", 0: "first"}.get(self.place, f"place {self.place + 1}")
        wrong = f" WRONG: {', '.join(self.wrong)}" if self.wrong else ""
        return f"{place} ({', '.join(self.found) or 'nothing'}){wrong}"


def main() -> None:
    prepare_workers()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("work", "held_out"), default="work")
    parser.add_argument("--only", metavar="ID", action="append", help="a pair; can be repeated")
    parser.add_argument("--store", metavar="DIR", help="default: a temporary folder")
    parser.add_argument("--again", action="store_true", help="score the runs that --store has")
    arguments = parser.parse_args()
    pairs = table.all_pairs()
    half = table.WORK if arguments.half == "work" else table.HELD_OUT
    chosen = arguments.only or sorted(half)
    if unknown := sorted(set(chosen) - set(pairs)):
        sys.exit(f"--only {unknown[0]}: no such pair; there are {', '.join(pairs)}")
    with tempfile.TemporaryDirectory() as folder:
        store = benchkit.Store(arguments.store or folder)
        rows = []
        for name in chosen:
            if arguments.again:
                rows.append(score_again(pairs[name], store))
            else:
                rows.append(measure(pairs[name], store))
    passed = [is_fast for is_fast, _ in rows]
    print_summary([score for _, scores in rows for score in scores])
    print(f"{sum(passed)} of {len(passed)} pairs: same answer, fast enough")
    sys.exit(not all(passed))


def print_summary(scores: list[Score]) -> None:
    """Print how many findings are right, wrong, or those of a mended form."""
    sick = [score for score in scores if score.form == "sick"]
    mended = [score for score in scores if score.form == "mended"]
    first = sum(score.place == 0 for score in sick)
    found = sum(score.place >= 0 for score in sick)
    wrong = sum(bool(score.wrong) for score in sick)
    flagged = sum(bool(score.found) for score in mended)
    both = sum(bool(score.found) and score.named for score in mended)
    print(f"right cause first: {first} of {len(sick)}, found: {found}, wrong advice: {wrong}; "
          f"mended forms flagged: {flagged} of {len(mended)}, "
          f"{both} with causes that the pair names")  # fmt: skip


def score_again(pair: table.Pair, store: benchkit.Store) -> tuple[bool, list[Score]]:
    """Score the newest runs of a pair in a store, and print them."""
    scores = []
    for form in FORMS:
        kept = store.runs(f"reports.{pair.id}", form=form)
        scores += [score(store.open(run_id), pair) for run_id in kept["id"].tail(1)]
    print(f"{pair.id:26} {pair.cause:18} {'  '.join(map(str, scores))}", flush=True)
    return True, scores


def measure(pair: table.Pair, store: benchkit.Store) -> tuple[bool, list[Score]]:
    """Record both forms of a pair and print a line; return whether the mend is fast enough."""
    if pair.prepare is not None:
        pair.prepare()
    answers, runs = zip(*(record(pair, form, store) for form in FORMS), strict=True)
    seconds = [run.metrics["duration"] for run in runs]
    gain = seconds[0] / seconds[1]
    same = np.allclose(*answers)
    scores = [score(run, pair) for run in runs]
    faults = "" if same else f"  answers differ: {answers}"
    faults += "" if gain >= pair.speedup else f"  less than {pair.speedup:g}"
    print(
        f"{pair.id:26} {pair.cause:18} {seconds[0]:6.2f} s {seconds[1]:6.2f} s {gain:5.1f}x"
        f"{faults}  {'  '.join(map(str, scores))}",
        flush=True,
    )
    return bool(same and gain >= pair.speedup), scores


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


def score(run: benchkit.Run, pair: table.Pair) -> Score:
    """Return whether the findings of a run mean the cause of a pair, and give wrong advice."""
    left_out = LEFT_OUT[pair.sleeping]
    findings = [found for found in diagnose(run).findings if found.rule not in left_out]
    right = {pair.cause, *pair.also}
    places = [n for n, found in enumerate(findings) if right & set(MEANINGS.get(found.rule, ()))]
    named = all(right & set(MEANINGS.get(found.rule, ())) for found in findings)
    advice = [f"{found.change} {setting_advice(run, found)}".lower() for found in findings]
    return Score(
        form=run.tags["form"],
        found=tuple(found.rule for found in findings),
        place=places[0] if places else -1,
        named=named,
        wrong=tuple(wrong for wrong in pair.wrong if any(wrong in text for text in advice)),
    )


def setting_advice(run: benchkit.Run, found: Finding) -> str:
    """Return what the changed settings of a finding advise, in words."""
    workers = run.tree["workers"].to_dataset()["nthreads"].values
    present = {"cluster.n_workers": len(workers), "cluster.threads_per_worker": workers.max()}
    changed = found.settings or {}
    names = SETTINGS.keys() & changed.keys()
    return ", ".join(SETTINGS[name][bool(changed[name] < present[name])] for name in names)


if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)
    main()
