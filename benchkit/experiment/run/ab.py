"""Compare environments from Python, and separate names of environments and workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchkit.analysis.compare.compare_runs import DEFAULT_METRICS, compare_experiment
from benchkit.analysis.compare.comparison import Comparison
from benchkit.analysis.compare.explain import with_causes
from benchkit.analysis.compare.run_groups import with_composition
from benchkit.errors import UnknownWorkload, UsageError, did_you_mean
from benchkit.experiment.environment.environment import CURRENT, Environment
from benchkit.experiment.environment.lookup import list_environments
from benchkit.experiment.paths import collect_workloads, folders_of
from benchkit.experiment.run.api import (
    Selection,
    check_metrics_to_measure,
    check_options,
    plan_experiment,
)
from benchkit.experiment.run.events import finished_records
from benchkit.experiment.virtual.inputs import GRAPHS
from benchkit.measure.arguments import list_of
from benchkit.store.store import Store


def ab(
    environments: Sequence[str | Environment],
    *workloads: str,
    select: str | None = None,
    repeats: int = 5,
    store: Store | str | Path | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    null: bool = True,
    sweeps: Mapping[str, Sequence[Any]] | None = None,
    folders: Sequence[str | Path] = (),
    environment_folders: Sequence[str | Path] = (),
    **options: Any,
) -> Comparison:
    """Measure workloads in several environments in turn, and compare them with the first.

    Parameters
    ----------
    environments : sequence of str or Environment
        The arms, the baseline first.
    *workloads : str
        Names of workloads or variants, globs allowed; default all workloads.
    select : str, optional
        Expression that narrows the selection, as for ``pytest -k``.
    repeats : int, default 5
        Number of blocks.
    store : Store or path, optional
        Store for the runs.
    metrics : sequence of str
        Metrics to compare, or ``["all"]``.
    null : bool, default True
        Measure the baseline a second time: the difference of the two is noise. Not on virtual
        clusters, which have none.
    sweeps : mapping of str to sequence, optional
        An arm for each value: ``{"cluster.n_workers": [2, 4]}``, or variants of workloads:
        ``{"param.method": ["apply", "sum"]}``.
    folders, environment_folders : sequence of path
        As in `benchkit.run` and `benchkit.nightly`.
    **options
        Fields of `Experiment`: ``scale``, ``capture``, ``tags``, ``virtual``.

    Returns
    -------
    Comparison
        A row per environment, workload and metric.

    Raises
    ------
    UnknownWorkload, InvalidSelectionError, UsageError
        A workload, selection, environment or metric does not exist.
    NotEnoughRuns
        No workload ended ok in two arms.

    Examples
    --------
    >>> benchkit.ab(["baseline", "no-stealing"], "sched.tree")  # doctest: +SKIP
    """
    check_options(options)
    chosen = check_metrics_to_measure(metrics, store, folders)
    arms = list_of(environments, "environments")
    known = list_environments(folders_of("environments", environment_folders))
    misplaced = [name for name in workloads if name in known]
    if misplaced:
        raise UsageError(
            f"{misplaced[0]!r} is an environment, not a workload: give all environments as one list"
        )
    if len(arms) < 2 and not sweeps:
        raise UsageError(
            "environments: an A/B needs a baseline and another environment as one list, or sweeps: "
            "see `benchkit list environments`"
        )
    selection = Selection(
        workloads,
        select,
        folders,
        environments=arms,
        environment_folders=environment_folders,
        null=null and not options.get("virtual"),
        sweeps=sweeps or {},
    )
    experiment, _ = plan_experiment(selection, store=store, repeats=repeats, **options)
    for _ in finished_records(experiment.run()):
        pass
    runs = experiment.store.runs(experiment=experiment.id)
    comparison = compare_experiment(runs, experiment.id, metrics=chosen)
    comparison = with_causes(comparison, experiment.store.open)
    return with_composition(comparison, experiment.store)


def split_names(
    names: Sequence[str],
    folders: Sequence[str | Path] = (),
    environment_folders: Sequence[str | Path] = (),
) -> tuple[list[str], list[str]]:
    """Return which of the names are environments, and which are workloads."""
    known = list_environments(folders_of("environments", environment_folders))
    workloads = []
    others = [name for name in names if name not in known and name != CURRENT and "." in name]
    if others:
        collection = collect_workloads(folders, [GRAPHS])
        for name in others:
            try:
                collection.find(name)
            except UnknownWorkload:
                if "[" in name:
                    raise
                if not name.endswith((".yaml", ".yml")):
                    names_here = [*known, *collection.workloads]
                    hint = did_you_mean(name, names_here, "see `benchkit list workloads`")
                    raise UsageError(f"no environment or workload named {name!r}: {hint}") from None
            else:
                workloads.append(name)
    return [name for name in names if name not in workloads], workloads
