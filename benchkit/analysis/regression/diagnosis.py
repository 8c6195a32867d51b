"""Diagnose a regression: differences between the builds, explanation, bisect command.

The result has JSON types only, for the ledger, a page or an issue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.compare.explain import GROUPS_READ, Explanation, explain
from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.regression import FAILING
from benchkit.errors import BenchkitError
from benchkit.formatting import format_bytes, json_safe
from benchkit.store.run import Run
from benchkit.store.store import Store

__all__ = ["diagnose_regression", "bisect_command", "compare_link", "adjacent_runs"]

#: Runs opened on each side; more take longer and change the result little.
MAX_RUNS = 5
#: Package -> repository and format of its release tags.
_REPOSITORIES = {
    "dask": ("https://github.com/dask/dask", "{}"),
    "distributed": ("https://github.com/dask/distributed", "{}"),
    "dask-expr": ("https://github.com/dask/dask-expr", "v{}"),
    "pandas": ("https://github.com/pandas-dev/pandas", "v{}"),
    "numpy": ("https://github.com/numpy/numpy", "v{}"),
    "pyarrow": ("https://github.com/apache/arrow", "apache-arrow-{}"),
    "xarray": ("https://github.com/pydata/xarray", "v{}"),
    "zarr": ("https://github.com/zarr-developers/zarr-python", "v{}"),
}
#: Kinds of differences that define a build.
_BUILD_KINDS = ("package", "config", "variable", "cluster")
#: Differences listed; a new lock file of an environment can have hundreds.
MAX_CHANGES = 60


def diagnose_regression(store: Store, history: History, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a regression that runs on both sides of it show.

    Parameters
    ----------
    store : Store
        Store with the runs.
    history : History
        History in which the event was detected.
    event : mapping
        As `benchkit.analysis.regression.judge.judge_night` proposes it.

    Returns
    -------
    dict
        ``runs`` (ids ``before`` and ``after``), ``changed`` (list of ``kind``, ``name``,
        ``before``, ``after``, optionally ``link``), ``same_build`` (whether no difference is
        recorded), ``explanation`` (a sentence, or ""), ``parts`` (the largest parts of the
        difference), ``bisect`` (a command, or ""), ``error`` (of a workload that fails).
    """
    before, after = adjacent_runs(history, event)
    facts: dict[str, Any] = {"runs": {"before": before, "after": after}}
    sides = [[run for run_id in ids if (run := _open(store, run_id))] for ids in (before, after)]
    if not all(sides):
        return facts
    # Compare the builds of the two runs next to the change.
    facts["changed"] = _changed(sides[0][-1], sides[1][0])
    facts["same_build"] = _same_build(sides[0][-1], sides[1][0])
    facts["bisect"] = bisect_command(event, facts["changed"])
    if event["metric"] == FAILING:
        error = sides[1][0].tree.attrs.get("error") or sides[1][0].tree.attrs.get("outcome")
        return {**facts, "error": str(error)}
    captured = [[run for run in side if "task_groups" in run.tree.children] for side in sides]
    try:
        found = explain(*captured)
    except BenchkitError:  # nothing was captured: imported runs, capture off
        return facts
    return {**facts, **_explained(found, str(event["metric"]))}


def adjacent_runs(history: History, event: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return ids of the runs next to a change.

    Parameters
    ----------
    history : History
        Nights with the runs.
    event : mapping
        Event about the change, with the fields of its series.

    Returns
    -------
    tuple of list of str
        Before and after; at most five each, oldest first.
    """
    keep = np.ones(len(history.runs), bool)
    for name in ("workload", "environment", "host", "scale", "capture"):
        keep &= (history.runs[name] == event[name]).to_numpy(bool)
    runs = history.runs[keep]
    failing = event["metric"] == FAILING
    ok = (runs["outcome"] == "ok") & runs["comparable"]
    first = int(np.searchsorted(history.times, np.datetime64(event["night"])))
    before = runs[ok & (runs["night"] < first)]["id"].tail(MAX_RUNS)
    then = runs[(~ok if failing else ok) & (runs["night"] >= first)]
    return before.tolist(), then["id"].head(MAX_RUNS).tolist()


def _open(store: Store, run_id: str) -> Run | None:
    try:
        return store.open(run_id, GROUPS_READ)
    except BenchkitError:  # file missing or damaged: the other facts remain valid
        return None


def _changed(good: Run, bad: Run) -> list[dict[str, str]]:
    table = differences([good], [bad])
    rows = table[table["kind"].isin(_BUILD_KINDS)].to_dict("records")
    changed = []
    for row in rows:
        found = {
            "kind": row["kind"],
            "name": row["name"],
            "before": row["baseline"],
            "after": row["contender"],
        }
        if row["kind"] == "package":
            link = compare_link(row["name"], row["baseline"], row["contender"])
            found |= {"link": link} if link else {}
        changed.append(found)
    changed = _moved_sources(good, bad) + changed
    commits = [str(run.tree.attrs.get("git_commit") or "") for run in (good, bad)]
    if commits[0] != commits[1]:
        before, after = (commit[:12] or "–" for commit in commits)
        changed.append({"kind": "workloads", "name": "commit", "before": before, "after": after})
    # Dask first: Dask is under test.
    first = ("dask", "distributed", "dask-expr")
    changed.sort(key=lambda change: (change["name"] not in first, change["kind"] != "source"))
    return changed[:MAX_CHANGES]


def _moved_sources(good: Run, bad: Run) -> list[dict[str, str]]:
    """Return the packages built from a repository whose commit changed, with a link."""
    then, now = ((_spec(run).get("built") or {}).get("sources") or {} for run in (good, bad))
    moved = []
    for line in then.keys() & now.keys():
        commits = [side[line].split()[0] for side in (then, now)]
        if commits[0] == commits[1]:
            continue
        name, _, address = line.rpartition("git+")
        address = address.partition("#")[0].rpartition("@")[0] or address
        home = address.removesuffix(".git")
        found = {"kind": "source", "name": re.split(r"[\s\[@]", name)[0] or home.rpartition("/")[2]}
        found |= {"before": commits[0][:12], "after": commits[1][:12]}
        if home.startswith("https://github.com/"):
            found["link"] = f"{home}/compare/{commits[0][:12]}...{commits[1][:12]}"
        moved.append(found)
    return sorted(moved, key=lambda one: one["name"])


def _same_build(good: Run, bad: Run) -> bool:
    """Whether both runs have equal hashes of the built environment and equal metadata."""
    built = [_spec(run).get("built") or {} for run in (good, bad)]
    hashes = [found.get("hash") for found in built]
    names = ("packages", "config", "git_commit")
    equal = all(good.tree.attrs.get(name) == bad.tree.attrs.get(name) for name in names)
    return bool(equal and hashes[0] and hashes[0] == hashes[1])


def _spec(run: Run) -> dict[str, Any]:
    return json.loads(run.tree.attrs.get("environment_spec") or "{}")


def compare_link(package: str, before: str, after: str) -> str:
    """Return the URL of the changes of a package between two versions, or "".

    Parameters
    ----------
    package : str
        Name of the package.
    before, after : str
        Versions; local versions with a commit hash are supported.

    Returns
    -------
    str
        Empty for unknown packages or versions.

    Examples
    --------
    >>> compare_link("dask", "2026.7.1", "2026.8.0")
    'https://github.com/dask/dask/compare/2026.7.1...2026.8.0'
    >>> compare_link("dask", "2026.7.1+3.g1a2b3c4", "2026.8.0")
    'https://github.com/dask/dask/compare/1a2b3c4...2026.8.0'
    """
    home, tag = _REPOSITORIES.get(package, ("", ""))
    ends = [_git_ref(version, tag) for version in (before, after)]
    return f"{home}/compare/{ends[0]}...{ends[1]}" if home and all(ends) else ""


def _git_ref(version: str, tag: str) -> str:
    commit = re.search(r"\+.*?\bg?([0-9a-f]{7,40})\b", version)
    if commit:
        return commit[1]
    return tag.format(version) if re.fullmatch(r"\d+(\.\d+)+", version) else ""


def bisect_command(event: Mapping[str, Any], changed: Sequence[Mapping[str, str]]) -> str:
    """Return the `benchkit bisect` command for a regression, or "".

    Parameters
    ----------
    event : mapping
        Event of the regression.
    changed : sequence of mapping
        ``changed`` of `diagnose_regression`.

    Returns
    -------
    str
        Empty if no package changed.
    """
    moved = {one["name"]: one for one in changed if one["kind"] == "package"}
    moved |= {one["name"]: one for one in changed if one["kind"] == "source"}
    for package in dict.fromkeys(("dask", "distributed", *moved)):
        if package not in moved:
            continue
        before, after = moved[package]["before"], moved[package]["after"]
        if "–" in (before, after):
            continue
        metric = "" if event["metric"] in ("duration", FAILING) else f" --metric {event['metric']}"
        command = f"benchkit bisect '{event['workload']}'"
        points = [_git_ref(version, "") for version in (before, after)]
        if moved[package]["kind"] == "source":
            points = [before, after]
        if all(points):
            where = f"--git PATH_OF_{package.upper()} --good {points[0]} --bad {points[1]}"
        else:
            where = f"--package {package} --good {before} --bad {after}"
        return f"{command} {where}{metric}"
    return ""


def _explained(found: Explanation, metric: str) -> dict[str, Any]:
    if metric.startswith(("memory", "spilled")):
        kinds = found.memory.head(3)
        words = [
            f"{'+' if row.bytes >= 0 else '−'}{format_bytes(abs(row.bytes))} {row.kind}"
            for row in kinds.itertuples()
        ]
        sentence = f"At the peak: {', '.join(words)}." if words else ""
        return {"explanation": sentence, "parts": json_safe(kinds.to_dict("records"))}
    columns = ["group", "activity", "seconds", "low", "high"]
    parts = found.parts[columns].head(8).to_dict("records")
    return {"explanation": found.sentence, "parts": json_safe(parts)}
