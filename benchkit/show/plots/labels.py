"""Texts of figures: names cut to the room that they have, and names of metrics."""

from __future__ import annotations

from collections.abc import Iterable

from benchkit.store.schema import METRICS

__all__ = ["metric_label", "row_labels", "shorten"]


def shorten(name: str, most: int) -> str:
    """Cut the middle of a name that is too long for a label.

    Examples
    --------
    >>> shorten("array.basic_sum[kind=fast-thin]", 16)
    'array.b…st-thin]'
    """
    return name if len(name) <= most else f"{name[: (most - 1) // 2]}…{name[-(most // 2) :]}"


def row_labels(names: Iterable[str], most: int) -> list[str]:
    """Return distinct labels of rows, because the factors of a range must be distinct."""
    labels = [shorten(name, most) for name in names]
    return [label + "\u200b" * labels[:i].count(label) for i, label in enumerate(labels)]


def metric_label(name: str) -> str:
    """Return the name of a metric in words."""
    return METRICS[name].long_name if name in METRICS else name.replace("_", " ")
