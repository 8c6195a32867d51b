"""Diagnose a regression with the runs of a store, and write the command that bisects it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchkit.analysis.compare.explain import GROUPS_READ
from benchkit.analysis.compare.group_totals import changed_rows, describe_group_change
from benchkit.analysis.compare.run_groups import compare_run_groups
from benchkit.analysis.regression.diagnosis import (
    adjacent_runs,
    diagnose_regression,
    version_commit,
)
from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.regression import FAILING
from benchkit.errors import BenchkitError
from benchkit.experiment.environment.requirements import DASK, OWN_NAMES
from benchkit.experiment.nightly.confirm import GOOD, TONIGHT
from benchkit.experiment.run.plan import NULL_ARM
from benchkit.formatting import MISSING
from benchkit.store.run import Run
from benchkit.store.store import Store

#: Largest number of changes of task groups in an explanation.
GROUPS_NAMED = 4
#: Arm of a re-run -> side of the comparison.
_SIDES = {GOOD: "baseline", NULL_ARM: "null", TONIGHT: "contender"}


def diagnose(store: Store, history: History, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a regression that the ledger stores."""
    before, after = adjacent_runs(history, event)
    facts: dict[str, Any] = {"runs": {"before": before, "after": after}}
    unreadable: list[str] = []
    sides = [_readable_runs(store, ids, unreadable) for ids in (before, after)]
    if unreadable:
        facts["unreadable"] = unreadable
    if all(sides):
        facts |= diagnose_regression(event, *sides)
        facts["bisect"] = bisect_command(event, facts["changed"], facts["runs"])
    groups = _groups_of_reruns(store, event)
    if groups:
        explanation = [facts.get("explanation"), "In the re-runs:", f"{'; '.join(groups)}."]
        facts |= {"groups": groups, "explanation": " ".join(filter(None, explanation))}
    return facts


def _groups_of_reruns(store: Store, event: Mapping[str, Any]) -> list[str]:
    """Return sentences about the task groups that changed between the builds measured again."""
    experiment = (event.get("again") or {}).get("experiment")
    if not experiment:
        return []
    runs = store.runs(experiment=experiment)
    runs = runs[(runs["workload"] == event["workload"]) & (runs["outcome"] == "ok")]
    runs = runs.drop_duplicates(["block", "arm"], keep="last")
    ids = runs.pivot(index="block", columns="arm", values="id").fillna("")
    arms = {side: ids[arm].tolist() for arm, side in _SIDES.items() if arm in ids}
    if not {"baseline", "contender"} <= set(arms):
        return []
    compared = {(TONIGHT, str(event["workload"])): arms}
    rows = changed_rows(compare_run_groups(compared, store, blocked=True))
    return [describe_group_change(row) for row in rows[:GROUPS_NAMED]]


def _readable_runs(store: Store, ids: Sequence[str], unreadable: list[str]) -> list[Run]:
    """Return the runs that can be read; add the reasons of the others to a list."""
    runs = []
    for run_id in ids:
        try:
            runs.append(store.open(run_id, GROUPS_READ))
        except BenchkitError as error:  # the other runs remain valid
            unreadable.append(str(error))
    return runs


def bisect_command(
    event: Mapping[str, Any],
    changed: Sequence[Mapping[str, str]],
    runs: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return the `benchkit bisect` command for a regression.

    If releases of several packages changed, the environments of the runs before and after it are
    searched.

    Examples
    --------
    >>> change = {"kind": "package", "name": "dask", "before": "2026.7.1", "after": "2026.8.0"}
    >>> bisect_command({"workload": "array.sum", "metric": "duration"}, [change])
    "benchkit bisect 'array.sum' --package dask --good 2026.7.1 --bad 2026.8.0"
    """
    packages = {change["name"]: change for change in changed if change["kind"] == "package"}
    metric = "" if event["metric"] in ("duration", FAILING) else f" --metric {event['metric']}"
    released = {DASK[0] if name in DASK else name for name in packages} - {"python", *OWN_NAMES}
    sources = any(change["kind"] == "source" for change in changed)
    versions = [change[end] for change in packages.values() for end in ("before", "after")]
    if len(released) > 1 and not sources and not any("+" in version for version in versions):
        if runs and all(runs.values()):
            between = f"run:{runs['before'][-1]} run:{runs['after'][0]}"
            return f"benchkit bisect {between} '{event['workload']}'{metric}"
    packages |= {change["name"]: change for change in changed if change["kind"] == "source"}
    for package in dict.fromkeys(("dask", "distributed", *packages)):
        if package not in packages:
            continue
        change = packages[package]
        ends = [change["before"], change["after"]]
        if MISSING in ends:
            continue
        commits = ends if change["kind"] == "source" else [version_commit(end) for end in ends]
        if all(commits):
            where = f"--git PATH_OF_{package.upper()} --good {commits[0]} --bad {commits[1]}"
        else:
            where = f"--package {package} --good {ends[0]} --bad {ends[1]}"
        return f"benchkit bisect '{event['workload']}' {where}{metric}"
    return ""
