"""Limits of metrics in tables of runs: versions of their definitions, and notes on their quality.

Definitions have versions, see `METRICS`; notes are those of `Run.quality`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from benchkit.formatting import counted

__all__ = ["newest_definitions", "quality_warnings"]

VERSIONS = "metric_versions"
#: Kinds of notes that matter when values are compared: others hold for all arms alike.
COMPARED_KINDS = ("disturbed", "unfinished", "cut")


def newest_definitions(
    tables: Sequence[pd.DataFrame], metrics: Sequence[str]
) -> tuple[list[pd.DataFrame], list[str]]:
    """Remove values that were computed by an older definition than others in the tables.

    Parameters
    ----------
    tables : sequence of DataFrame
        Runs as returned by `Store.runs`.
    metrics : sequence of str
        Names of the metrics to check.

    Returns
    -------
    tables : list of DataFrame
        The tables, with NaN in place of values of older definitions.
    warnings : list of str
        A line per metric that lost values.
    """
    versions = [_versions(table) for table in tables]
    tables, warnings = list(tables), []
    for metric in metrics:
        known = [
            np.array([each.get(metric, 1) for each in column], int) if metric in table else None
            for table, column in zip(tables, versions, strict=True)
        ]
        newest = max((int(one.max()) for one in known if one is not None and len(one)), default=1)
        n_removed = 0
        for index, numbers in enumerate(known):
            if numbers is None or (numbers == newest).all():
                continue
            older = (numbers < newest) & tables[index][metric].notna().to_numpy()
            n_removed += int(older.sum())
            values = tables[index][metric].astype(float).mask(numbers < newest)
            tables[index] = tables[index].assign(**{metric: values})
        if n_removed:
            warnings.append(
                f"{metric}: without the values of {counted(n_removed, 'run')} that an older "
                "benchkit measured by another definition"
            )
    return tables, warnings


def quality_warnings(arms: Mapping[str, pd.DataFrame], metrics: Sequence[str]) -> list[str]:
    """Return warnings about runs whose values are limited in a way that can favour an arm.

    Parameters
    ----------
    arms : mapping of str to DataFrame
        Runs of each arm, as returned by `Store.runs`.
    metrics : sequence of str
        Metrics that are compared.

    Returns
    -------
    list of str
        A line per arm, metric and kind of limit.
    """
    warnings = []
    for arm, runs in arms.items():
        if "quality" not in runs:
            continue
        notes = [value if isinstance(value, Mapping) else {} for value in runs["quality"]]
        for metric in metrics:
            for kind in COMPARED_KINDS:
                n_runs = sum(kind in note.get(metric, "").split() for note in notes)
                if n_runs:
                    warnings.append(
                        f"{metric}: {n_runs} of {counted(len(runs), 'run')} of {arm} {kind}; "
                        "`Run.quality` says by what"
                    )
    return warnings


def _versions(table: pd.DataFrame) -> list[Mapping[str, int]]:
    if VERSIONS not in table:
        return [{}] * len(table)
    return [value if isinstance(value, Mapping) else {} for value in table[VERSIONS]]
