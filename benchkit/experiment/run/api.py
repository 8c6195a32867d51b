"""Measure workloads by name: create an experiment from arguments, run it, return its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchkit.errors import InvalidParameterError, UsageError, did_you_mean
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import find_environment
from benchkit.experiment.paths import folders_of
from benchkit.experiment.run.events import finished_records
from benchkit.experiment.run.experiment import Experiment
from benchkit.experiment.run.plan import NULL_ARM, Arm, read_plan
from benchkit.experiment.run.sweep import expand
from benchkit.measure.discovery import BrokenFile, collect
from benchkit.measure.workloads import Variant
from benchkit.store.run import Run
from benchkit.store.store import Store

__all__ = [
    "parse_pairs",
    "plan_experiment",
    "resume_experiment",
    "run",
    "with_parameters",
    "workloads",
]


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
    experiment, _ = plan_experiment(
        names,
        select=select,
        environments=[environment],
        repeats=repeats,
        store=store,
        scale=scale,
        capture=capture,
        tags=tags or {},
        params=params or {},
        folders=folders,
    )
    return experiment.store.load(record["id"] for record in finished_records(experiment.run()))


def workloads(select: str | None = None, folders: Sequence[str | Path] = ()) -> pd.DataFrame:
    """Return a table of the variants: category, tags and description.

    Parameters
    ----------
    select : str, optional
        Expression to select variants, with the syntax of ``pytest -k``.
    folders : sequence of path, optional
        Folders of workload files; by default ``./workloads``, else the shipped ones.

    Returns
    -------
    DataFrame
        One row per variant, indexed by full name.
    """
    variants = collect(folders_of("workloads", folders)).select((), select)
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


def plan_experiment(
    names: Sequence[str] = (),
    *,
    select: str | None = None,
    environments: Sequence[str | Environment] = (CURRENT,),
    null: bool = False,
    sweeps: Mapping[str, Sequence[Any]] | None = None,
    environment_folders: Sequence[str | Path] = (),
    folders: Sequence[str | Path] = (),
    params: Mapping[str, Any] | None = None,
    store: Store | str | Path | None = None,
    **options: Any,
) -> tuple[Experiment, list[BrokenFile]]:
    """Return the experiment for these arguments, and the workload files that cannot be loaded.

    All arguments are checked before anything is written. `environments` are the arms, the baseline
    first; `null` adds the baseline once more, `sweeps` the baseline at each point of a grid.
    `options` are those of `Experiment`.

    Raises
    ------
    UnknownWorkload, InvalidSelectionError, InvalidParameterError
        A name, selection or parameter does not exist.
    InvalidEnvironmentError, UsageError
        An environment or another argument is invalid.
    """
    places = folders_of("workloads", folders)
    collection = collect(places)
    variants = with_parameters(collection.select(names, select), params or {})
    found = folders_of("environments", environment_folders)
    arms = [_arm(environment, found) for environment in environments]
    named = [arm.environment.name for arm in arms]
    for environment, point in expand(arms[0].environment, sweeps) if sweeps else ():
        arms.append(Arm(environment.name, environment, point))
    if null:
        arms.append(Arm(NULL_ARM, arms[0].environment))
    for arm in arms:
        # Build now: the build rejects invalid settings before anything is written.
        build(arm.environment)
    words = {
        "names": list(names),
        "expression": select,
        "environments": named,
        "null": null,
        "sweeps": {key: list(values) for key, values in (sweeps or {}).items()},
        "environment_folders": [str(folder) for folder in environment_folders],
        "folders": [str(folder) for folder in folders],
        "params": dict(params or {}),
    }
    experiment = Experiment(
        store=store if isinstance(store, Store) else Store(store),
        arms=arms,
        variants=variants,
        folders=places,
        words={**words, **options.pop("words", {})},
        **options,
    )
    return experiment, collection.broken


def resume_experiment(
    store: Store | str | Path | None, experiment: str
) -> tuple[Experiment, list[BrokenFile]]:
    """Return an unfinished experiment to continue; runs in the store are not repeated.

    Parameters
    ----------
    store : Store or path
        Store of the plan and the runs.
    experiment : str
        Experiment id, the beginning of one, or "latest".

    Raises
    ------
    UsageError
        The store has no such experiment.
    """
    home = store if isinstance(store, Store) else Store(store, create=False)
    plan = read_plan(home.path, experiment)
    words = plan["words"]
    if "names" not in words:
        raise UsageError(
            f"experiment {plan['id']}: is a bisection: `benchkit bisect --resume` goes on with it"
        )
    return plan_experiment(
        words["names"],
        select=words["expression"],
        environments=words["environments"],
        null=words["null"],
        sweeps=words.get("sweeps"),
        environment_folders=words["environment_folders"],
        folders=words["folders"],
        params=words["params"],
        store=home,
        repeats=1 + max((entry["block"] for entry in plan["plan"]), default=0),
        order=plan["order"],
        seed=plan["seed"],
        scale=plan["scale"],
        capture=plan["capture"],
        tags=plan["tags"],
        words=words,
        id=plan["id"],
    )


def _arm(environment: str | Environment, folders: Sequence[Path]) -> Arm:
    if isinstance(environment, str):
        environment = find_environment(environment, folders)
    if environment.name == NULL_ARM:
        raise UsageError(f"an environment named {NULL_ARM!r}: that is the name of the null arm")
    return Arm(environment.name, environment)


def with_parameters(variants: Sequence[Variant], params: Mapping[str, Any]) -> list[Variant]:
    """Return the variants with these parameter values, set where a workload has the parameter.

    Raises
    ------
    InvalidParameterError
        No selected workload has the parameter, or the value has a wrong type.
    """
    known = {name for variant in variants for name in variant.workload.parameters}
    for name in params:
        if name not in known:
            hint = did_you_mean(name, known, f"they have {', '.join(sorted(known)) or 'none'}")
            raise InvalidParameterError(f"no selected workload has a parameter {name!r}: {hint}")
    bound = []
    for variant in variants:
        own = variant.workload.parameters
        values = {name: value for name, value in params.items() if name in own}
        for name, value in values.items():
            kinds = {type(example) for example in own[name]}
            if kinds == {float}:
                kinds.add(int)
            if type(value) not in kinds:
                example = own[name][0]
                raise InvalidParameterError(
                    f"{variant.workload.name}: {name}={value!r} is of another type than "
                    f"its own values, such as {example!r}"
                )
        bound.append(variant.workload.bind(**{**variant.params, **values}))
    return list(dict.fromkeys(bound))


def parse_pairs(pairs: Sequence[str], option: str, *, typed: bool = False) -> dict[str, Any]:
    """Return ``K=V`` texts as a dictionary; `typed` reads values as YAML scalars.

    Raises
    ------
    UsageError
        A text has no ``=`` or no name, or two texts have the same name.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {pair!r}: must be NAME=VALUE")
        if name in found:
            raise UsageError(f"{option} {pair!r}: {name} is given twice")
        found[name] = value
        if typed:
            with suppress(yaml.YAMLError):
                found[name] = yaml.safe_load(value)
    return found
