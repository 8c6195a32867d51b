"""Parse selections of runs such as ``env:main,since:7d``, as in `benchkit compare`."""

from __future__ import annotations

from typing import Any

import pandas as pd

from benchkit.errors import InvalidSelectionError, did_you_mean
from benchkit.store.store import Store

__all__ = ["parse_selection", "select_runs"]

#: Keys of a selection -> arguments of `Store.runs`.
_FIELDS = {
    "env": "environment",
    "environment": "environment",
    "experiment": "experiment",
    "arm": "arm",
    "workload": "workload",
    "category": "category",
    "host": "host",
    "dask": "dask",
    "distributed": "distributed",
    "python": "python",
    "commit": "git_commit",
    "outcome": "outcome",
    "since": "since",
    "until": "until",
}


def parse_selection(text: str) -> dict[str, Any]:
    """Return a selection as arguments of `Store.runs`.

    Parameters
    ----------
    text : str
        ``key:value`` separated by commas; also ``tag:name=value`` and ``param:name=value``.

    Returns
    -------
    dict
        Keyword arguments.

    Raises
    ------
    InvalidSelectionError
        A key is unknown, has no value, or occurs twice.

    Examples
    --------
    >>> parse_selection("env:main,tag:variant=A,since:7d")
    {'environment': 'main', 'variant': 'A', 'since': '7d'}
    """
    filters: dict[str, Any] = {}
    for part in text.split(","):
        key, colon, value = (word.strip() for word in part.partition(":"))
        if not colon or not value:
            raise InvalidSelectionError(
                f"selection {text!r}: {part!r} must be KEY:VALUE, as in env:main"
            )
        if key in ("tag", "param"):
            name, equals, value = value.partition("=")
            if not equals:
                raise InvalidSelectionError(
                    f"selection {text!r}: {part!r} must be {key}:NAME=VALUE"
                )
        elif key in _FIELDS:
            name = _FIELDS[key]
        else:
            hint = did_you_mean(key, [*_FIELDS, "tag", "param"], f"use {', '.join(_FIELDS)}, tag")
            raise InvalidSelectionError(f"selection {text!r}: unknown key {key!r}: {hint}")
        if name in filters:
            raise InvalidSelectionError(f"selection {text!r}: {name} is given twice")
        filters[name] = value
    return filters


def select_runs(store: Store, text: str) -> pd.DataFrame:
    """Return the selected runs, oldest first.

    Parameters
    ----------
    store : Store
        The store.
    text : str
        A selection as `parse_selection` accepts it.

    Returns
    -------
    DataFrame
        Rows of `Store.runs`.

    Raises
    ------
    InvalidSelectionError
        The selection is invalid.
    UsageError
        A time is invalid, or no run has the tag.
    """
    filters = parse_selection(text)
    if filters.get("experiment") == "latest":
        experiments = store.runs(columns=["experiment", "started"])["experiment"].dropna()
        filters["experiment"] = str(experiments.iloc[-1]) if len(experiments) else "none"
    for name in ("experiment", "git_commit"):  # the beginning of an id or commit is enough
        if name in filters and "*" not in filters[name]:
            filters[name] += "*"
    return store.runs(filters.pop("workload", None), **filters)
