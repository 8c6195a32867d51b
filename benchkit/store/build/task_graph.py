"""Convert the recorded task graph to variables of a run file."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from benchkit.measure.recording import Recording
from benchkit.store.build.shape import Window, shaped
from benchkit.store.task_graph import encode_rows

#: Phases of the client, by column of the rows in the tail of a recording.
_CALLS = ("optimised", "serialised", "sent")
_TIMES = ("received", "materialized", "ordered", "started")


def assemble_graph(
    recording: Recording, window: Window, new_group: np.ndarray, node_of_task: np.ndarray
) -> tuple[dict[str, Any], xr.Dataset | None]:
    """Return the variables of ``tasks`` that describe the graph, and the group ``submissions``."""
    groups, counts, order = (
        np.asarray(recording.column("nodes", name, "i"))
        for name in ("group", "n_dependencies", "order")
    )
    n_nodes = len(groups)
    dependencies = _numbers(recording, "dependencies")
    complete = len(counts) == len(order) == n_nodes and counts.sum() == len(dependencies)
    if not n_nodes or not complete or dependencies.max(initial=-1) >= n_nodes:
        return {}, None
    sent = {
        name: np.asarray(recording.column("submissions", name, "i"))
        for name in ("first_node", "n_wanted")
    }
    submission = np.searchsorted(sent["first_node"], np.arange(n_nodes), side="right") - 1
    by_place = _topological_order(counts, dependencies, order, submission)
    place = _inverse(by_place)
    # Nodes without an order were not submitted: scattered data, results of earlier work.
    submission[order < 0] = -1

    indptr, indices = _permuted(counts, dependencies, by_place, place)
    producer = np.zeros(n_nodes, np.int8)
    producer[place[_known(_numbers(recording, "producers"), n_nodes)]] = 1
    known_groups = np.append(new_group, -1)[np.minimum(groups, len(new_group))]
    inside = (node_of_task >= 0) & (node_of_task < n_nodes)
    variables = {
        "task_node": np.where(inside, place[np.where(inside, node_of_task, 0)], -1),
        "node_group": known_groups[by_place],
        "n_dependencies": np.diff(indptr),
        "producer": producer,
        "dependency": encode_rows(indptr, indices),
    }
    return variables, _submissions(recording, window, sent["n_wanted"], place, submission)


def _numbers(recording: Recording, table: str) -> np.ndarray:
    return np.frombuffer(recording.blob(table), np.int32)


def _known(nodes: np.ndarray, n_nodes: int) -> np.ndarray:
    return nodes[nodes < n_nodes]


def _inverse(permutation: np.ndarray) -> np.ndarray:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


def _topological_order(
    counts: np.ndarray, dependencies: np.ndarray, order: np.ndarray, submission: np.ndarray
) -> np.ndarray:
    """Return nodes by submission and Dask's order, which has dependencies first."""
    nodes = np.arange(len(counts))
    by_place = np.lexsort((nodes, order, submission))
    place, owner = _inverse(by_place), np.repeat(nodes, counts)
    depth = np.zeros(len(counts), np.int64)
    while not (place[dependencies] < place[owner]).all():
        # The client gave other priorities.
        deeper = depth.copy()
        np.maximum.at(deeper, owner, depth[dependencies] + 1)
        if (deeper == depth).all():
            break
        depth = deeper
        by_place = np.lexsort((nodes, order, depth, submission))
        place = _inverse(by_place)
    return by_place


def _permuted(
    counts: np.ndarray, dependencies: np.ndarray, by_place: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the graph with new numbers of nodes, ascending within each row."""
    owner = place[np.repeat(np.arange(len(counts)), counts)]
    target = place[dependencies]
    chosen = np.lexsort((target, owner))
    return np.concatenate([[0], np.cumsum(counts[by_place])]), target[chosen]


def _submissions(
    recording: Recording,
    window: Window,
    n_wanted: np.ndarray,
    place: np.ndarray,
    submission: np.ndarray,
) -> xr.Dataset:
    # New nodes of one submission are neighbours in both numberings.
    first = np.full(len(n_wanted), len(place))
    chosen = submission >= 0
    np.minimum.at(first, submission[chosen], place[chosen])
    released = np.asarray(recording.column("releases", "node", "i"))
    release_times = np.asarray(recording.column("releases", "time", "d"))
    options = [row for row in recording.rows("node_options") if row[0] < len(place)]
    nbytes = np.asarray(recording.column("submissions", "nbytes", "q"))
    calls = np.array(recording.tail.get("client_phases") or (), float).reshape(-1, 3)
    data = {
        **dict(zip(_CALLS, window.seconds(calls).T, strict=True)),
        **{name: window.seconds(recording.column("submissions", name, "d")) for name in _TIMES},
        "first_node": first,
        "n_nodes": np.bincount(submission[chosen], minlength=len(n_wanted)),
        "n_wanted": n_wanted,
        # Recordings of earlier versions have no sizes.
        "nbytes": nbytes if len(nbytes) == len(n_wanted) else np.full(len(n_wanted), -1),
        "wanted": place[_numbers(recording, "wanted")],
        "release_time": window.seconds(release_times[: len(released)]),
        "release_node": place[released],
        "option_node": place[np.asarray([row[0] for row in options], np.int64)],
        "options": [row[1] for row in options],
    }
    return shaped("submissions", data, {})
