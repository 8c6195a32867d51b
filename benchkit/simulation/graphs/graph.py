"""Synthetic task graphs as workloads: `benchkit run --virtual` simulates them.

Measured, their tasks sleep and return bytes. With `workers` above 0, a virtual cluster has this
number of workers.
"""

from __future__ import annotations

from benchkit.measure import workload
from benchkit.simulation.synthetic import run_graph

#: Numbers of workers of a virtual cluster; 0: those of the cluster.
WORKERS = [0, 4, 20, 100]
TAGS = [f"profile:virtual[workers={workers}]" for workers in WORKERS[1:]]


@workload(category="graph", variants={"n": [24], "seconds": [0.1], "workers": WORKERS}, tags=TAGS)
def all_to_all(client, scale, *, n, seconds, workers):
    """Each task needs the whole result of each root."""
    return run_graph(client, "all_to_all", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [200], "seconds": [0.01], "workers": WORKERS}, tags=TAGS)
def chain(client, scale, *, n, seconds, workers):
    """One task after the other: round trips between scheduler and worker."""
    return run_graph(client, "chain", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [1000], "seconds": [0.1], "workers": WORKERS}, tags=TAGS)
def independent(client, scale, *, n, seconds, workers):
    """Tasks without dependencies: the overhead of a task."""
    return run_graph(client, "independent", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [400], "seconds": [0.1], "workers": WORKERS}, tags=TAGS)
def map_reduce(client, scale, *, n, seconds, workers):
    """Load, map, reduce each part, combine the parts in a tree."""
    return run_graph(client, "map_reduce", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [100], "seconds": [0.02], "workers": WORKERS}, tags=TAGS)
def pairs(client, scale, *, n, seconds, workers):
    """Each task joins two distant roots: transfers."""
    return run_graph(client, "pairs", n=n, seconds=seconds)


@workload(
    category="graph", variants={"times": [60], "seconds": [0.05], "workers": WORKERS}, tags=TAGS
)
def quadratic_means(client, scale, *, times, seconds, workers):
    """Means of the squares and of the product of two fields: order of tasks."""
    return run_graph(client, "quadratic_means", times=times, seconds=seconds)


@workload(category="graph", variants={"n": [24], "seconds": [0.1], "workers": WORKERS}, tags=TAGS)
def rechunk(client, scale, *, n, seconds, workers):
    """Split each chunk, merge the pieces, reduce."""
    return run_graph(client, "rechunk", n=n, seconds=seconds)


@workload(
    category="graph", variants={"times": [48], "seconds": [0.05], "workers": WORKERS}, tags=TAGS
)
def reduction_over_time(client, scale, *, times, seconds, workers):
    """Means over times, subtracted from each chunk."""
    return run_graph(client, "reduction_over_time", times=times, seconds=seconds)


@workload(category="graph", variants={"n": [27], "seconds": [0.05], "workers": WORKERS}, tags=TAGS)
def shuffle(client, scale, *, n, seconds, workers):
    """Stages of group, split and join, as a shuffle by tasks."""
    return run_graph(client, "shuffle", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [256], "seconds": [0.05], "workers": WORKERS}, tags=TAGS)
def tree(client, scale, *, n, seconds, workers):
    """Combine pairs until one is left."""
    return run_graph(client, "tree", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [400], "seconds": [0.05], "workers": WORKERS}, tags=TAGS)
def uneven(client, scale, *, n, seconds, workers):
    """Tasks of very different durations: work for stealing."""
    return run_graph(client, "uneven", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [40], "seconds": [0.05], "workers": WORKERS}, tags=TAGS)
def stencil(client, scale, *, n, seconds, workers):
    """Each task needs itself and its two neighbours in the step before."""
    return run_graph(client, "stencil", n=n, seconds=seconds)


@workload(category="graph", variants={"n": [200], "seconds": [0.05], "workers": WORKERS}, tags=TAGS)
def pipelines(client, scale, *, n, seconds, workers):
    """Independent chains, each from a root."""
    return run_graph(client, "pipelines", n=n, seconds=seconds)
