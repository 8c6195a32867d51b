"""Arrays that the replay of nightly series keeps and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

__all__ = ["HABIT_NIGHTS", "N_POSITIONS", "Events", "LatestReference", "State"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Nights between two reverted changes, of any length, below which both stay in the reference: what
#: happened twice is the habit of the series.
HABIT_NIGHTS = 60
#: Fields of `State` that are positions; the other three are levels.
N_POSITIONS = 7


@dataclass(frozen=True)
class Events:
    """Changes of level, sorted by row and night; one element of each array per change."""

    # row, index, detected_at: The row, the first night of the new level, the night of detection.
    row: Ints
    index: Ints
    detected_at: Ints
    change: Floats  # Level after minus level before, in logarithms
    error: Floats  # Standard error of `change`
    chance: Floats  # Probability that noise like that of the reference causes this alarm on a night

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Events:
        """Return the events of several parts."""
        # returned: Sorted by row and night.
        columns = [
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("row", "index", "detected_at", "change", "error", "chance")
        ]
        order = np.lexsort((columns[2], columns[0]))
        return cls(*(column[order] for column in columns))

    def take(self, at: Ints, *, row: Ints) -> Events:
        """Return a selection of the events, with other rows."""
        names = ("index", "detected_at", "change", "error", "chance")
        return Events(row, *(getattr(self, name)[at] for name in names))


@dataclass(frozen=True)
class LatestReference:
    """The reference of each row after its last night; one element of each array per row."""

    # level, noise: Median and robust standard deviation of the reference, in logarithms. NaN while
    # the reference is too short.
    level: Floats
    noise: Floats
    # earlier_level, earlier_noise: The same of a reference that ends `DRIFT_NIGHTS` earlier, to
    # which the nights since then can be compared; of the whole reference where that is too short.
    earlier_level: Floats
    earlier_noise: Floats


@dataclass
class State:
    """State of the replay between two nights, one element of each array per row.

    A change is recent until the new level has a reference.
    """

    start: Ints  # First night of the reference
    next_night: Ints  # Earlier nights are judged
    start_before: Ints  # First night of the reference before the recent change
    recent_from: Ints  # First night of the recent change
    recent_until: Ints  # First night on which the change is no longer recent
    reverted_from: Ints  # First night of the last reverted change
    reverted_until: Ints  # Night after its last
    level_before: Floats  # Level before the recent change, NaN without a recent change
    level_after: Floats  # Level of the recent change
    noise: Floats  # Noise before the recent change

    @classmethod
    def initial(cls, n_rows: int) -> State:
        """Return the state before the first night."""
        positions = np.zeros((N_POSITIONS, n_rows), int)
        positions[-1] = -HABIT_NIGHTS - 1  # never
        return cls.of(positions, np.full((3, n_rows), np.nan))

    @classmethod
    def of(cls, positions: Ints, levels: Floats) -> State:
        """Return the state with given values."""
        # positions: (7, rows), values of the first fields.
        # levels: (3, rows), values of the other fields.
        values = [*positions.copy(), *levels.copy()]
        return cls(**{field.name: value for field, value in zip(fields(cls), values, strict=True)})

    def arrays(self) -> tuple[Ints, Floats]:
        """Return the values of all fields."""
        # returned: Positions, shape (7, rows), and levels, shape (3, rows).
        values = [getattr(self, field.name) for field in fields(self)]
        return np.stack(values[:N_POSITIONS]), np.stack(values[N_POSITIONS:])
