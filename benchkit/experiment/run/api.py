"""Measure workloads by name: create an experiment from arguments, run it, return its runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from benchkit.analysis.metric_names import check_metrics
from benchkit.errors import InvalidParameterError, UsageError, did_you_mean
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import as_environment
from benchkit.experiment.paths import collect_workloads, folders_of
from benchkit.experiment.run.events import finished_records
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.plan import NULL_ARM, Arm, read_plan
from benchkit.experiment.run.sweep import ARM_PARTS, expand
from benchkit.experiment.virtual.inputs import GRAPHS
from benchkit.experiment.virtual.process import VirtualSpec
from benchkit.measure.arguments import (
    check_count,
    check_mapping,
    declared_unit,
    list_of,
    own_metric,
)
from benchkit.measure.discovery import BrokenFile
from benchkit.measure.secrets import remember_secrets
from benchkit.measure.workloads import Variant
from benchkit.store.run import Run
from benchkit.store.schema import METRICS
from benchkit.store.store import Store


def run(
    *names: str,
    select: str | None = None,
    environment: str | Environment = CURRENT,
    repeats: int = 1,
    store: Store | str | Path | None = None,
    scale: float = 1.0,
    capture: str = "full",
    tags: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    folders: Sequence[str | Path] = (),
) -> list[Run]:
    """Measure workloads in separate kernel processes and store the runs.

    Parameters
    ----------
    *names : str
        Names of workloads or variants, globs allowed; default all workloads.
    select : str, optional
        Expression that narrows the selection, as for ``pytest -k``:
        ``"category:array and not slow"``.
    environment : str or Environment, default "current"
        Environment to measure in.
    repeats : int, default 1
        Number of runs of each variant.
    store : Store or path, optional
        Store for the runs.
    scale : float, default 1.0
        Share of the full size of the data, above 0 and up to 1.
    capture : {"full", "light", "off"}, default "full"
        Level of detail of the capture.
    tags, params : mapping, optional
        Tags of the runs; values of workload parameters.
    folders : sequence of path, optional
        Folders of workload files.

    Returns
    -------
    list of Run
        Runs in the order of measurement.

    Raises
    ------
    UnknownWorkload, InvalidSelectionError, InvalidParameterError
        A name, selection or parameter does not exist.
    InvalidEnvironmentError, UsageError
        An environment or another argument is invalid.

    Examples
    --------
    >>> runs = benchkit.run("sched.task_throughput[n=1000]", repeats=2)  # doctest: +SKIP
    """
    selection = Selection(names, select, folders, params or {}, [environment])
    experiment, _ = plan_experiment(
        selection, store=store, repeats=repeats, scale=scale, capture=capture, tags=tags or {}
    )
    return experiment.store.load(record["id"] for record in finished_records(experiment.run()))


def workloads(select: str | None = None, folders: Sequence[str | Path] = ()) -> pd.DataFrame:
    """Return a table of the variants: category, tags and description.

    Parameters
    ----------
    select : str, optional
        Expression to select variants, with the syntax of ``pytest -k``.
    folders : sequence of path, optional
        Folders of workload files; by default ``./workloads`` and the shipped ones.

    Returns
    -------
    DataFrame
        One row per variant, indexed by full name.
    """
    collection = collect_workloads(folders)
    variants = collection.variants() if select is None else collection.select((), select)
    rows = {
        variant.name: (
            variant.workload.category,
            ", ".join(variant.tags),
            variant.workload.description.partition("\n")[0],
        )
        for variant in variants
    }
    columns = ["category", "tags", "what it does"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("workload")


@dataclass(frozen=True)
class Selection:
    """Workloads and arms of an experiment."""

    # Names of workloads or variants, globs allowed; empty for all workloads.
    names: Sequence[str] = ()
    # Expression that narrows the selection, with the syntax of `pytest -k`.
    select: str | None = None
    # Folders of workload files; by default `./workloads` and the shipped ones.
    folders: Sequence[str | Path] = ()
    params: Mapping[str, Any] = field(default_factory=dict)  # Values of workload parameters
    environments: Sequence[str | Environment] = (CURRENT,)  # The arms, the baseline first
    # Folders of environment files; by default `./environments` and the shipped ones.
    environment_folders: Sequence[str | Path] = ()
    null: bool = False  # Add the baseline once more, as the null arm
    # Add the baseline at each point of this grid: values by key, as `parse_sweeps` returns them. If
    # it has parameters of workloads or packages, the points are all arms, the first the baseline.
    sweeps: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("names", "folders", "environments", "environment_folders"):
            object.__setattr__(self, name, list_of(getattr(self, name), name))
        remember_secrets(self.params, self.sweeps)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise if an option is no field of `Experiment`."""
    known = [item.name for item in fields(Experiment)]
    for name in options:
        if name not in known:
            names = [*known, *(item.name for item in fields(Selection))]
            hint = did_you_mean(name, names, "see `help(benchkit.ab)`")
            raise UsageError(f"no argument named {name!r}: {hint}")


def check_metrics_to_measure(
    metrics: Sequence[str], store: Store | str | Path | None, folders: Sequence[str | Path]
) -> tuple[str, ...]:
    """Return the names of metrics as `check_metrics`; those that workloads declare are known."""
    if any(name not in METRICS for name in list_of(metrics, "metrics")):
        for workload in collect_workloads(folders).workloads.values():
            declared = {
                name: own_metric(name, 0.0, *declared_unit(workload.metrics, name))
                for name in workload.metrics
            }
            METRICS.define(json.dumps(declared))
    return check_metrics(metrics, store)


def plan_experiment(
    selection: Selection, *, store: Store | str | Path | None = None, **options: Any
) -> tuple[Experiment, list[BrokenFile]]:
    """Return an experiment, and the workload files that cannot be loaded.

    All arguments are checked before anything is written.
    """
    check_options(options)
    options["repeats"] = check_count(options.get("repeats", 1), "repeats")
    # Virtual clusters also run synthetic graphs.
    graphs = [GRAPHS] if options.get("virtual") else []
    collection = collect_workloads(selection.folders, graphs)
    collection.require()
    selected = collection.select(selection.names, selection.select)
    requires = sorted({name for variant in selected for name in variant.workload.requires})
    arms = _arms(selection, requires)
    swept = arms[0].params
    if swept:  # only workloads that have the parameters
        having = [item for item in selected if swept.keys() <= item.workload.parameters.keys()]
        for arm in arms:
            with_parameters(having or selected, arm.params)
        selected = with_parameters(having, swept)
    variants = with_parameters(selected, selection.params)
    # Build now: the build rejects invalid settings before anything is written; first those arms
    # that install nothing.
    for environment in sorted(
        (arm.environment for arm in arms), key=lambda e: bool(e.packages or e.conda)
    ):
        build(environment)
    arguments = {
        "names": list(selection.names),
        "expression": selection.select,
        "environments": [e if isinstance(e, str) else e.name for e in selection.environments],
        "null": selection.null,
        "sweeps": {key: list(values) for key, values in selection.sweeps.items()},
        "environment_folders": [str(folder) for folder in selection.environment_folders],
        "folders": [str(folder) for folder in selection.folders],
        "params": dict(selection.params),
    }
    experiment = Experiment(
        store=store if isinstance(store, Store) else Store(store),
        arms=arms,
        variants=variants,
        folders=[*folders_of("workloads", selection.folders), *graphs],
        arguments={**arguments, **options.pop("arguments", {})},
        **options,
    )
    _ = experiment.virtual_inputs  # rejects what cannot be simulated
    return experiment, collection.broken


def resume_experiment(
    store: Store | str | Path | None, experiment: str
) -> tuple[Experiment, list[BrokenFile]]:
    """Return an unfinished experiment to continue; runs in the store are not repeated."""
    run_store = store if isinstance(store, Store) else Store(store, create=False)
    plan = read_plan(run_store, experiment)
    arguments = plan["words"]
    if "names" not in arguments:
        raise UsageError(f"experiment {plan['id']}: is a bisection: use `benchkit bisect --resume`")
    selection = Selection(
        select=arguments["expression"],
        sweeps=arguments.get("sweeps") or {},
        **{name: arguments[name] for name in _SAME_NAMES},
    )
    return plan_experiment(
        selection,
        store=run_store,
        repeats=1 + max((entry["block"] for entry in plan["plan"]), default=0),
        arguments=arguments,
        virtual=VirtualSpec.from_dict(plan["virtual"]) if plan.get("virtual") else None,
        **{name: plan[name] for name in ("scale", "capture", "tags", "id")},
    )


#: Fields of a selection that have the same name in a stored plan.
_SAME_NAMES = ("names", "folders", "params", "environments", "environment_folders", "null")


def _arms(selection: Selection, requires: Sequence[str] = ()) -> list[Arm]:
    if not selection.environments:
        raise UsageError("environments: is empty: name one, such as 'current'")
    arms = []
    for given in selection.environments:
        environment = as_environment(given, selection.environment_folders)
        if environment.name == NULL_ARM:
            raise UsageError(f"environment {NULL_ARM!r}: this name is reserved for the null arm")
        arms.append(Arm(environment.name, environment))
    if selection.sweeps:
        swept = {key.partition(".")[0] for key in selection.sweeps}
        whole = [part for part in ARM_PARTS if part in swept]
        if whole and len(arms) > 1:
            raise UsageError(
                f"a sweep of {whole[0]} takes one environment: its points are the arms"
            )
        grid = expand(arms[0].environment, selection.sweeps, requires)
        arms = grid if whole else [*arms, *grid]
    null = replace(arms[0], name=NULL_ARM)
    return [*arms, null] if selection.null else arms


def _is_word(value: Any) -> bool:
    """Return whether a value is a name of an option, and no path, address or pattern."""
    return isinstance(value, str) and re.fullmatch(r"[\w+-]+", value) is not None


def with_parameters(variants: Sequence[Variant], params: Mapping[str, Any]) -> list[Variant]:
    """Return the variants with these parameter values, set where a workload has the parameter."""
    params = check_mapping(params, "params")
    available = {name for variant in variants for name in variant.workload.parameters}
    for name in params:
        if name not in available:
            known = ", ".join(sorted(available)) or "none"
            hint = did_you_mean(name, available, f"available: {known}")
            raise InvalidParameterError(f"no selected workload has a parameter {name!r}: {hint}")
    bound = []
    for variant in variants:
        declared = variant.workload.parameters
        values = {name: value for name, value in params.items() if name in declared}
        for name, value in values.items():
            types = {type(example) for example in declared[name]}
            if types == {float}:
                types.add(int)
            if types == {tuple}:
                types.add(list)
            if type(value) not in types:
                example = declared[name][0]
                raise InvalidParameterError(
                    f"{variant.workload.name}: {name}={value!r} must have the type of its "
                    f"declared values, such as {example!r}"
                )
            words = [word for word in declared[name] if _is_word(word)]
            if len(words) == len(declared[name]) > 1 and value not in words:
                hint = did_you_mean(value, words, f"give one of {', '.join(words)}")
                raise InvalidParameterError(
                    f"{variant.workload.name} has no {name}={value!r}: {hint}"
                )
        bound.append(variant.workload.bind(**{**variant.params, **values}))
    return list(dict.fromkeys(bound))
