"""Numbers and rows of the site's data, as short JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from benchkit.values import json_safe

__all__ = ["distinct_rows", "seconds", "short_number", "short_numbers"]


def distinct_rows(table: pd.DataFrame) -> tuple[list[list[Any]], list[int]]:
    """Return the distinct rows of a table and, for each row, the index of its distinct row."""
    # places: For each row of `table`, its position in `rows`.
    rows = [tuple(json_safe(value) for value in row) for row in table.itertuples(index=False)]
    distinct = list(dict.fromkeys(rows))
    places = {row: place for place, row in enumerate(distinct)}
    return [list(row) for row in distinct], [places[row] for row in rows]


def short_numbers(values: Any) -> list[float | None]:
    """Return values with five digits."""
    numbers = np.asarray(pd.to_numeric(pd.Series(values), errors="coerce"), float)
    return [short_number(value) for value in numbers.tolist()]


def short_number(value: float, digits: int = 5) -> float | None:
    """Return a value with few digits, whole numbers as integers."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def seconds(time: np.datetime64) -> int:
    """Return a moment as seconds since 1970."""
    return int(time.astype("datetime64[s]").astype(int))
