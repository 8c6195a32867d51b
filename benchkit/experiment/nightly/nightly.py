"""Run a night: measure, judge, confirm, and store the results.

A part that fails adds a line to `Night.troubles` and does not stop the others. This module does
not publish pages or issues: the store afterwards contains everything needed for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchkit.analysis.regression.history import DEFAULT_METRICS, History, build_history
from benchkit.analysis.regression.judge import Judgement
from benchkit.analysis.regression.judge import judge_night as judge_history
from benchkit.analysis.regression.regression import Regression, read_ledger
from benchkit.errors import BenchkitError, UsageError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.nightly.confirm import Progress, confirm
from benchkit.experiment.nightly.diagnosis import diagnose
from benchkit.experiment.paths import folders_of
from benchkit.experiment.run.api import plan_experiment
from benchkit.experiment.run.events import Finished, Skipped
from benchkit.experiment.run.experiment import Experiment
from benchkit.store.index.query import parse_moment
from benchkit.store.store import Store

__all__ = ["Night", "judge_and_record", "nightly", "read_night"]

#: Kinds of events that `Night.news` returns, most important first; other kinds are internal.
NEWS = ("opened", "grown", "eased", "recovered", "ended", "improved", "set_aside", "dismissed")


@dataclass(repr=False)
class Night:
    """Result of one nightly run.

    Parameters
    ----------
    night : str
        Time of the night (ISO 8601, UTC); the value of the ``night`` tag of its runs.
    records : list of dict
        Records of the measured runs, in order.
    events : list of dict
        Events added to the ledger.
    regressions : list of Regression
        All regressions in the ledger, newest first.
    troubles : list of str
        Parts that failed, one line each.
    interrupted : bool
        Whether Ctrl-C stopped the measurements early.
    """

    night: str
    store: Store
    records: list[Mapping[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    regressions: list[Regression] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def news(self) -> list[dict[str, Any]]:
        """Events to report, most important first (see `NEWS`)."""
        told = [event for event in self.events if event["kind"] in NEWS]
        return sorted(told, key=lambda event: NEWS.index(event["kind"]))

    @property
    def worse(self) -> list[dict[str, Any]]:
        """Events of regressions that opened or grew in this night."""
        return [event for event in self.events if event["kind"] in ("opened", "grown")]

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """Records of the runs whose outcome is neither ok nor skipped."""
        return [record for record in self.records if record["outcome"] not in ("ok", "skipped")]

    @property
    def sentence(self) -> str:
        """One-sentence summary of the night."""
        kinds = [event["kind"] for event in self.events]
        words = [
            f"{kinds.count(kind)} {word}"
            for kind, word in (
                ("opened", "opened"),
                ("grown", "grown"),
                ("recovered", "recovered"),
                ("improved", "improved"),
                ("set_aside", "set aside as the machine's"),
                ("dismissed", "dismissed by measuring again"),
            )
            if kind in kinds
        ]
        n_open = sum(one.is_open for one in self.regressions)
        parts = [f"{len(self.records)} runs, {len(self.failed)} of them failed" if self.records
                 else "nothing measured"]  # fmt: skip
        parts.append(f"regressions: {', '.join(words) or 'nothing new'}; {n_open} open")
        if self.troubles:
            parts.append(f"{len(self.troubles)} parts failed")
        return f"Night {self.night[:16]}: {'; '.join(parts)}."

    def __repr__(self) -> str:
        lines = [self.sentence]
        lines += [f"  {one.state:9}  {one.title}" for one in self.regressions if one.is_open]
        return "\n".join([*lines, *(f"  failed: {text}" for text in self.troubles)])


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
        If False, judge the last night in the store without measuring.
    confirming : bool, default True
        Measure suspected regressions again at once, interleaved with the last good build.
    night : str, optional
        Time of the night; by default now. Jobs that measure one night on several machines
        must pass the same value.
    scale, capture, tags, folders, environment_folders
        As in `benchkit.run`.
    progress : callable
        Function that takes the events of an experiment, displays and returns them.

    Returns
    -------
    Night

    Raises
    ------
    UnknownWorkload, InvalidSelectionError, UsageError
        A requested workload, selection or environment does not exist.

    Examples
    --------
    >>> benchkit.nightly(select="profile:nightly", environments=["tip"])  # doctest: +SKIP
    """
    home = store if isinstance(store, Store) else Store(store)
    moment = parse_moment(night) if night else datetime.now(timezone.utc)
    result = Night(moment.replace(tzinfo=None, microsecond=0).isoformat(), home)
    arms: dict[str, Environment] = {}
    if measure:
        wanted = list(dict.fromkeys([*environments, *([control] if control else [])]))
        arms = _ready(wanted, environment_folders, result)
        if not arms:
            raise UsageError(f"no environment could be made ready: {'; '.join(result.troubles)}")
        experiment, broken = plan_experiment(
            names,
            select=select,
            environments=list(arms.values()),
            repeats=repeats,
            store=home,
            scale=scale,
            capture=capture,
            tags={**(tags or {}), "night": result.night},
            folders=folders,
            budget_s=budget_s,
            min_blocks=0,
        )
        result.troubles += [str(file) for file in broken]
        if budget_s is not None:
            experiment = replace(experiment, variants=_longest_ago_first(experiment))
        _measure(experiment, progress, result)
    judge_and_record(
        result,
        metrics=metrics,
        control=_name(control),
        arms=arms if measure and confirming and not result.interrupted else {},
        folders=folders,
        progress=progress,
    )
    return result


def read_night(store: Store, night: str = "latest") -> Night:
    """Return a night that was measured and judged before, read from the store.

    Parameters
    ----------
    store : Store
        Store that contains the night.
    night : str, default "latest"
        Time of the night: the value of the ``night`` tag of its runs.

    Raises
    ------
    UsageError
        The store has no judged night with this time.
    """
    events, marks = store.events(), store.marks()
    judged = sorted({str(event["seen"]) for event in events if event.get("seen")})
    if night == "latest" and judged:
        night = judged[-1]
    if night not in judged:
        last = f"; the last one is {judged[-1]}" if judged else ""
        raise UsageError(f"night {night!r} was not judged in {store.path}{last}")
    runs = store.runs()
    mine = [isinstance(tags, dict) and tags.get("night") == night for tags in runs["tags"]]
    return Night(
        night,
        store,
        records=[{str(k): v for k, v in row.items()} for row in runs[mine].to_dict("records")],
        events=[event for event in events if event.get("seen") == night],
        regressions=read_ledger(events, marks),
    )


def judge_and_record(
    result: Night,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    control: str | None = None,
    arms: Mapping[str, Environment] | None = None,
    folders: Sequence[str | Path] = (),
    progress: Progress = iter,
) -> None:
    """Judge the last night in a store, confirm proposed events, and add all to the ledger.

    Judging the same night again adds nothing.
    """
    store = result.store
    events, marks = store.events(), store.marks()
    runs = store.runs()
    if len(runs):
        history = build_history(runs, metrics=metrics, marks=marks)
        judgement = judge_history(history, events, marks=marks, control=control)
        if not result.records:  # nothing measured: use the last night in the store
            result.night = judgement.night
        proposed = judgement.proposed
        if arms and proposed:
            proposed = _confirmed(result, history, proposed, arms, folders, progress)
        _write(result, history, judgement, proposed)
    result.regressions = read_ledger(store.events(), marks)


def _ready(
    wanted: Sequence[str | Environment], folders: Sequence[str | Path], result: Night
) -> dict[str, Environment]:
    """Return the environments that could be built; add a trouble line for each other one."""
    places = folders_of("environments", folders)
    ready: dict[str, Environment] = {}
    for one in wanted:
        environment = find_environment(one, places) if isinstance(one, str) else one
        try:
            build(environment, update=True)
            ready[environment.name] = environment
        except BenchkitError as error:
            result.troubles.append(f"environment {environment.name}: {error}")
    return ready


def _name(environment: str | Environment | None) -> str | None:
    return environment.name if isinstance(environment, Environment) else environment


def _measure(experiment: Experiment, progress: Progress, result: Night) -> None:
    skipped_blocks = set()
    try:
        for event in progress(experiment.run()):
            if isinstance(event, Finished):
                result.records.append(event.record)
            elif isinstance(event, Skipped):
                skipped_blocks.add((event.measurement.block, event.measurement.variant))
    except KeyboardInterrupt:
        result.interrupted = True
        result.troubles.append("interrupted: what was measured is judged")
    except BenchkitError as error:
        result.troubles.append(f"measuring: {error}")
    if skipped_blocks:
        result.troubles.append(
            f"{len(skipped_blocks)} workloads were left out: "
            "the budget was used up; they come first next"
        )


def _longest_ago_first(experiment: Experiment) -> list[Any]:
    last: dict[str, Any] = {}
    if len(experiment.store):
        runs = experiment.store.runs(columns=["workload", "started"])
        last = runs.groupby("workload")["started"].max().to_dict()
    never = [variant for variant in experiment.variants if variant.name not in last]
    known = [variant for variant in experiment.variants if variant.name in last]
    return never + sorted(known, key=lambda variant: last[variant.name])


def _confirmed(
    result: Night,
    history: History,
    proposed: Sequence[dict[str, Any]],
    arms: Mapping[str, Environment],
    folders: Sequence[str | Path],
    progress: Progress,
) -> list[dict[str, Any]]:
    try:
        found = confirm(
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
        result.troubles.append("interrupted: nothing was confirmed")
        return list(proposed)
    result.troubles += found.troubles
    return found.events


def _write(
    result: Night,
    history: History,
    judgement: Judgement,
    proposed: Sequence[dict[str, Any]],
) -> None:
    """Add the events, night events last: after a crash the night is then judged again."""
    store = result.store

    def add(event: Mapping[str, Any]) -> None:
        kind = str(event["kind"])
        result.events.append(
            store.add_event(kind, **{name: v for name, v in event.items() if name != "kind"})
        )

    counts: dict[tuple[str, str], dict[str, int]] = {}
    for event in proposed:
        group = str(event["environment"]), str(event["host"])
        count = counts.setdefault(group, {"n_confirmed": 0, "n_dismissed": 0})
        facts = diagnose(store, history, event)
        kind = _settled(event, facts)
        if kind is None:
            continue
        count["n_confirmed"] += event.get("confirmed") is True
        count["n_dismissed"] += kind == "dismissed"
        again = event.get("again")
        if again and event.get("low") is None:  # one night has no interval, the re-run has one
            event = {**event, "low": again["low"], "high": again["high"]}
        if kind == "set_aside":
            event = {**event, "cause": "infrastructure", "reason": "nothing changed in the build"}
        add({**event, "kind": kind, "facts": facts})
    for event in judgement.events:
        if event["kind"] in ("grown", "improved"):
            event = {**event, "facts": diagnose(store, history, event)}
        add(event)
    for event in judgement.nights:
        add({**event, **counts.get((event["environment"], event["host"]), {})})


def _settled(event: Mapping[str, Any], facts: Mapping[str, Any]) -> str | None:
    """Return the kind of a proposed event; None if it is an unconfirmed suspect of one night."""
    if event.get("confirmed") is False:
        return "dismissed"
    if event.get("confirmed") is None and facts.get("same_build"):
        return "set_aside"
    if event.get("suspect") and not event.get("confirmed"):
        return None
    return "opened"
