"""Measure workloads by name: from words to an experiment, and to the runs it leaves."""

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
    """Measure workloads in kernels of their own and keep the runs.

    Parameters
    ----------
    *names : str
        Names of workloads or variants, globs allowed; all of them if none is given.
    select : str, optional
        Select further, as ``pytest -k`` does: ``"category:array and not slow"``.
    environment : str or Environment, default "current"
        What they run in.
    repeats : int, default 1
        How often each.
    store : Store or path, optional
        Where the runs are kept.
    scale : float, default 1.0
        Share of the full size of the data, above 0 and up to 1.
    capture : {"full", "light", "off"}, default "full"
        How much is watched.
    tags, params : mapping, optional
        What the runs are tagged with; values of parameters.
    folders : sequence of path, optional
        Folders of workload files.

    Returns
    -------
    list of Run
        In the order in which they were measured.

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
    """Return the variants there are, by name: category, tags, and what each does.

    Parameters
    ----------
    select : str, optional
        Select, as ``pytest -k`` does.
    folders : sequence of path, optional
        Folders of workload files; by default ``./workloads``, else the shipped ones.

    Returns
    -------
    DataFrame
        A row per variant, indexed by its full name.
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
    """Return the experiment that these words mean, and the workload files that are broken.

    Nothing is written before everything is found. `environments` are the arms, the baseline
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
        # Now, because what its packages do not know is refused before anything is written.
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
    """Return an experiment that was begun and not ended; what is in the store is not run again.

    Parameters
    ----------
    store : Store or path
        Where its plan and its runs are.
    experiment : str
        Its id, the beginning of it, or "latest".

    Raises
    ------
    UsageError
        There is no such experiment.
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
    """Return the variants with these values; each value goes to the workloads that have it.

    Raises
    ------
    InvalidParameterError
        No selected workload has the parameter, or the value is of another type than its own.
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
        One has no ``=``, no name, or a name that another has.
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
