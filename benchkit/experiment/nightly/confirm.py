"""Measure suspected regressions again: the build of the night interleaved with the last good one.

Both builds run on the same machine in the same night, so only the build differs. A
regression can be reported on its first night, and a slow machine is not reported as a regression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from benchkit.analysis.compare.compare_runs import compare_experiment
from benchkit.analysis.regression.diagnosis import adjacent_runs
from benchkit.analysis.regression.history import History
from benchkit.analysis.regression.regression import FAILING
from benchkit.errors import BenchkitError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.from_run import environment_of_run
from benchkit.experiment.run.api import Selection, plan_experiment
from benchkit.experiment.run.events import Event
from benchkit.measure.provenance import host_name
from benchkit.store.store import Store

__all__ = ["Confirmation", "Progress", "confirm"]

#: Blocks of the re-run; in each the last good build runs twice (null arm).
BLOCKS = 5
#: Maximum number of workloads to measure again: a larger number has one common cause.
MAX_WORKLOADS = 12
#: Names of the arms.
GOOD, TONIGHT = "last-good", "tonight"


@dataclass(frozen=True)
class Confirmation:
    """Result of measuring proposed events again.

    Parameters
    ----------
    events : list of dict
        The proposed events, each with ``confirmed`` (True, False, or None if not decided) and,
        if measured again, with the ratio and interval of the re-run in ``again``.
    failures : list of str
        Re-runs that failed, one line each.
    experiments : list of str
        Ids of the re-run experiments in the store.
    """

    events: list[dict[str, Any]]
    failures: list[str] = field(default_factory=list)
    experiments: list[str] = field(default_factory=list)


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
    """Measure the workloads of proposed events again, in the build of the night and the last good.

    Parameters
    ----------
    store : Store
        Store of the runs; the runs of the re-run are added to it.
    history : History
        History in which the events were found.
    proposed : sequence of mapping
        Events proposed by `benchkit.analysis.regression.judge.judge_night`.
    environments : mapping of str to Environment
        Environments measured in this night, by name.
    folders : sequence of path
        Folders of workload files.
    night : str
        Value of the ``confirm`` tag of the runs.
    progress : callable
        Function that takes the events of an experiment, displays and returns them.

    Returns
    -------
    Confirmation
        The events; those of other hosts, of failures and of builds that cannot be rebuilt stay
        undecided.
    """
    events = [{**event, "confirmed": event.get("confirmed")} for event in proposed]
    failures: list[str] = []
    experiments: list[str] = []
    for (name, good_id), group in _groups(history, events).items():
        try:
            good = environment_of_run(store.open(good_id).tree.attrs, GOOD, environments.get(name))
            build(good)
            tonight = replace(environments[name], name=TONIGHT)
            experiment, _ = plan_experiment(
                Selection(
                    sorted({str(event["workload"]) for event in group}),
                    folders=folders,
                    environments=[good, tonight],
                    null=True,
                ),
                repeats=BLOCKS,
                store=store,
                scale=float(group[0]["scale"]),
                tags={"confirm": night},
            )
            for _ in progress(experiment.run()):
                pass
            experiments.append(experiment.id)
            _add_verdicts(store, experiment.id, group)
        except KeyError:
            failures.append(f"{name}: not confirmed: environment not measured in this night")
        except BenchkitError as error:
            failures.append(f"{name}: not confirmed: {error}")
    return Confirmation(events, failures, experiments)


def _groups(
    history: History, events: Sequence[dict[str, Any]]
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return events by environment and id of a run of the last good build."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    representative: dict[tuple[str, str], str] = {}
    hashes = dict(zip(history.runs["id"], history.runs["packages_hash"], strict=True))
    own = [e for e in events if e["metric"] != FAILING and str(e["host"]) == host_name()]
    own.sort(key=lambda event: -abs(float(event.get("ratio") or 1) - 1))
    workloads: dict[str, None] = {}
    for event in own:
        workloads.setdefault(str(event["workload"]))
        if str(event["workload"]) not in list(workloads)[:MAX_WORKLOADS]:
            continue
        before, _ = adjacent_runs(history, event)
        if not before:
            continue
        key = str(event["environment"]), str(hashes.get(before[-1], before[-1]))
        good = representative.setdefault(key, before[-1])
        groups.setdefault((key[0], good), []).append(event)
    return groups


def _add_verdicts(store: Store, experiment: str, events: Sequence[dict[str, Any]]) -> None:
    """Write the verdict of the re-run into each event."""
    metrics = sorted({str(event["metric"]) for event in events})
    comparison = compare_experiment(store.runs(experiment=experiment), experiment, metrics=metrics)
    frame = comparison.frame[comparison.frame["contender"] == TONIGHT]
    rows = {(row["workload"], row["metric"]): row for row in frame.to_dict("records")}
    for event in events:
        row = rows.get((event["workload"], event["metric"]))
        if row is None:
            continue
        event["again"] = {
            name: None if pd.isna(row[name]) else float(row[name])
            for name in ("ratio", "low", "high", "p")
        } | {"verdict": str(row["verdict"]), "experiment": experiment}
        if row["worse"]:
            event["confirmed"] = True
            failed = row["verdict"] == "failed"
            result = row["note"] if failed else f"{100 * (row['ratio'] - 1):+.1f} %"
            event["cause"], event["reason"] = "code", f"both builds measured again: {result}"
        elif row["changed"] or row["verdict"] == "same":
            event["confirmed"] = False
