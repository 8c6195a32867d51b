"""Synthetic task graphs as workloads: `benchkit run --virtual` simulates them.

Measured, their tasks sleep and return bytes. With `workers` above 0, a virtual cluster has this
number of workers.
"""

from __future__ import annotations

from benchkit.measure import workload
from benchkit.simulation.synthetic import SHAPES, run_graph

#: Numbers of workers of a virtual cluster; 0: those of the cluster.
WORKERS = [0, 4, 20, 100]
TAGS = [f"profile:virtual[workers={workers}]" for workers in WORKERS[1:]]


def _declare(name, **arguments):
    def main(client, scale, *, workers, **values):
        return run_graph(client, name, **{key: values[key] for key in arguments})

    main.__doc__ = SHAPES[name].__doc__
    variants = {key: [value] for key, value in arguments.items()} | {"workers": WORKERS}
    return workload(main, category="graph", name=name, variants=variants, tags=TAGS)


all_to_all = _declare("all_to_all", n=24, seconds=0.1)
chain = _declare("chain", n=200, seconds=0.01)
independent = _declare("independent", n=1000, seconds=0.1)
map_reduce = _declare("map_reduce", n=400, seconds=0.1)
pairs = _declare("pairs", n=100, seconds=0.02)
pipelines = _declare("pipelines", n=200, seconds=0.05)
quadratic_means = _declare("quadratic_means", times=60, seconds=0.05)
rechunk = _declare("rechunk", n=24, seconds=0.1)
reduction_over_time = _declare("reduction_over_time", times=48, seconds=0.05)
shuffle = _declare("shuffle", n=27, seconds=0.05)
stencil = _declare("stencil", n=40, seconds=0.05)
tree = _declare("tree", n=256, seconds=0.05)
uneven = _declare("uneven", n=400, seconds=0.05)
