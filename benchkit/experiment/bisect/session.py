"""Run a bisection as an experiment: build on demand, measure blocks of two, keep all runs.

Each block measures two builds back to back in reused kernels, so that a slow minute affects both.
All runs belong to one experiment in the store. Its plan grows during the search; when resumed, it
reads its runs and continues. `benchkit.experiment.bisect.search` chooses the next builds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchkit.analysis.compare.compare_runs import check_metrics
from benchkit.errors import BenchkitError, BisectionEndError, UsageError
from benchkit.experiment.bisect.candidates import Candidate, find_candidates
from benchkit.experiment.bisect.environments import CandidateEnvironments
from benchkit.experiment.bisect.result import (
    KEPT,
    LEFT_OUT,
    OUTCOME,
    BisectionResult,
    block_of,
    replay,
    runs_of,
)
from benchkit.experiment.bisect.reuse import earlier_ends, measured_how
from benchkit.experiment.bisect.search import Search
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.paths import folders_of
from benchkit.experiment.run.api import with_parameters
from benchkit.experiment.run.events import Event, Finished
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.plan import Arm, Measurement, read_plan
from benchkit.measure.discovery import collect
from benchkit.measure.run_ids import new_id
from benchkit.measure.runner import DEFAULT_DEADLINE_S
from benchkit.measure.workloads import Variant
from benchkit.store.store import Store

__all__ = ["TAG", "Bisection", "bisect", "plan_bisection", "resume_bisection"]

#: Tag of the runs: `benchkit.analysis.regression.history` must not treat them as nights.
TAG = "bisect"


@dataclass
class Bisection:
    """Measure pairs of builds until the build that changed a metric is found.

    Parameters
    ----------
    experiment : Experiment
        Experiment with one variant, no arms and no repeats.
    builds : CandidateEnvironments
        Environments of the arms.
    search : Search
        Search that chooses the pairs.
    metric : str, default "duration"
        Metric that changed, or "outcome".
    ends : sequence of pairs of str
        Run ids of the two ends from earlier bisections; these runs are reused.

    Attributes
    ----------
    reasons : dict of str to str
        Name of a skipped build -> reason.
    over : bool
        Whether the budget ended the bisection.
    """

    experiment: Experiment
    builds: CandidateEnvironments
    search: Search
    metric: str = "duration"
    ends: Sequence[Sequence[str]] = ()
    reasons: dict[str, str] = field(default_factory=dict)
    over: bool = False
    _records: dict[tuple[int, str], Mapping[str, Any]] = field(default_factory=dict, repr=False)
    _ready: set[int] = field(default_factory=set, repr=False)
    _n_blocks: int = 0
    _n_runs: int = 0

    def __post_init__(self) -> None:
        if not self.ends and not self.experiment.folder.exists():
            return
        runs = runs_of(self.experiment.store, self.experiment.id, self.ends)
        if len(runs):
            self.reasons |= replay(self.search, self.candidates, runs, self.metric)
            self._n_blocks = int(runs["block"].max()) + 1
            self._n_runs = int(runs["order"].max()) + 1

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The builds to search, in order."""
        return self.builds.candidates

    def run(
        self,
        report: Callable[[str], None] = lambda line: None,
        *,
        budget_s: float | None = None,
    ) -> Iterator[Event]:
        """Measure until the search ends, and yield the events of the experiment.

        Parameters
        ----------
        report : callable
            Called with a line of text for each build, each step of the search, and each skipped
            candidate.
        budget_s : float, optional
            Time limit in seconds from now; a block that would exceed it is not started.

        Yields
        ------
        Planned, Started, Finished or Skipped
            See `benchkit.experiment.run.events`.

        Raises
        ------
        BisectionEndError
            The good or the bad end cannot be measured.
        InvalidEnvironmentError, EnvironmentBuildError
            The good or the bad end cannot be built.
        """
        if self.search.next_pair() is None:
            return
        began = time.monotonic()
        for place in (0, self.search.last) if self.search.ends == "open" else ():
            self._make_ready(place, report)
        plan = self._measurements(began, budget_s, report)
        for event in self.experiment.run(plan):
            if isinstance(event, Finished):
                self._records[event.record["block"], event.record["arm"]] = event.record
            yield event

    def found(self) -> BisectionResult:
        """Return the result so far."""
        (variant,) = self.experiment.variants
        store, id_ = self.experiment.store, self.experiment.id
        return BisectionResult(
            id_,
            store,
            variant.name,
            self.metric,
            self.candidates,
            self.search,
            runs_of(store, id_, self.ends),
            self.reasons,
        )

    def _measurements(
        self, began: float, budget_s: float | None, report: Callable[[str], None]
    ) -> Iterator[Measurement]:
        """Yield measurements; choose each pair from all results so far."""
        n_begun, told = 0, None
        while (pair := self.search.next_pair()) is not None:
            spent = time.monotonic() - began
            if budget_s is not None and n_begun and spent * (1 + 1 / n_begun) > budget_s:
                self.over = True
                return
            if not all([self._make_ready(place, report) for place in pair]):
                continue
            names = [self.candidates[place].name for place in pair]
            if pair != told:
                report(self._announced(pair))
                self.experiment.retire(self.candidates[0].name, *names)
                told = pair
            block, self._n_blocks, n_begun = self._n_blocks, self._n_blocks + 1, n_begun + 1
            for name in names if block % 2 == 0 else names[::-1]:
                yield self._measurement(block, name)
            self._saw(pair, block, report)
            report(self._learnt(pair))

    def _measurement(self, block: int, name: str) -> Measurement:
        (variant,) = self.experiment.variants
        allowed = self.experiment.deadline_s or variant.workload.deadline_s or DEFAULT_DEADLINE_S
        order, self._n_runs = self._n_runs, self._n_runs + 1
        return Measurement(order, block, variant.name, name, allowed)

    def _make_ready(self, place: int, report: Callable[[str], None]) -> bool:
        """Build a candidate once; skip it if the build fails, raise if it is an end."""
        if place in self._ready:
            return True
        candidate = self.candidates[place]
        try:
            environment = self.builds.environment(place)
            build(environment, report=report)
        except BenchkitError as error:
            if place in (0, self.search.last):
                raise
            self._leave_out(place, str(error), report)
            return False
        arms = [arm for arm in self.experiment.arms if arm.name != candidate.name]
        self.experiment.arms = [*arms, Arm(candidate.name, environment)]
        self._ready.add(place)
        return True

    def _leave_out(self, place: int, reason: str, report: Callable[[str], None]) -> None:
        self.search.skip(place)
        self.reasons[self.candidates[place].name] = reason
        report(f"{self.candidates[place].title}: left out: {reason}")
        # The store has only measured runs: this file is the only place for the reasons of skips.
        path = self.experiment.folder / LEFT_OUT
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.reasons, indent=1), encoding="utf-8")

    def _saw(self, pair: tuple[int, int], block: int, report: Callable[[str], None]) -> None:
        """Pass a block to the search, and report why a build has no usable result."""
        records = [self._records[block, self.candidates[place].name] for place in pair]
        left_out = set(self.search.skipped)
        self.search.saw(block_of(pair, records, self.metric))
        for place, record in zip(pair, records, strict=True):
            why = f"{record['outcome']}: {record.get('error') or f'no {self.metric}'}"
            if place in self.search.skipped - left_out:
                self._leave_out(place, why, report)
            elif place in (0, self.search.last) and self.search.is_useless(place):
                which = "good" if place == 0 else "bad"
                hint = "" if self.metric == OUTCOME else "; --metric outcome looks for failures"
                raise BisectionEndError(
                    f"the {which} end, {self.candidates[place].title}, cannot be measured: "
                    f"{why}{hint}"
                )

    def _announced(self, pair: tuple[int, int]) -> str:
        low, high = (self.candidates[place].name for place in pair)
        if pair == (0, self.search.last) and self.search.ends == "open":
            return f"the ends, {low} and {high}, until they differ"
        if self.search.chance >= self.search.confidence:
            return f"the two that remain, {low} and {high}, beside each other"
        in_question = int((self.search.chances > 0.001).sum())
        return f"{high} beside {low}: {in_question} of {self.search.last} builds are in question"

    def _learnt(self, pair: tuple[int, int]) -> str:
        if pair == (0, self.search.last):
            return f"  the ends {_ENDS[self.search.ends]}"
        if pair[1] in self.search.skipped:
            return f"  {self.candidates[pair[1]].name} tells nothing"
        after = self.search.side(pair[1])
        like, sure = ("bad", after) if after > 0.5 else ("good", 1 - after)
        return f"  {self.candidates[pair[1]].name} is like the {like} end, {100 * sure:.1f} % sure"


_ENDS = {
    "open": "do not differ for sure yet",
    "differ": "differ",
    "same": "are the same",
    "undecided": "cannot be told apart",
}


def plan_bisection(
    workload: str,
    candidates: Sequence[Candidate],
    base: Environment,
    *,
    metric: str = "duration",
    folders: Sequence[str | Path] = (),
    environment_folders: Sequence[str | Path] = (),
    params: Mapping[str, Any] | None = None,
    store: Store | str | Path | None = None,
    search: Mapping[str, Any] | None = None,
    held: Mapping[str, str] | None = None,
    ends: Sequence[Sequence[str]] | None = (),
    tags: Mapping[str, str] | None = None,
    words: Mapping[str, Any] | None = None,
    **options: Any,
) -> Bisection:
    """Return a bisection that is ready to run; check all arguments before writing anything.

    Parameters
    ----------
    workload : str
        Name of one variant.
    candidates : sequence of Candidate
        Builds to search, the good end first.
    base : Environment
        Environment that provides the other packages and all other settings.
    metric : str, default "duration"
        Metric that changed, or "outcome".
    search : mapping, optional
        Options of `benchkit.experiment.bisect.search.Search`.
    held : mapping of str to str, optional
        See `CandidateEnvironments`.
    ends : sequence of pairs of str, optional
        See `Bisection`; None reuses stored runs unless they show the ends as same or undecided.
    **options
        ``scale``, ``capture``, ``deadline_s`` and ``id`` of `Experiment`.

    Raises
    ------
    UnknownWorkload, InvalidParameterError, InvalidEnvironmentError, UsageError
        A workload, parameter, environment or option is unknown or invalid.
    """
    if metric != OUTCOME:
        check_metrics([metric])
    places = folders_of("workloads", folders)
    variant = _one_variant(workload, places, params or {})
    id_ = options.pop("id", None) or new_id()
    home = store if isinstance(store, Store) else Store(store)
    how = measured_how(variant, candidates, base, options)
    wanted = dict(search or {}, by_events=metric == OUTCOME)
    if ends is None:
        ends, held = _taken(home, how, candidates, wanted, metric)
    builds = CandidateEnvironments(base, candidates, variant.workload.requires, held)
    kept = {
        "workload": variant.name,
        "metric": metric,
        "candidates": [asdict(candidate) for candidate in candidates],
        "search": dict(search or {}),
        "held": builds.held,
        "how": how,
        "ends": [list(pair) for pair in ends],
        "base": str(base.path or base.name),
        "asked": workload,
        "folders": [str(folder) for folder in folders],
        "environment_folders": [str(folder) for folder in environment_folders],
        "params": dict(params or {}),
        "deadline_s": options.get("deadline_s"),
    }
    experiment = Experiment(
        store=home,
        arms=[],
        variants=[variant],
        folders=places,
        repeats=0,
        tags={**(tags or {}), TAG: id_},
        words={**(words or {}), KEPT: kept},
        id=id_,
        **options,
    )
    return Bisection(experiment, builds, Search(len(candidates), **wanted), metric, ends)


def _taken(
    store: Store,
    how: str,
    candidates: Sequence[Candidate],
    wanted: Mapping[str, Any],
    metric: str,
) -> tuple[list[list[str]], dict[str, str] | None]:
    """Return the end runs (if usable) and the held packages of earlier steps.

    If the ends are the same or undecided, each step would end at once: return no runs, so that the
    ends are measured again.
    """
    ends, held = earlier_ends(store, how)
    if ends:
        search = Search(len(candidates), **wanted)
        replay(search, candidates, runs_of(store, "", ends), metric)
        if search.ends not in ("open", "differ"):
            return [], held
    return ends, held


def bisect(
    workload: str,
    *,
    good: str,
    bad: str,
    package: str | None = None,
    git: str | Path | None = None,
    environment: str = CURRENT,
    budget_s: float | None = None,
    environment_folders: Sequence[str | Path] = (),
    **options: Any,
) -> BisectionResult:
    """Find the release or commit with which a workload changed, and keep all runs.

    Parameters
    ----------
    workload : str
        Name of one variant.
    good, bad : str
        Release or commit from before the change, and from after it.
    package, git : str, path
        Releases of this package, or commits of this checkout, are searched.
    environment : str, default "current"
        Environment that provides everything except the builds.
    budget_s : float, optional
        Time limit in seconds.
    **options
        Options of `plan_bisection`: ``metric``, ``store``, ``folders``, ``scale``, ...

    Returns
    -------
    Bisected
        Result with a rich repr.

    Raises
    ------
    UsageError
        A release, commit or workload does not exist.
    BisectionEndError
        The good or the bad end cannot be measured.

    Examples
    --------
    >>> bisect("array.ols", package="dask", good="2024.1.0", bad="2026.8.0")  # doctest: +SKIP
    """
    base = find_environment(environment, folders_of("environments", environment_folders))
    candidates = find_candidates(good, bad, base, package=package, git=git)
    bisection = plan_bisection(
        workload, candidates, base, environment_folders=environment_folders, **options
    )
    for _ in bisection.run(report=print, budget_s=budget_s):
        pass
    return bisection.found()


def resume_bisection(store: Store | str | Path | None, experiment: str) -> Bisection:
    """Return an earlier bisection to continue; runs in the store are not measured again.

    Parameters
    ----------
    store : Store or path
        Store of the plan and the runs.
    experiment : str
        Experiment id, the beginning of one, or "latest".

    Raises
    ------
    UsageError
        The store has no such bisection.
    """
    home = store if isinstance(store, Store) else Store(store, create=False)
    plan = read_plan(home.path, experiment, having=KEPT)
    words = plan["words"]
    kept = words[KEPT]
    return plan_bisection(
        kept["asked"],
        [Candidate(**entry) for entry in kept["candidates"]],
        find_environment(kept["base"], folders_of("environments", kept["environment_folders"])),
        metric=kept["metric"],
        folders=kept["folders"],
        environment_folders=kept["environment_folders"],
        params=kept["params"],
        store=home,
        search=kept["search"],
        held=kept["held"],
        ends=kept.get("ends", ()),
        tags=plan["tags"],
        words=words,
        scale=plan["scale"],
        capture=plan["capture"],
        deadline_s=kept["deadline_s"],
        id=plan["id"],
    )


def _one_variant(name: str, folders: Sequence[Path], params: Mapping[str, Any]) -> Variant:
    variants = with_parameters(collect(folders).select((name,)), params)
    if len(variants) > 1:
        raise UsageError(
            f"{name!r} is {len(variants)} variants, and one is bisected: name it, "
            f"such as '{variants[0].name}'"
        )
    return variants[0]
