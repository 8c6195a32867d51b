"""Read the runs that texts such as ``env:main,since:7d`` select, as in `benchkit compare`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from benchkit.errors import NotEnoughRuns, did_you_mean
from benchkit.store.filters import KEYS, PAIR_KEYS, parse_selection
from benchkit.store.store import Store
from benchkit.values import decode_json, split_at_commas


def select_runs(store: Store, text: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the selected runs, oldest first."""
    filters = parse_selection(text) if text else {}
    if filters.get("experiment") == "latest":
        experiments = store.runs(columns=["experiment", "started"])["experiment"].dropna()
        filters["experiment"] = str(experiments.iloc[-1]) if len(experiments) else "none"
    for name in {key.argument for key in KEYS.values() if key.by_beginning} & filters.keys():
        if "*" not in filters[name]:
            filters[name] += "*"
    runs = store.runs(**filters, columns=columns)
    reason = explain_no_runs(store, filters) if runs.empty else ""
    if reason:
        raise NotEnoughRuns(reason)
    return runs


def select_sets(store: Store, texts: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the runs of several selections, to be compared workload by workload."""
    names = {name for text in texts for name in parse_selection(text).get(PAIR_KEYS["param"], {})}
    sets = {text: select_runs(store, text) for text in texts}
    names = names.union(*map(_swept_parameters, sets.values()))
    return {text: _without_parameters(runs, names) for text, runs in sets.items()}


def pair_workloads(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of an experiment, whose arms may differ in parameters of the workloads."""
    return _without_parameters(runs, _swept_parameters(runs))


def _swept_parameters(runs: pd.DataFrame) -> set[str]:
    if not {"arm", "params"} <= set(runs):
        return set()
    swept: set[str] = set()
    other: set[str] = set()
    for arm, text in set(zip(runs["arm"].fillna(""), runs["params"], strict=True)):
        point = dict(part.split("=", 1) for part in split_at_commas(arm) if "=" in part)
        for name, value in decode_json(text).items():
            if name in point:
                (swept if point[name] == str(value) else other).add(name)
    # An arm of a swept setting, such as n_workers, runs all values of a parameter of that name.
    return swept - other


def _without_parameters(runs: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    if not names or runs.empty:
        return runs
    workloads = []
    for workload, text in zip(runs["workload"], runs["params"], strict=True):
        params = decode_json(text)
        inside = ",".join(f"{k}={v}" for k, v in params.items() if k not in names)
        base = str(workload).partition("[")[0] if set(names) & set(params) else workload
        workloads.append(f"{base}[{inside}]" if inside and base != workload else base)
    return runs.assign(workload=workloads)


def explain_no_runs(store: Store, filters: Mapping[str, Any]) -> str:
    """Return which filter matches no run by itself, with the values that exist."""
    single = [
        (name, key, value)
        for name, wanted in filters.items()
        if name not in ("since", "until") and wanted is not None
        for key, value in (wanted.items() if isinstance(wanted, Mapping) else [("", wanted)])
    ]
    words = {key.argument: word for word, key in reversed(KEYS.items())}
    pairs = {column: word for word, column in PAIR_KEYS.items()}
    for name, key, value in single if len(store) else ():
        alone: dict[str, Any] = {name: {key: value} if key else value}
        if len(store.runs(columns=["id"], **alone)):
            continue
        column = store.runs(columns=[name])[name].dropna()
        values = [decode_json(item).get(key) for item in column] if key else list(column)
        known = list(dict.fromkeys(str(item) for item in values if item is not None))
        word, value = pairs[name] if key else words[name], str(value)
        what = f"{word}:{key}={value}" if key else f"{word}:{value.removesuffix('*')}"
        noun = f"values of {key}" if key else KEYS[word].plural
        more = f" and {len(known) - 8} more" if len(known) > 8 else ""
        hint = did_you_mean(value, known, "")
        shown = hint or f"{noun} here: {', '.join(known[-8:]) or 'none'}{more}"
        return f"{what} matches no runs{': ' if hint else '; '}{shown}"
    return ""
