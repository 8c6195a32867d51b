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
    found: dict[str, Any] = {}
    for piece in text.split(","):
        word, colon, value = (part.strip() for part in piece.partition(":"))
        if not colon or not value:
            raise InvalidSelectionError(
                f"selection {text!r}: {piece!r} must be WORD:VALUE, as in env:main"
            )
        if word in ("tag", "param"):
            name, equals, value = value.partition("=")
            if not equals:
                raise InvalidSelectionError(
                    f"selection {text!r}: {piece!r} must be {word}:NAME=VALUE"
                )
        elif word in _FIELDS:
            name = _FIELDS[word]
        else:
            hint = did_you_mean(word, [*_FIELDS, "tag", "param"], f"use {', '.join(_FIELDS)}, tag")
            raise InvalidSelectionError(f"selection {text!r}: no word {word!r}: {hint}")
        if name in found:
            raise InvalidSelectionError(f"selection {text!r}: {name} is given twice")
        found[name] = value
    return found


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
    words = parse_selection(text)
    if "experiment" in words and words["experiment"] != "latest":
        words["experiment"] += "*" if "*" not in words["experiment"] else ""
    elif "experiment" in words:
        known = store.runs(columns=["experiment", "started"])["experiment"].dropna()
        words["experiment"] = str(known.iloc[-1]) if len(known) else "none"
    if "git_commit" in words:  # the beginning of a commit is enough
        words["git_commit"] += "" if "*" in words["git_commit"] else "*"
    return store.runs(words.pop("workload", None), **words)
