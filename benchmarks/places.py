"""Measure what a place in a block costs: ``python benchmarks/places.py [--folder DIR]``.

Ten workloads, three equal arms in the order of `benchkit ab`. Prints for each workload by how
much the first and the last run of a block differ from the mean of the block, with 95 % intervals.
Needs a quiet machine. An experiment in the folder is continued; ``--blocks 0`` only reads it.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from scipy.stats import t as student  # noqa: E402

from benchkit.cli.progress import show_progress  # noqa: E402
from benchkit.experiment.run.api import Selection, plan_experiment, resume_experiment  # noqa: E402
from benchkit.formatting import format_change  # noqa: E402
from benchkit.store.store import Store  # noqa: E402
from validation.docs_tables import markdown  # noqa: E402

WORKLOADS = (
    "array.dot_product[data=uncompressible]",
    "array.vorticity[data=uncompressible]",
    "df.value_counts[split_out=8]",
    "h2o.q5",
    "join.set_index[factor=0.15,data=lazy]",
    "parquet.write_wide",
    "sched.task_throughput[n=1000]",
    "shuffle.plain[method=p2p]",
    "spill.bandwidth[objects=few-large,data=numpy]",
    "tpch.q03",
)
#: Metrics of the table, in this order.
METRICS = ("duration", "memory_peak", "cpu_time")
N_ARMS = 3
CLUSTER = "cluster: {n_workers: 2, threads_per_worker: 1, memory_limit: 1 GiB}\n"


def measure(folder: Path, n_blocks: int, hours: float) -> None:
    """Measure equal environments in turn, or continue."""
    if any(folder.glob("store/experiments/*/plan.json")):
        experiment, _ = resume_experiment(folder / "store", "latest")
    else:
        environments = folder / "e"
        environments.mkdir(parents=True, exist_ok=True)
        (environments / "base.yaml").write_text(CLUSTER, encoding="utf-8")
        (environments / "same.yaml").write_text("extends: base\n", encoding="utf-8")
        selection = Selection(
            WORKLOADS, environments=["base", "same"], environment_folders=[environments], null=True
        )
        experiment, _ = plan_experiment(selection, store=folder / "store", repeats=n_blocks)
    for _ in show_progress(replace(experiment, budget_s=hours * 3600, min_blocks=0).run()):
        pass


def by_place(runs: pd.DataFrame, metric: str) -> np.ndarray:
    """Return logarithms of a metric of whole blocks, minus the mean of the block."""
    # returned: (blocks, places)
    runs = runs[(runs["outcome"] == "ok") & (runs[metric] > 0)].sort_values("order")
    whole = [rows for _, rows in runs.groupby(["experiment", "block"]) if len(rows) == N_ARMS]
    logs = np.log([rows[metric].to_numpy(float) for rows in whole]).reshape(-1, N_ARMS)
    return logs - logs.mean(axis=1, keepdims=True)


def effects(logs: np.ndarray) -> str:
    """Return the effects of the first and of the last place with their intervals, as text."""
    n = len(logs)
    if n < 2:
        return ""
    texts = []
    for place in (0, N_ARMS - 1):
        mean, se = logs[:, place].mean(), logs[:, place].std(ddof=1) / np.sqrt(n)
        low, high = np.exp(mean + np.array([-1, 1]) * student.ppf(0.975, n - 1) * se)
        ends = f"{format_change(low)} to {format_change(high)}"
        texts.append(f"{format_change(np.exp(mean))} ({ends})")
    return ", ".join(texts)


def rows_of(runs: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the rows of the table, and one of all workloads together."""
    together: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS}
    for workload, own in runs.groupby("workload", sort=True):
        logs = {metric: by_place(own, metric) for metric in METRICS}
        for metric in METRICS:
            together[metric].append(logs[metric])
        yield [f"`{workload}`", str(len(logs["duration"])), *map(effects, logs.values())]
    logs = {metric: np.concatenate(parts) for metric, parts in together.items() if parts}
    yield ["all", str(len(logs["duration"])), *map(effects, logs.values())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--hours", type=float, default=2.0, help="start nothing after this time")
    parser.add_argument("--folder", type=Path, default=Path("places"))
    given = parser.parse_args()
    if given.blocks:
        measure(given.folder, given.blocks, given.hours)
    runs = Store(given.folder / "store", create=False).runs()
    columns = ("workload", "blocks", *(f"{metric}: first, last" for metric in METRICS))
    print(markdown(columns, rows_of(runs)))


if __name__ == "__main__":
    main()
