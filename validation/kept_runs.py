"""Runs of workloads on clusters of several shapes."""

import json
import tempfile
from pathlib import Path

import benchkit

Shape = tuple[int, int]
#: Workloads whose tasks compute; none of them shuffles by P2P, which cannot be predicted.
CATALOGUE = (
    "array.dot_product[data=uncompressible]",
    "array.fancy_index[indices=sorted]",
    "array.map_overlap_sample",
    "array.ols",
    "array.percentile_topk",
    "array.svd_compressed",
    "array.tall_skinny_qr",
    "array.vorticity[data=uncompressible]",
    "df.cow_chain",
    "df.filter",
    "df.rolling",
    "geo.regrid[to=finer]",
    "geo.zonal_average",
    "h2o.q1",
    "ml.preprocess",
    "xarray.groupby_reduction[method=cohorts]",
)
#: Bytes of all workers together: the same for each shape, or the data would differ.
MEMORY = 2 * 2**30


def measure_workload(store: Path, name: str, shape: Shape) -> None:
    """Run a workload once on a new cluster of this shape."""
    cluster = {
        "class": "dask.distributed.LocalCluster",
        "n_workers": shape[0],
        "threads_per_worker": shape[1],
        "memory_limit": MEMORY // shape[0],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"shape-{shape[0]}x{shape[1]}.yaml")
        file.write_text(json.dumps({"cluster": cluster}))
        benchkit.run(name, environment=str(file), store=store)


def runs_by_shape(store: Path) -> dict[str, dict[Shape, list[benchkit.Run]]]:
    """Return the successful runs of each workload by workers and threads of a worker.

    Without those in which processes of others used processors.
    """
    found: dict[str, dict[Shape, list[benchkit.Run]]] = {}
    if not store.exists():
        return found
    opened = benchkit.Store(store, create=False)
    for row in opened.runs(outcome="ok").sort_values(["workload", "id"]).itertuples():
        run = opened.open(row.id)
        if (run.quality()["kind"] == "disturbed").any():
            continue
        workers = run.tree["workers"].dataset
        shape = workers.sizes["worker"], int(workers["nthreads"].values[0])
        found.setdefault(row.workload, {}).setdefault(shape, []).append(run)
    return found


def same_graph(run: benchkit.Run, other: benchkit.Run) -> bool:
    """Return whether two runs had the same number of tasks, to 1 %: not if it follows the shape."""
    counts = [run.metrics["n_tasks"], other.metrics["n_tasks"]]
    return abs(counts[0] - counts[1]) <= 0.01 * max(counts)
