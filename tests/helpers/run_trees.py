"""Small DataTrees of runs with known seconds and bytes."""

import numpy as np
import xarray as xr

ACTIONS = ["compute", "transfer"]


def run_tree(
    seconds,
    duration,
    *,
    n_threads=2,
    suffix="0123456789abcdef",
    peak=(1, 2, 3, 4),
    n_tasks=None,
    **attrs,
):
    """Return a run with these thread-seconds by group: {group: (compute, transfer)}."""
    names = [f"{name}-{suffix}" for name in seconds]
    groups = xr.Dataset(
        {"seconds": (("task_group", "action"), np.array(list(seconds.values()), float))},
        coords={"task_group": names, "action": ACTIONS},
    )
    if n_tasks is not None:
        groups["n_tasks"] = ("task_group", n_tasks)
    kinds = ("managed", "unmanaged_old", "unmanaged_recent", "spilled")
    memory = {kind: ("time", [0.0, value, 0.0]) for kind, value in zip(kinds, peak, strict=True)}
    scheduler = xr.Dataset({"process": ("time", [1.0, 9.0, 2.0]), **memory})
    root = xr.Dataset({"duration": ((), duration)}, attrs={"n_threads": n_threads, **attrs})
    return xr.DataTree.from_dict({"/": root, "/task_groups": groups, "/scheduler": scheduler})
