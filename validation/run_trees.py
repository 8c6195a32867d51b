"""Small DataTrees of runs with known seconds and bytes."""

import zlib
from types import SimpleNamespace

import numpy as np
import xarray as xr

from benchkit.analysis.compare.group_totals import tree_values
from benchkit.errors import UnreadableRun
from benchkit.store.run import Run

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


def profile_group(stacks):
    """Return the group ``profile`` of call stacks: {(prefix, (function, file), ...): samples}."""
    codes: dict[str, int] = {}
    nodes: dict[tuple[int, int], int] = {}
    counts: list[int] = []
    for stack, count in stacks.items():
        parent = -1
        for frame in (f"{stack[0]}\t\t0", *(f"{name}\t{file}\t1" for name, file in stack[1:])):
            key = parent, codes.setdefault(frame, len(codes))
            parent = nodes.setdefault(key, len(nodes))
            counts += [0] * (len(nodes) - len(counts))
            counts[parent] += count
    parents, code = zip(*nodes, strict=True)
    blob = np.frombuffer(zlib.compress("\n".join(codes).encode()), np.uint8)
    data = {"parent": parents, "code": code, "count": counts}
    data = {name: ("frame", np.array(values)) for name, values in data.items()}
    return xr.Dataset({**data, "code_blob": ("byte", blob)})


def store_of_runs(runs):
    """Return what reads runs as a store does, by id; one that does not exist is damaged."""

    def load(ids, groups=None):
        if set(ids) - set(runs):
            raise UnreadableRun("no file")
        return [runs[run_id] for run_id in ids]

    def values(ids, names):
        for run_id in set(ids) & set(runs):
            yield run_id, {**tree_values(runs[run_id].tree), "outcome": runs[run_id].outcome}

    return SimpleNamespace(load=load, values=values)


def runs_with_stacks(rng, n_runs, arms=("baseline", "contender")):
    """Return runs by id, ``ARM-NUMBER``; in the last arm `take`, in group b, is 3 times as long."""
    runs = {}
    for arm, size in zip(arms, [1] * (len(arms) - 1) + [3], strict=True):
        folder = f"/envs/{arm}/lib/python3.12/site-packages"
        join, take = ((name, f"{folder}/lib/core.py") for name in ("join", "take"))
        for number in range(n_runs):
            seconds = np.array([50, 4 + 2 * size, 40]) * np.exp(0.02 * rng.standard_normal(3))
            groups = {name: (value, 0) for name, value in zip("abc", seconds, strict=True)}
            about = {"outcome": "ok", "id": f"{arm}-{number}"}
            tree = run_tree(groups, 50.0, n_tasks=[5, 6, 7], **about)
            outside, inside, other = rng.poisson([400, 200 * size, 5000])
            stacks = {("b", join): outside, ("b", join, take): inside, ("a", join): other}
            tree["profile"] = xr.DataTree(profile_group(stacks))
            runs[about["id"]] = Run(tree)
    return runs
