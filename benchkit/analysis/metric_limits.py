"""Limits of metrics in tables of runs: versions of their definitions, and notes on their quality.

Definitions have versions, see `METRICS`; notes are those of `Run.quality`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchkit.formatting import counted
from benchkit.values import decode_json

VERSIONS = "metric_versions"
LOSSES = "capture_losses"
#: Kinds of notes that matter when values are compared: others hold for all arms alike.
COMPARED_KINDS = ("disturbed", "unfinished", "cut")


def newest_definitions(
    tables: Sequence[pd.DataFrame], metrics: Sequence[str], by: Sequence[str] = ()
) -> tuple[list[pd.DataFrame], list[str]]:
    """Remove values that were computed by an older definition than others in the tables."""
    # tables: The tables, with NaN in place of values of older definitions.
    tables, warnings = list(tables), []
    series = np.zeros(sum(map(len, tables)), int)
    if by:
        fields = pd.concat([table[list(by)] for table in tables])
        series = fields.groupby(list(by), dropna=False).ngroup().to_numpy()
    decoded = [_decoded_versions(table) for table in tables]
    for metric in metrics:
        n_removed = 0
        if len({o.get(metric, 1) for _, objects in decoded for o in objects}) < 2:
            continue
        versions = [_versions(table, metric) for table in decoded]
        joined = pd.Series(np.concatenate([[], *versions]))
        newest = joined.groupby(series).transform("max")
        older = np.split((joined < newest).to_numpy(), np.cumsum([*map(len, versions)])[:-1])
        for index, is_older in enumerate(older):
            if metric in tables[index]:
                n_removed += int((is_older & tables[index][metric].notna()).sum())
                tables[index] = _without(tables[index], metric, is_older)
        if n_removed:
            warnings.append(
                f"{metric}: without the values of {counted(n_removed, 'run')} that an older "
                "benchkit measured by another definition"
            )
    return tables, warnings


def same_definitions(
    runs: pd.DataFrame, record: Mapping[str, Any], metrics: Sequence[str]
) -> pd.DataFrame:
    """Remove values that were computed by another definition than those of a run."""
    # returned: The runs, with NaN in place of values of other definitions.
    own, decoded = decode_json(record.get(VERSIONS)), _decoded_versions(runs)
    for metric in metrics:
        if metric in runs:
            runs = _without(runs, metric, _versions(decoded, metric) != own.get(metric, 1))
    return runs


def _without(table: pd.DataFrame, metric: str, removed: NDArray[np.bool_]) -> pd.DataFrame:
    if not removed.any():
        return table
    return table.assign(**{metric: table[metric].astype(float).mask(removed)})


def quality_warnings(arms: Mapping[str, pd.DataFrame], metrics: Sequence[str]) -> list[str]:
    """Return warnings about runs whose values are limited in a way that can favour an arm."""
    warnings = []
    for arm, runs in arms.items():
        n_lost = int((runs[LOSSES].notna() & (runs[LOSSES] != "")).sum()) if LOSSES in runs else 0
        if n_lost:
            text = f"the capture lost data in {n_lost} of {counted(len(runs), 'run')} of {arm}"
            warnings.append(f"{text}; `benchkit report run RUN` says which")
        if "quality" not in runs:
            continue
        counts = {kind: metric_limits(runs, kind) for kind in COMPARED_KINDS}
        warnings += [
            f"{metric}: {counts[kind][metric]} of {counted(len(runs), 'run')} of {arm} {kind}; "
            "`benchkit report run RUN` says why"
            for metric in metrics
            for kind in COMPARED_KINDS
            if counts[kind][metric]
        ]
    return warnings


def metric_limits(runs: pd.DataFrame, kind: str) -> Counter[str]:
    """Return the number of runs with a note of a kind, by metric."""
    counts: Counter[str] = Counter()
    for value in runs["quality"] if "quality" in runs else ():
        counts.update(m for m, kinds in decode_json(value).items() if kind in kinds.split())
    return counts


def decode_column(column: pd.Series) -> tuple[NDArray[np.int64], list[dict[str, Any]]]:
    """Return the JSON objects of a column, each distinct text decoded once."""
    codes, texts = pd.factorize(column, use_na_sentinel=False)
    return codes, [decode_json(text) for text in texts]


_Decoded: TypeAlias = tuple[NDArray[np.int64], list[dict[str, Any]]]


def _decoded_versions(table: pd.DataFrame) -> _Decoded:
    """Return the versions of definitions of each run."""
    if VERSIONS not in table:
        return np.zeros(len(table), np.int64), [{}]
    return decode_column(table[VERSIONS])


def _versions(decoded: _Decoded, metric: str) -> NDArray[np.int64]:
    """Return the version of a metric's definition in each run."""
    codes, objects = decoded
    return np.array([versions.get(metric, 1) for versions in objects], np.int64)[codes]
