"""Measure suspected regressions again: the build of the night interleaved with the last good one.

Both builds run on the same machine in the same night, so only the build differs. A
regression can be reported on its first night, and a slow machine is not reported as a regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.analysis.regression.diagnosis import adjacent_runs
from benchkit.analysis.regression.fleet import COMMON_SERIES, COMMON_SHARE
from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.level_events import NOT_ATTEMPTED, worse_direction
from benchkit.analysis.regression.regression import FAILING
from benchkit.analysis.stats.confirmation import CONFIRMATION_LOOKS, judge_reruns
from benchkit.errors import BenchkitError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.builds import environment_of_run
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.run.api import Selection, plan_experiment
from benchkit.experiment.run.events import Event
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.plan import NULL_ARM, Measurement
from benchkit.measure.provenance import host_name
from benchkit.store.store import Store

#: Number of workloads that represent the suspects of a night and machine: they are measured first,
#: and if none of them is confirmed, the machine caused all. On real series half of the suspects are
#: of nights on which a tenth of the machine's series rose.
REPRESENTATIVES = 3
#: Maximum number of workloads to measure again: a larger number has one common cause.
MAX_WORKLOADS = 12
#: Names of the arms.
GOOD, TONIGHT = "last-good", "tonight"


@dataclass(frozen=True)
class Confirmation:
    """Result of measuring proposed events again."""

    # The proposed events, each with `confirmed` (True, False, or None if not decided) and, if
    # measured again, with the ratio and interval of the re-run in `again`.
    events: list[dict[str, Any]]
    failures: list[str]  # Re-runs that failed, one line each


#: Displays the events of an experiment and returns them.
Progress = Callable[[Iterator[Event]], Iterable[Event]]


def confirm(
    store: Store,
    history: History,
    proposed: Sequence[Mapping[str, Any]],
    environments: Mapping[str, Environment],
    *,
    folders: Sequence[str | Path] = (),
    night: str = "",
    progress: Progress = iter,
) -> Confirmation:
    """Measure the workloads of proposed events again, in tonight's build and the last good one."""
    events = [{**event, "confirmed": event.get("confirmed")} for event in proposed]
    failures: list[str] = []
    workloads = _ordered_workloads(events)
    first, others = workloads[:REPRESENTATIVES], workloads[REPRESENTATIVES:MAX_WORKLOADS]
    for names in (first, others):
        if names is others and _is_machine(history, events, first):
            break
        for (name, good_id), group in _groups(history, events, names).items():
            try:
                environment = environments.get(name)
                good = environment_of_run(store.open(good_id).tree.attrs, GOOD, environment)
                build(good)
                experiment, _ = plan_experiment(
                    Selection(
                        sorted({str(event["workload"]) for event in group}),
                        folders=folders,
                        environments=[good, replace(environments[name], name=TONIGHT)],
                        null=True,
                    ),
                    repeats=CONFIRMATION_LOOKS[-1],
                    store=store,
                    scale=float(group[0]["scale"]),
                    tags={"confirm": night},
                )
                for _ in progress(experiment.run(_until_decided(experiment, group))):
                    pass
            except KeyError:
                failures.append(f"{name}: not confirmed: environment not measured in this night")
            except BenchkitError as error:
                failures.append(f"{name}: not confirmed: {error}")
    _share_fates(events)
    return Confirmation(events, failures)


def _ordered_workloads(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the workloads that this machine can measure again, the most certain change first."""
    own = [event for event in events if _is_own(event)]
    # Alarms first: their change lasted for some nights, a suspect is often one noisy night. If the
    # machine changed, the largest change of an alarm is the one that may be more than that.
    own.sort(key=lambda e: (bool(e.get("suspect")), -abs(float(e.get("units") or _log_ratio(e)))))
    return list(dict.fromkeys(str(event["workload"]) for event in own))


def _is_own(event: Mapping[str, Any]) -> bool:
    """Return whether this machine can measure the series of an event again."""
    return event["metric"] != FAILING and str(event["host"]) == host_name()


def _log_ratio(event: Mapping[str, Any]) -> float:
    """Return the change of an event as logarithm, infinity from or to zero."""
    ratio = float(event.get("ratio") or 0)
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _is_machine(
    history: History, events: Sequence[Mapping[str, Any]], measured: Collection[str]
) -> bool:
    """Return whether many series changed and none of the representatives was reproduced."""
    again = [e for e in events if e["workload"] in measured and e.get("again")]
    own = [event for event in events if _is_own(event)]
    here = (history.series["host"] == host_name()).to_numpy() & np.isfinite(history.values[:, -1])
    # The first nights of the change may have shown already that it is the machine's.
    is_known = any(event.get("aside") for event in own)
    is_common = len(own) >= max(COMMON_SERIES, COMMON_SHARE * here.sum())
    none = bool(again) and all(event["confirmed"] is False for event in again)
    return none and (is_common or is_known)


def _share_fates(events: Sequence[dict[str, Any]]) -> None:
    """Set aside what was not measured again, if most of what was is not reproduced."""
    # A machine slows durations and not memory: a metric is represented by its own series.
    measured: dict[tuple[str, str], list[bool]] = {}
    for event in events:
        if event.get("again") and event["confirmed"] is not None:
            group = str(event["environment"]), str(event["metric"])
            measured.setdefault(group, []).append(bool(event["confirmed"]))
    for event in filter(_is_own, events):
        fates = measured.get((str(event["environment"]), str(event["metric"])), [])
        n_dismissed = fates.count(False)
        reason = ""
        if event.get("again"):
            if event.get("aside") and event["confirmed"] is None:
                reason = f"set aside on {event['aside'][:10]}, and not reproduced"
        elif len(fates) >= COMMON_SERIES and n_dismissed > len(fates) / 2:
            reason = f"{n_dismissed} of {len(fates)} series measured again: not reproduced"
        if reason:
            event |= {"confirmed": False, "cause": "infrastructure", "reason": reason}


def _groups(
    history: History, events: Sequence[dict[str, Any]], workloads: Collection[str]
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return events by environment and id of a run of the last good build."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    representative: dict[tuple[str, str], str] = {}
    hashes = dict(zip(history.runs["id"], history.runs["packages_hash"], strict=True))
    for event in events:
        if not _is_own(event) or str(event["workload"]) not in workloads:
            continue
        good_until = event.get("good_until") or event["night"]
        before, _ = adjacent_runs(history, {**event, "night": good_until})
        if not before:
            continue
        key = str(event["environment"]), str(hashes.get(before[-1], before[-1]))
        good = representative.setdefault(key, before[-1])
        groups.setdefault((key[0], good), []).append(event)
    return groups


def _until_decided(
    experiment: Experiment, events: Sequence[dict[str, Any]]
) -> Iterator[Measurement]:
    """Yield the measurements of a re-run, until at a look all events of a workload are decided."""
    waiting = {measurement.variant for measurement in experiment.plan}
    for start, stop in pairwise((0, *CONFIRMATION_LOOKS)):
        for measurement in experiment.plan:
            if start <= measurement.block < stop and measurement.variant in waiting:
                yield measurement
        runs = experiment.store.runs(experiment=experiment.id)
        waiting &= judge_events(runs, events, experiment.id)
        if not waiting:
            return


def judge_events(runs: pd.DataFrame, events: Sequence[dict[str, Any]], experiment: str) -> set[str]:
    """Write the result of re-runs into events."""
    waiting = set()
    for event in events:
        if (event.get("again") or {}).get("stopped"):
            continue  # another metric of the workload needs more blocks
        own = runs[runs["workload"] == event["workload"]]
        sides = [own[own["arm"].isin(arms)] for arms in ((GOOD, NULL_ARM), (TONIGHT,))]
        attempted = [side[~side["outcome"].isin(NOT_ATTEMPTED)] for side in sides]
        if not all(len(side) for side in attempted):
            continue
        failed = [float((side["outcome"] != "ok").mean()) for side in attempted]
        good, tonight = _by_block(own, str(event["metric"]))
        direction = worse_direction(str(event["metric"]))
        result = judge_reruns(good[None], tonight[None], [direction])
        numbers = {name: float(getattr(result, name)[0]) for name in ("ratio", "low", "high", "p")}
        decision = int(result.decision[0])
        reason = f"{100 * (numbers['ratio'] - 1):+.1f} %"
        if failed[1] > failed[0]:
            decision, reason = 1, f"{failed[1]:.0%} of its runs fail, {failed[0]:.0%} before"
        event["again"] = {
            **{name: None if np.isnan(number) else number for name, number in numbers.items()},
            "verdict": {1: "confirmed", -1: "dismissed", 0: "undecided"}[decision],
            "experiment": experiment,
            "stopped": bool(result.stopped[0]) or decision != 0,
        }
        event["confirmed"] = {1: True, -1: False, 0: None}[decision]
        if decision == 1:
            event["cause"], event["reason"] = "code", f"both builds measured again: {reason}"
        elif not event["again"]["stopped"]:
            waiting.add(str(event["workload"]))
    return waiting


def _by_block(runs: pd.DataFrame, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values of the last good build and of that of the night, NaN without a run."""
    # returned: shapes (blocks, 2), because the last good build runs twice in a block, and (blocks,)
    values = np.full((int(runs["block"].max()) + 1, 3), np.nan)
    for column, arm in enumerate((GOOD, NULL_ARM, TONIGHT)):
        ok = runs[(runs["arm"] == arm) & (runs["outcome"] == "ok")]
        values[ok["block"].to_numpy(int), column] = ok[metric].to_numpy(float)
    return values[:, :2], values[:, 2]
