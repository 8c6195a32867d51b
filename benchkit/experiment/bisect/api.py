"""Create a bisection: from arguments, or from a stored plan to continue it.

All ``git bisect`` steps share the ends: a block, two builds measured back to back, is valid in
later steps too, if it was measured in the same way: on this machine, within `MAX_AGE_S`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from benchkit.analysis.metric_names import check_metrics
from benchkit.errors import UsageError
from benchkit.experiment.bisect.candidates import find_candidates
from benchkit.experiment.bisect.packages import commit_search, read_end, release_search
from benchkit.experiment.bisect.replay import (
    EVENTS,
    PLAN_KEY,
    SCHEDULE,
    replay,
    runs_of,
    search_options,
)
from benchkit.experiment.bisect.result import BisectionResult
from benchkit.experiment.bisect.search import Search
from benchkit.experiment.bisect.session import Bisection
from benchkit.experiment.environment.builds import Candidate, CandidateEnvironments
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import as_environment
from benchkit.experiment.paths import collect_workloads, folders_of
from benchkit.experiment.run.api import with_parameters
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.plan import read_plan, read_plans
from benchkit.experiment.virtual.inputs import GRAPHS
from benchkit.experiment.virtual.process import VirtualSpec
from benchkit.measure.arguments import check_seconds, check_tags, check_text, list_of
from benchkit.measure.provenance import host_name
from benchkit.measure.run_ids import new_id
from benchkit.measure.workloads import Variant
from benchkit.store.store import Store

#: Tag of the runs: `benchkit.analysis.regression.history` must not treat them as nights.
TAG = "bisect"


#: Maximum age in seconds: the machine may change later, and a bisection takes less than a day.
MAX_AGE_S = 24 * 3600.0
#: Options of an experiment that its measurements depend on.
MEASUREMENT_OPTIONS = ("scale", "capture", "deadline_s")


def measurement_hash(
    variant: Variant, candidates: Sequence[Candidate], base: Environment, options: Mapping[str, Any]
) -> str:
    """Return a hash of everything that a run of an end depends on."""
    content = {
        "workload": [variant.name, variant.workload.version, variant.workload.source_hash],
        "ends": [asdict(candidate) for candidate in (candidates[0], candidates[-1])],
        "base": base.to_dict(),
        "options": dict(options),
        "host": host_name(),
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def earlier_ends(store: Store, how: str) -> tuple[list[list[str]], dict[str, str] | None]:
    """Return the end runs and pinned packages of earlier bisections with the same ends."""
    ends: list[list[str]] = []
    pinned = None
    for experiment, stored in _bisections(store):
        if stored.get("how") != how:
            continue
        pinned = dict(stored["held"])
        names = [stored["candidates"][position]["name"] for position in (0, -1)]
        runs = store.runs(experiment=experiment, columns=["id", "arm", "block", "outcome"])
        runs = runs[runs["arm"].isin(names) & (runs["outcome"] != "infrastructure")]
        for _, block_runs in runs.groupby("block"):
            by_arm = dict(zip(block_runs["arm"], block_runs["id"], strict=True))
            if len(by_arm) == 2:
                ends.append([by_arm[name] for name in names])
    return ends, pinned


def _bisections(store: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for plan in read_plans(store):
        if PLAN_KEY in plan.get("words", {}) and plan["started"] > time.time() - MAX_AGE_S:
            yield plan["id"], plan["words"][PLAN_KEY]


@dataclass(frozen=True)
class Target:
    """The change to search for."""

    workload: str  # Name of one variant
    metric: str = "duration"  # Metric that changed, or "outcome"
    folders: Sequence[str | Path] = ()  # Folders of workload files
    environment_folders: Sequence[str | Path] = ()  # Folders of environment files
    params: Mapping[str, Any] = field(default_factory=dict)  # Values of workload parameters
    base: str = ""  # Name by which the base is found again; "": its own
    # Checkout whose commits are searched when the release is found; "": none.
    checkout: str = ""
    # Options of `benchkit.experiment.bisect.search.Search`.
    search: Mapping[str, Any] = field(default_factory=dict)


def plan_bisection(
    target: Target,
    candidates: Sequence[Candidate],
    base: Environment,
    *,
    store: Store | str | Path | None = None,
    pinned: Mapping[str, str] | None = None,
    ends: Sequence[Sequence[str]] | None = (),
    **options: Any,
) -> Bisection:
    """Return a bisection that is ready to run; check all arguments before writing anything."""
    metric = target.metric
    if metric == SCHEDULE and not options.get("virtual"):
        raise UsageError("metric schedule: only simulated runs have one: add --virtual")
    if metric not in EVENTS:
        check_metrics([metric])
    graphs = [GRAPHS] if options.get("virtual") else []
    variant = _one_variant(target, graphs)
    options = {**options, "id": options.get("id") or new_id()}
    run_store = store if isinstance(store, Store) else Store(store)
    measured = {name: options[name] for name in MEASUREMENT_OPTIONS if name in options}
    if options.get("virtual"):
        measured["virtual"] = asdict(options["virtual"])
    how = measurement_hash(variant, candidates, base, measured)
    own_options = {**target.search, **search_options(metric)}
    if ends is None:
        ends, pinned = earlier_ends(run_store, how)
        ends = [] if metric == SCHEDULE else ends  # the blocks of all builds have one draw
        search = Search(len(candidates), **own_options)
        if ends:
            replay(search, candidates, runs_of(run_store, "", ends), metric)
        if search.ends not in ("open", "differ"):
            ends = ()  # each step would end at once: measure the ends again
    builds = CandidateEnvironments(base, candidates, variant.workload.requires, pinned)
    stored = {
        "workload": variant.name,
        "metric": metric,
        "candidates": [asdict(candidate) for candidate in candidates],
        "search": dict(target.search),
        "held": builds.pinned,
        "how": how,
        "ends": [list(pair) for pair in ends],
        "base": target.base or str(base.path or base.name),
        # The packages of a base that is no file: of a search between environments.
        "packages": list(base.packages or ()) if target.base else None,
        "asked": target.workload,
        "checkout": target.checkout,
        "folders": [str(path) for path in list_of(target.folders, "folders")],
        "environment_folders": [
            str(path) for path in list_of(target.environment_folders, "environment_folders")
        ],
        "params": dict(target.params),
        "deadline_s": options.get("deadline_s"),
    }
    options["tags"] = {**check_tags(options.get("tags")), TAG: options["id"]}
    options["arguments"] = {**(options.get("arguments") or {}), PLAN_KEY: stored}
    experiment = Experiment(
        store=run_store,
        arms=[],
        variants=[variant],
        folders=[*folders_of("workloads", target.folders), *graphs],
        repeats=0,
        **options,
    )
    return Bisection(experiment, builds, Search(len(candidates), **own_options), metric, ends)


def bisect(
    workload: str,
    *,
    good: str,
    bad: str,
    package: str | None = None,
    git: str | Path | None = None,
    environment: str = CURRENT,
    budget_s: float | None = None,
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
        Releases of this package, or commits of this checkout, are searched; with both, first the
        releases and then the commits of the release that was found.
    environment : str, default "current"
        Environment that provides everything except the builds.
    budget_s : float, optional
        Time limit in seconds.
    **options
        Fields of `Target` and options of `plan_bisection`: ``metric``, ``folders``,
        ``environment_folders``, ``store``, ``scale``, ...

    Returns
    -------
    BisectionResult
        Build, probability and size of the change, with a rich repr.

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
    for name, end in (("good", good), ("bad", bad)):
        check_text(end, name)
    budget_s = check_seconds(budget_s, "budget_s")
    names = {item.name for item in fields(Target)} & set(options)
    target = Target(
        workload,
        checkout=str(git) if package and git else "",
        **{name: options.pop(name) for name in names},
    )
    base = as_environment(environment, target.environment_folders)
    candidates = find_candidates(good, bad, base, package=package, git=git)
    bisection = plan_bisection(target, candidates, base, **options)
    result = None
    following: Bisection | None = bisection
    while following is not None:
        for _ in following.run(report=print, budget_s=budget_s):
            pass
        narrower = following.result()
        is_found = narrower.status == "found"
        result = narrower if result is None or is_found else result
        following = narrow_bisection(following, print) if is_found else None
    assert result is not None
    return result


def resume_bisection(store: Store | str | Path | None, experiment: str) -> Bisection:
    """Return an earlier bisection to continue; runs in the store are not measured again."""
    run_store = store if isinstance(store, Store) else Store(store, create=False)
    plan = read_plan(run_store, experiment, having=PLAN_KEY)
    stored = plan["words"][PLAN_KEY]
    target, options = _stored_options(plan)
    if stored.get("packages") is None:
        base = as_environment(stored["base"], target.environment_folders)
    else:
        target = replace(target, base=stored["base"])
        end = read_end(stored["base"], target.environment_folders, run_store)
        base = replace(end.environment, packages=tuple(stored["packages"]))
    return plan_bisection(
        target,
        [Candidate(**entry) for entry in stored["candidates"]],
        base,
        store=run_store,
        pinned=stored["held"],
        ends=stored.get("ends", ()),
        id=plan["id"],
        **options,
    )


def narrow_bisection(bisection: Bisection, report: Callable[[str], None]) -> Bisection | None:
    """Return the search within what a bisection found: from package to release, and to commit.

    None if there is none; reports why the commits of a checkout cannot be searched.
    """
    store, between = bisection.experiment.store, bisection.search.between
    plan = read_plan(store, bisection.experiment.id, having=PLAN_KEY)
    target, options = _stored_options(plan)
    try:
        more = release_search(bisection.builds, *between) or commit_search(
            bisection.builds, *between, target.checkout
        )
    except UsageError as error:  # the release is known all the same
        report(f"commits are not searched: {error}")
        return None
    if more is None:
        return None
    base, builds = more
    target = replace(target, base=plan["words"][PLAN_KEY]["base"])
    return plan_bisection(target, builds, base, store=store, **options)


def _stored_options(plan: Mapping[str, Any]) -> tuple[Target, dict[str, Any]]:
    """Return the target of a stored bisection, and its options without those of its search."""
    stored = plan["words"][PLAN_KEY]
    names = ("metric", "folders", "environment_folders", "params", "search")
    target = Target(
        stored["asked"],
        checkout=stored.get("checkout", ""),  # older plans have none
        **{name: stored[name] for name in names},
    )
    options = {name: plan[name] for name in ("tags", "scale", "capture")}
    virtual = VirtualSpec.from_dict(plan["virtual"]) if plan.get("virtual") else None
    return target, {
        **options,
        "deadline_s": stored["deadline_s"],
        "arguments": plan["words"],
        "virtual": virtual,
    }


def _one_variant(target: Target, graphs: Sequence[Path]) -> Variant:
    name, collection = target.workload, collect_workloads(target.folders, graphs)
    variants = with_parameters(collection.select((name,)), target.params)
    if len(variants) > 1:
        raise UsageError(
            f"{name!r} selects {len(variants)} variants: select one, such as '{variants[0].name}'"
        )
    return variants[0]
