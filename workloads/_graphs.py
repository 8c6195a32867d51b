"""Graphs of fixed shapes, to be ordered by `dask.order`, or to be built by the client."""

from __future__ import annotations

#: Families of graphs that were difficult for `dask.order`, from the suite dask-benchmarks.
FAMILIES = (
    "overlap",
    "svd",
    "layers-1x50000",
    "layers-2x10000",
    "layers-10x1000",
    "layers-100x20",
    "layers-500x2",
    "danglers",
    "groups-1x9999",
    "groups-999x10",
)
#: Rows and columns of a block; its values are computed in the check only.
BLOCK = 8
#: Operations on arrays whose graphs are built.
BUILDS = ("rechunk", "overlap", "tensordot", "groupby")


def graph_family(name, fraction):
    """Return one of `FAMILIES` as {key: dependencies}."""
    family, _, shape = name.partition("-")
    if family in ("overlap", "svd"):
        return needs_of(_array_graph(family, fraction))
    if family == "danglers":
        return _danglers(max(20, round(1000 * fraction)))
    width, depth = map(int, shape.split("x"))
    if width > depth:  # the fraction reduces the longer side
        width = max(3, round(width * fraction))
    else:
        depth = max(3, round(depth * fraction))
    return {"layers": _layers, "groups": _groups}[family](width, depth)


def needs_of(graph):
    """Return {key: dependencies} of a low-level graph with old or new tasks."""
    from dask.core import get_dependencies

    return {key: set(get_dependencies(graph, key)) for key in graph}


def _array_graph(family, fraction):
    import dask.array as da

    if family == "overlap":
        side = max(4, round(20 * fraction**0.5))
        array = da.zeros((side * 512, side * 512), chunks=512)
        return dict(da.overlap.overlap(array, depth=1, boundary="reflect").__dask_graph__())
    blocks = max(4, round(300 * fraction))
    array = da.zeros((blocks * 1000, 64), chunks=(1000, 64))
    u, s, v = da.linalg.svd_compressed(array, k=10, n_power_iter=2, seed=0)
    return {key: task for part in (u, s, v) for key, task in dict(part.__dask_graph__()).items()}


def _layers(width, depth):
    """Return layers in which each task depends on all tasks of the layer before."""
    needs = {("layer", 0, i): set() for i in range(width)}
    for layer in range(1, depth):
        below = {("layer", layer - 1, i) for i in range(width)}
        needs.update({("layer", layer, i): set(below) for i in range(width)})
    return needs


def _danglers(length):
    """Return a chain in which each link has an extra dependency and an extra dependent."""
    needs = {}
    for i in range(length):
        needs["leaf", i] = set()
        needs["link", i] = {("leaf", i)} | ({("link", i - 1)} if i else set())
        needs["end", i] = {("link", i)}
    return needs


def _groups(count, length):
    """Return independent chains."""
    return {
        ("group", group, i): {("group", group, i - 1)} if i else set()
        for group in range(count)
        for i in range(length)
    }


def tasks_of(needs):
    """Return a graph of tasks with these dependencies, for ordering only.

    Tasks are in the format of the scheduler, with explicit dependencies.
    """
    tasks = {key: (sum, sorted(others, key=str)) for key, others in needs.items()}
    try:
        from dask._task_spec import convert_legacy_graph
    except ImportError:  # in older releases a task is a tuple
        return tasks
    return convert_legacy_graph(tasks)


def most_alive(needs, order):
    """Return the largest number of results in memory if tasks run one by one in an order."""
    users = {key: 0 for key in needs}
    for others in needs.values():
        for other in others:
            users[other] += 1
    alive = most = 0
    for key in sorted(needs, key=order.__getitem__):
        alive += 1
        most = max(most, alive)
        for other in needs[key]:
            users[other] -= 1
            alive -= not users[other]
    return most


# -- graphs that are built ------------------------------------------------------------------------


def built(kind, side):
    """Build one of `BUILDS` with `side` x `side` blocks; return its optimised graph and keys."""
    import dask

    # With a connected client, the default is a P2P shuffle between workers.
    with dask.config.set({"array.rechunk.method": "tasks"}):
        array = _array_of(kind, side)
        keys = array.__dask_keys__()
        return dict(array.__dask_optimize__(array.__dask_graph__(), keys)), keys


def _array_of(kind, side):
    import dask.array as da

    n = side * BLOCK
    array = da.fromfunction(_places, chunks=BLOCK, shape=(n, n), dtype=float)
    if kind == "rechunk":
        return array.rechunk((BLOCK, n)).rechunk((n, BLOCK))
    if kind == "overlap":
        return array.map_overlap(_down, depth=1, boundary="periodic")
    if kind == "groupby":
        return _group_means(array, side)
    return da.tensordot(array, array.T, axes=1)


def _group_means(array, count):
    """Return the means of every `count`-th row, grouped by xarray without flox."""
    import numpy as np
    import xarray as xr

    groups = ("row", np.arange(len(array)) % count)
    rows = xr.DataArray(array, dims=("row", "column"), coords={"group": groups})
    with xr.set_options(use_flox=False):
        return rows.groupby("group").mean("row").data


def last_block(graph, keys):
    """Compute the last block of a graph only."""
    from dask.local import get_sync
    from dask.optimization import cull

    key = keys[-1][-1]
    return get_sync(cull(graph, [key])[0], key)


def last_block_known(kind, side):
    """Return the last block by NumPy."""
    import numpy as np

    n = side * BLOCK
    last = np.arange(n - BLOCK, n)
    if kind == "rechunk":
        return _places(*np.meshgrid(np.arange(n), last, indexing="ij"))
    if kind == "overlap":
        return _places(*np.meshgrid((last + 1) % n, last, indexing="ij"))
    if kind == "groupby":
        return _places(np.arange(side - 1, n, side).mean(), last[None])
    rows = _places(*np.meshgrid(last, np.arange(n), indexing="ij"))
    return rows @ rows.T


def _places(i, j):
    return i * 1000.0 + j


def _down(block):
    import numpy as np

    return np.roll(block, -1, axis=0)
