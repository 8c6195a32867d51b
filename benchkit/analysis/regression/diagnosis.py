"""Diagnose a regression: differences between the builds, and parts of the difference in time.

Takes runs; returns JSON types only, for the ledger, a page or an issue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchkit.analysis.compare.environment_diff import differences
from benchkit.analysis.compare.explain import MAX_RUNS, Explanation, explain
from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.regression import FAILING
from benchkit.errors import BenchkitError
from benchkit.formatting import MISSING
from benchkit.store.run import Run
from benchkit.values import json_safe

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
#: Kinds of differences between two builds, and between the machines that ran them.
_BUILD_KINDS = ("package", "config", "variable", "cluster", "machine")
#: Largest number of differences in the result; a new lock file can cause hundreds.
MAX_CHANGES = 60


def diagnose_regression(
    event: Mapping[str, Any], before: Sequence[Run], after: Sequence[Run]
) -> dict[str, Any]:
    """Return the facts about a regression that follow from runs on both sides of it."""
    # Compare the builds of the two runs next to the change.
    good, bad = before[-1], after[0]
    facts = {"changed": _changed(good, bad), "same_build": _same_build(good, bad)}
    if event["metric"] == FAILING:
        return {**facts, "error": str(bad.tree.attrs.get("error") or bad.tree.attrs.get("outcome"))}
    captured = [
        [run for run in side if "task_groups" in run.tree.children] for side in (before, after)
    ]
    is_time = event["metric"] == "duration" and event["before"] and event["after"]
    levels = (float(event["before"]), float(event["after"])) if is_time else None
    try:
        explanation = explain(captured[0], captured[1], levels)
    except BenchkitError:  # no capture: imported runs, capture off
        return facts
    return {**facts, **_explanation_facts(explanation, str(event["metric"]))}


def adjacent_runs(history: History, event: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return ids of the runs next to a change."""
    keep = np.ones(len(history.runs), bool)
    for name in ("workload", "environment", "host", "scale", "capture"):
        keep &= (history.runs[name] == event[name]).to_numpy(bool)
    runs = history.runs[keep]
    failing = event["metric"] == FAILING
    ok = (runs["outcome"] == "ok") & runs["comparable"]
    first = int(np.searchsorted(history.times, np.datetime64(event["night"])))
    before = runs[ok & (runs["night"] < first)]["id"].tail(MAX_RUNS)
    after = runs[(~ok if failing else ok) & (runs["night"] >= first)]["id"].head(MAX_RUNS)
    return before.tolist(), after.tolist()


def _changed(good: Run, bad: Run) -> list[dict[str, str]]:
    """Return the differences between the builds of two runs, those of Dask first."""
    table = differences([good], [bad])
    table = table[table["kind"].isin(_BUILD_KINDS)]
    changed = _changed_sources(good, bad)
    for kind, name, before, after in table.itertuples(index=False):
        change = {"kind": kind, "name": name, "before": before, "after": after}
        link = compare_link(name, before, after) if kind == "package" else ""
        changed.append(change | ({"link": link} if link else {}))
    commits = [str(run.tree.attrs.get("git_commit") or "") for run in (good, bad)]
    if commits[0] != commits[1]:
        before, after = (commit[:12] or MISSING for commit in commits)
        changed.append({"kind": "workloads", "name": "commit", "before": before, "after": after})
    first = ("dask", "distributed", "dask-expr")
    changed.sort(key=lambda change: (change["name"] not in first, change["kind"] != "source"))
    return changed[:MAX_CHANGES]


def _changed_sources(good: Run, bad: Run) -> list[dict[str, str]]:
    """Return the packages built from a repository whose commit changed, with a link."""
    sources = [_built(run).get("sources") or {} for run in (good, bad)]
    changed = []
    for line in sources[0].keys() & sources[1].keys():
        commits = [side[line].split()[0] for side in sources]
        if commits[0] == commits[1]:
            continue
        name, _, address = line.rpartition("git+")
        address = address.partition("#")[0].rpartition("@")[0] or address
        home = address.removesuffix(".git")
        package = re.split(r"[\s\[@]", name)[0] or home.rpartition("/")[2]
        before, after = (commit[:12] for commit in commits)
        change = {"kind": "source", "name": package, "before": before, "after": after}
        if home.startswith("https://github.com/"):
            change["link"] = f"{home}/compare/{before}...{after}"
        changed.append(change)
    return sorted(changed, key=lambda change: change["name"])


def _same_build(good: Run, bad: Run) -> bool:
    """Whether both runs have equal hashes of the built environment and equal metadata."""
    hashes = [_built(run).get("hash") for run in (good, bad)]
    names = ("packages", "config", "git_commit")
    equal = all(good.tree.attrs.get(name) == bad.tree.attrs.get(name) for name in names)
    return bool(equal and hashes[0] and hashes[0] == hashes[1])


def _built(run: Run) -> dict[str, Any]:
    """Return the description of the built environment of a run: its hash and its sources."""
    spec = json.loads(run.tree.attrs.get("environment_spec") or "{}")
    return dict(spec.get("built") or {})


def compare_link(package: str, before: str, after: str) -> str:
    """Return the URL of the changes of a package between two versions, or "".

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


def version_commit(version: str) -> str:
    """Return the commit hash in a local version of a package.

    Examples
    --------
    >>> version_commit("2026.7.1+3.g1a2b3c4"), version_commit("2026.8.0")
    ('1a2b3c4', '')
    """
    commit = re.search(r"\bg?([0-9a-f]{7,40})\b", version.partition("+")[2])
    return commit[1] if commit else ""


def _git_ref(version: str, tag: str) -> str:
    """Return the commit of a local version, or the tag of a release; empty if unknown."""
    is_release = re.fullmatch(r"\d+(\.\d+)+", version)
    return version_commit(version) or (tag.format(version) if is_release else "")


def _explanation_facts(explanation: Explanation, metric: str) -> dict[str, Any]:
    """Return sentence and largest parts of an explanation: of memory, or of time."""
    if metric == "memory_mean":
        kinds = explanation.mean_memory.head(3).to_dict("records")
        return {"explanation": explanation.mean_memory_sentence, "parts": json_safe(kinds)}
    if metric.startswith(("memory", "spilled")):
        kinds = explanation.memory.head(3).to_dict("records")
        return {"explanation": explanation.memory_sentence, "parts": json_safe(kinds)}
    columns = ["group", "activity", "seconds", "low", "high"]
    parts = explanation.parts[columns].head(8).to_dict("records")
    return {"explanation": explanation.sentence, "parts": json_safe(parts)}
