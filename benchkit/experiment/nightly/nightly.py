"""Run a night: measure, judge, confirm, and store the results.

A part that fails adds a line to `Night.failures` and does not stop the others. Pages and issues are
made later, from the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from benchkit.analysis.regression.group_changes import find_group_changes, runs_of_groups
from benchkit.analysis.regression.history import (
    DEFAULT_METRICS,
    History,
    build_history,
    night_name,
)
from benchkit.analysis.regression.judge import (
    FALSE_ALARMS_WITH_RERUNS,
    Judgement,
    judge_night,
    unjudged_nights,
)
from benchkit.analysis.regression.level_events import is_same
from benchkit.analysis.regression.nights import nightly_runs
from benchkit.analysis.regression.regression import read_ledger
from benchkit.errors import BenchkitError, UsageError, describe_error
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import as_environment
from benchkit.experiment.nightly.confirm import Progress, confirm
from benchkit.experiment.nightly.diagnosis import diagnose
from benchkit.experiment.nightly.group_totals import read_group_totals
from benchkit.experiment.nightly.model_check import replay_errors
from benchkit.experiment.nightly.night import Night
from benchkit.experiment.run.api import Selection, check_metrics_to_measure, plan_experiment
from benchkit.experiment.run.events import Finished, Skipped
from benchkit.experiment.run.experiment import Experiment
from benchkit.formatting import counted
from benchkit.measure.arguments import check_count, check_tags, list_of
from benchkit.measure.workloads import Variant
from benchkit.store.filters import parse_moment
from benchkit.store.store import Store

#: Counts of suspects in the event of a night, by the result of their confirmation.
_FATES = ("n_confirmed", "n_dismissed", "n_undecided", "n_not_measured")


def nightly(
    *names: str,
    select: str | None = None,
    environments: Sequence[str | Environment] = (CURRENT,),
    control: str | None = None,
    repeats: int = 1,
    budget_s: float | None = None,
    store: Store | str | Path | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    measure: bool = True,
    confirming: bool = True,
    night: str | None = None,
    scale: float = 1.0,
    capture: str = "full",
    tags: Mapping[str, str] | None = None,
    folders: Sequence[str | Path] = (),
    environment_folders: Sequence[str | Path] = (),
    progress: Progress = iter,
) -> Night:
    """Measure workloads in one or more environments, judge the night, and store the results.

    Parameters
    ----------
    *names : str
        Names of workloads or variants, globs allowed; default all workloads.
    select : str, optional
        Expression that narrows the selection, with the syntax of ``pytest -k``.
    environments : sequence of str or Environment
        Environments to measure: the tip of Dask, the release, ...
    control : str, optional
        Environment that stays unchanged between nights; it is measured too.
    repeats : int, default 1
        Runs of each workload in each environment.
    budget_s : float, optional
        Time limit in seconds: a workload that would exceed it is not started. Workloads measured
        longest ago run first, so that the next night measures what this night skips.
    store : Store or path, optional
        Store for runs and events.
    metrics : sequence of str
        Metrics to judge.
    measure : bool, default True
        If False, judge a night in the store without measuring.
    confirming : bool, default True
        Measure suspected regressions again at once, interleaved with the last good build.
    night : str, optional
        Time of the night; by default now. Jobs that measure one night on several machines
        must pass the same value. Without measuring, the date or time of the night to judge; by
        default the last one.
    scale, capture, tags, folders, environment_folders
        As in `benchkit.run`.
    progress : callable
        Function that takes the events of an experiment, displays and returns them.

    Returns
    -------
    Night
        Runs, events and regressions; parts that failed are in `Night.failures`.

    Raises
    ------
    UnknownWorkload, InvalidSelectionError, UsageError
        A requested workload, selection, environment or metric does not exist, or another argument
        is invalid.

    Examples
    --------
    >>> benchkit.nightly(select="profile:nightly", environments=["tip"])  # doctest: +SKIP
    """
    metrics = check_metrics_to_measure(metrics, store, folders)
    requested = [*list_of(environments, "environments"), *list_of(control, "control")]
    if not requested:
        raise UsageError("environments: is empty: name one, such as 'current'")
    check_count(repeats, "repeats")
    run_store = store if isinstance(store, Store) else Store(store, create=measure)
    columns = ["arm", "experiment", "started", "tags"]
    if not measure and nightly_runs(run_store.runs(columns=columns)).empty:
        raise UsageError(f"{run_store.path}: no nights to judge: `benchkit nightly` measures one")
    moment = parse_moment(night) if night else datetime.now(timezone.utc)
    result = Night(moment.replace(tzinfo=None, microsecond=0).isoformat(), run_store)
    arms: dict[str, Environment] = {}
    if measure:
        arms = _built(list(dict.fromkeys(requested)), environment_folders, result)
        if not arms:
            raise UsageError(f"no environment could be built: {'; '.join(result.failures)}")
        experiment, broken = plan_experiment(
            Selection(names, select, folders, environments=list(arms.values())),
            repeats=repeats,
            store=run_store,
            scale=scale,
            capture=capture,
            tags={**check_tags(tags), "night": result.night},
            budget_s=budget_s,
            min_blocks=0,
            keep_going=True,
        )
        for file in broken:
            result.add_failure(str(file))
        if budget_s is not None:
            experiment = replace(experiment, variants=_oldest_first(experiment))
        _measure(experiment, progress, result)
    judge_and_record(
        result,
        metrics=metrics,
        control=_name(control),
        arms=arms if not result.interrupted else {},
        confirming=confirming,
        folders=folders,
        progress=progress,
        night=None if measure else night,
    )
    return result


def judge_and_record(
    result: Night,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    control: str | None = None,
    arms: Mapping[str, Environment] | None = None,
    confirming: bool = True,
    folders: Sequence[str | Path] = (),
    progress: Progress = iter,
    night: str | None = None,
) -> None:
    """Judge the last night in a store or another one, confirm proposed events, and write all.

    Earlier nights that were not yet judged, as those of an import, are judged before it, with what
    was known on each. Judging the same night again adds nothing.
    """
    # night: Date or time of the night to judge; by default that of the runs of `result`.
    store, arms = result.store, arms or {}
    again = bool(arms) and confirming
    events, marks = list(store.events()), store.marks()
    runs = store.runs()
    if len(runs):
        history = build_history(runs, metrics=metrics, marks=marks)
        if history.future:
            ids = ", ".join(history.future[:3]) + (", ..." if len(history.future) > 3 else "")
            result.add_failure(
                f"{counted(len(history.future), 'run')} of a night in the future left out: {ids}"
            )
        place = _night_to_judge(result, history, night)
        judged: dict[tuple[str, str], str] = {}  # (environment, host) -> its last judged night
        for event in events:
            if event["kind"] == "night":
                group = str(event["environment"]), str(event["host"])
                judged[group] = max(judged.get(group, ""), str(event["seen"]))
        for earlier in unjudged_nights(history, events):
            if earlier < place:
                new = _judge_earlier(result, history.before(earlier), events, marks, control)
                events += new
                _sort_news(result, new, judged)
        if place == len(history.times) - 1:
            judgement = judge_night(history, events, marks=marks, control=control)
        else:
            history = history.before(place)
            judgement = _judge_then(history, events, marks, control)
        if not result.records:  # nothing measured: use the night in the store
            result.night = judgement.night
        result.judged_before = bool(len(history.times)) and not judgement.nights
        proposed = judgement.proposed
        if again and proposed:
            proposed = _confirmed(result, history, proposed, arms, folders, progress)
        groups = _group_changes(result, history) if judgement.nights else []
        is_checked = judgement.nights and not result.interrupted
        model = _model_errors(result, history, arms) if is_checked else []
        _write(result, history, judgement, proposed, again=again, groups=groups, model=model)
    result.regressions = read_ledger(store.events(), marks)


def _judge_earlier(
    result: Night,
    history: History,
    events: Sequence[Mapping[str, Any]],
    marks: Sequence[Mapping[str, Any]],
    control: str | None,
) -> list[dict[str, Any]]:
    """Judge the last night of a history that ended before this one; return the new events."""
    judgement = _judge_then(history, events, marks, control)
    earlier = Night(judgement.night, result.store)
    # Suspects are based on one night, which cannot be measured again now.
    proposed = [event for event in judgement.proposed if not event.get("suspect")]
    _write(earlier, history, judgement, proposed, again=False)
    for line in earlier.failures:
        result.add_failure(line)
    return earlier.events


def _sort_news(
    result: Night, new: Sequence[dict[str, Any]], judged: Mapping[tuple[str, str], str]
) -> None:
    """Add events of an earlier night: those since the last judged night are news of this night."""
    for event in new:
        last = judged.get((str(event["environment"]), str(event["host"])))
        if last is None or str(event["seen"]) < last:
            result.earlier.append(event)
        elif event["kind"] != "night":
            result.events.append(event)


def _judge_then(
    history: History,
    events: Sequence[Mapping[str, Any]],
    marks: Sequence[Mapping[str, Any]],
    control: str | None,
) -> Judgement:
    """Judge the last night of a history with what the ledger knew then."""
    night = night_name(history.times[-1])
    later = [event for event in events if str(event.get("seen") or "") > night]
    known = [event for event in events if str(event.get("seen") or "") <= night]
    judgement = judge_night(history, known, marks=marks, control=control)
    # A change that was found on a later night, which was judged first, is not opened twice.
    opened = [event for event in later if event["kind"] == "opened"]
    proposed = [
        event for event in judgement.proposed if not any(is_same(event, each) for each in opened)
    ]
    return replace(judgement, proposed=proposed)


def _night_to_judge(result: Night, history: History, night: str | None) -> int:
    """Return the position of a night, by its date or time, or that of the runs of `result`."""
    last = len(history.times) - 1
    if night is None:
        names = [night_name(time) for time in history.times]
        return names.index(result.night) if result.records and result.night in names else last
    moment = np.datetime64(parse_moment(night).replace(tzinfo=None), "us")
    found = np.flatnonzero(history.times == moment)
    if not found.size:
        days = history.times.astype("datetime64[D]")
        found = np.flatnonzero(days == moment.astype("datetime64[D]"))
    if found.size == 1:
        return int(found[0])
    names = [night_name(history.times[place]) for place in found]
    if names:
        raise UsageError(f"night {night}: {len(names)} nights of that day: {', '.join(names)}")
    first, newest = (night_name(history.times[place])[:10] for place in (0, last))
    raise UsageError(f"night {night}: not in {result.store.path}: it has {first} to {newest}")


def _built(
    requested: Sequence[str | Environment], folders: Sequence[str | Path], result: Night
) -> dict[str, Environment]:
    """Return the environments that could be built; add the others to the failures."""
    environments: dict[str, Environment] = {}
    for name in requested:
        environment = as_environment(name, folders)
        try:
            build(environment, update=True)
            environments[environment.name] = environment
        except BenchkitError as error:
            result.add_failure(f"environment {environment.name}: {error}")
    return environments


def _name(environment: str | Environment | None) -> str | None:
    return environment.name if isinstance(environment, Environment) else environment


def _measure(experiment: Experiment, progress: Progress, result: Night) -> None:
    skipped_blocks = set()
    try:
        for event in progress(experiment.run()):
            if isinstance(event, Finished):
                result.records.append(event.record)
            elif isinstance(event, Skipped) and event.reason == "budget":
                skipped_blocks.add((event.measurement.block, event.measurement.variant))
    except KeyboardInterrupt:
        result.interrupted = True
        result.add_failure("interrupted: only the finished runs are judged")
    except BenchkitError as error:
        result.add_failure(f"measuring: {error}")
    if skipped_blocks:
        result.add_failure(
            f"{counted(len(skipped_blocks), 'workload')} skipped: budget used up; "
            "the next night measures them first"
        )


def _oldest_first(experiment: Experiment) -> list[Variant]:
    last: dict[str, Any] = {}
    if len(experiment.store):
        runs = experiment.store.runs(columns=["workload", "started"])
        last = runs.groupby("workload")["started"].max().to_dict()
    return sorted(experiment.variants, key=lambda v: (v.name in last, last.get(v.name)))


def _confirmed(
    result: Night,
    history: History,
    proposed: Sequence[dict[str, Any]],
    arms: Mapping[str, Environment],
    folders: Sequence[str | Path],
    progress: Progress,
) -> list[dict[str, Any]]:
    try:
        confirmation = confirm(
            result.store,
            history,
            proposed,
            arms,
            folders=folders,
            night=result.night,
            progress=progress,
        )
    except KeyboardInterrupt:
        result.interrupted = True
        result.add_failure("interrupted: suspected regressions were not measured again")
        return list(proposed)
    for line in confirmation.failures:
        result.add_failure(line)
    return confirmation.events


def _group_changes(result: Night, history: History) -> list[dict[str, Any]]:
    """Return the task groups that changed on the last night; none if an error prevents it."""
    store = result.store
    ids = {i for nights in runs_of_groups(history).values() for runs in nights for i in runs}
    try:
        totals, amounts = read_group_totals(store, sorted(ids))
        return find_group_changes(history, totals, store.load, amounts)
    except Exception as error:  # the series of the metrics must be judged all the same
        result.add_failure(f"task groups: not judged: {describe_error(error)}")
        return []


def _model_errors(
    result: Night, history: History, arms: Mapping[str, Environment]
) -> list[dict[str, Any]]:
    """Return by how much replays of runs of the last night are off; none if that fails."""
    try:
        return list(replay_errors(result.store, history.last_runs, arms))
    except KeyboardInterrupt:
        result.interrupted = True
        result.add_failure("interrupted: predictions were not checked")
    except Exception as error:  # the night must be written all the same
        result.add_failure(f"predictions: not checked: {describe_error(error)}")
    return []


def _facts(result: Night, history: History, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a regression; what is left out is added to the failures."""
    series = f"{event['workload']} in {event['environment']} on {event['host']}"
    try:
        facts = diagnose(result.store, history, event)
    except Exception as error:  # of one series must not stop the judgement of the others
        result.add_failure(f"{series}: not explained: {describe_error(error)}")
        return {}
    unreadable = facts.pop("unreadable", ())
    if unreadable:
        left_out = f"{counted(len(unreadable), 'run')} left out of the explanation"
        result.add_failure(f"{series}: {left_out}: {unreadable[0]}")
    return facts


def _write(
    result: Night,
    history: History,
    judgement: Judgement,
    proposed: Sequence[dict[str, Any]],
    *,
    again: bool,
    **tables: Sequence[Mapping[str, Any]],
) -> None:
    """Add the events, night events last: after a crash the night is then judged again."""
    store = result.store

    def add(event: Mapping[str, Any]) -> None:
        kind = str(event["kind"])
        result.events.append(
            store.add_event(kind, **{name: v for name, v in event.items() if name != "kind"})
        )

    counts: dict[tuple[str, str], dict[str, int]] = {}
    not_measured: list[Mapping[str, Any]] = []
    for event in proposed:
        group = str(event["environment"]), str(event["host"])
        count = counts.setdefault(group, dict.fromkeys(_FATES, 0))
        facts = _facts(result, history, event)
        kind = _kind_of(event, facts)
        if kind is None:
            if event.get("large"):
                count["n_not_measured"] += 1
                names = ("environment", "host", "workload", "metric", "ratio")
                not_measured.append({name: event[name] for name in names})
            continue
        count["n_confirmed"] += event.get("confirmed") is True
        count["n_dismissed"] += kind == "dismissed"
        count["n_undecided"] += kind == "undecided"
        rerun = event.get("again")
        if rerun and event.get("low") is None:  # one night has no interval, the re-run has one
            event = {**event, **{name: rerun[name] for name in ("ratio", "low", "high")}}
            event["after"] = event["before"] and event["before"] * (rerun["ratio"] or 1.0)
        if kind == "set_aside" and event.get("confirmed") is None:
            event = {**event, "cause": "infrastructure", "reason": "nothing changed in the build"}
        add({**event, "kind": kind, "facts": facts})
    for event in judgement.events:
        if event["kind"] in ("grown", "improved"):
            event = {**event, "facts": _facts(result, history, event)}
        add(event)
    for event in judgement.nights:
        fates = counts.get((event["environment"], event["host"]), {})
        if again:
            expected = round(event["n_series"] * FALSE_ALARMS_WITH_RERUNS, 5)
            event = {**event, "expected_false_alarms": expected}
        tables = {**tables, "not_measured": not_measured}
        place = event["environment"], event["host"]
        own = {
            table: [
                {name: value for name, value in row.items() if name not in ("environment", "host")}
                for row in rows
                if (row["environment"], row["host"]) == place
            ]
            for table, rows in tables.items()
        }
        add({**event, **fates, **{table: rows for table, rows in own.items() if rows}})


def _kind_of(event: Mapping[str, Any], facts: Mapping[str, Any]) -> str | None:
    """Return the kind of a proposed event; None for a suspect that was not measured again."""
    if event.get("confirmed") is False:
        is_machine = event.get("cause") == "infrastructure"
        return "set_aside" if is_machine else "dismissed"
    suspect = event.get("suspect") and not event.get("confirmed")
    if event.get("confirmed") is None and facts.get("same_build"):
        return None if suspect and not event.get("large") else "set_aside"
    if suspect:
        return "undecided" if event.get("again") else None
    return "opened"
