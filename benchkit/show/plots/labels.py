"""Texts of figures: names cut to the room that they have, and names of metrics."""

from __future__ import annotations

from collections.abc import Iterable

from benchkit.store.schema import METRICS

__all__ = ["metric_label", "row_labels", "shorten"]


def shorten(name: str, most: int) -> str:
    """Cut the middle of a name that is too long for a label.

    Parameters
    ----------
    name : str
        The name.
    most : int
        Maximum number of characters of the result.

    Returns
    -------
    str
        The name, or its beginning and its end.

    Examples
    --------
    >>> shorten("array.basic_sum[kind=fast-thin]", 16)
    'array.b…st-thin]'
    """
    return name if len(name) <= most else f"{name[: (most - 1) // 2]}…{name[-(most // 2) :]}"


def row_labels(names: Iterable[str], most: int) -> list[str]:
    """Return distinct labels of rows, because the factors of a range must be distinct.

    Parameters
    ----------
    names : iterable of str
        Names of the rows.
    most : int
        Maximum number of characters; longer names are cut in the middle.

    Returns
    -------
    list of str
        One label per name; labels that are equal after the cut differ in zero-width spaces.
    """
    labels = [shorten(name, most) for name in names]
    return [label + "\u200b" * labels[:i].count(label) for i, label in enumerate(labels)]


def metric_label(name: str) -> str:
    """Return the name of a metric in words.

    Parameters
    ----------
    name : str
        A metric of the schema or of a workload.

    Returns
    -------
    str
        The long name; for a metric of a workload, its name with spaces.
    """
    return METRICS[name].long_name if name in METRICS else name.replace("_", " ")
