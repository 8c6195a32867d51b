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
    """Changes of level, sorted by row and night; one element of each array per change.

    Parameters
    ----------
    row, index, detected_at : ndarray of int
        The row, the first night of the new level, the night of detection.
    change : ndarray of float
        Level after minus level before, in logarithms.
    error : ndarray of float
        Standard error of `change`.
    chance : ndarray of float
        Probability that noise like that of the reference causes this alarm on a night.
    """

    row: Ints
    index: Ints
    detected_at: Ints
    change: Floats
    error: Floats
    chance: Floats

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Events:
        """Return the events of several parts.

        Parameters
        ----------
        parts : sequence of Events
            At least one.

        Returns
        -------
        Events
            Sorted by row and night.
        """
        columns = [
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("row", "index", "detected_at", "change", "error", "chance")
        ]
        order = np.lexsort((columns[2], columns[0]))
        return cls(*(column[order] for column in columns))

    def take(self, at: Ints, *, row: Ints) -> Events:
        """Return a selection of the events, with other rows.

        Parameters
        ----------
        at : ndarray of int
            Positions of the events to keep.
        row : ndarray of int
            Their new rows.

        Returns
        -------
        Events
            In the order of `at`.
        """
        names = ("index", "detected_at", "change", "error", "chance")
        return Events(row, *(getattr(self, name)[at] for name in names))


@dataclass(frozen=True)
class LatestReference:
    """The reference of each row after its last night; one element of each array per row.

    Parameters
    ----------
    level, noise : ndarray of float
        Median and robust standard deviation of the reference, in logarithms. NaN while the
        reference is too short.
    earlier_level, earlier_noise : ndarray of float
        The same of a reference that ends `DRIFT_NIGHTS` earlier, to which the nights since then
        can be compared; of the whole reference where that is too short.
    """

    level: Floats
    noise: Floats
    earlier_level: Floats
    earlier_noise: Floats


@dataclass
class State:
    """State of the replay between two nights, one element of each array per row.

    A change is recent until the new level has a reference.

    Parameters
    ----------
    start : ndarray of int
        First night of the reference.
    next_night : ndarray of int
        Earlier nights are judged.
    start_before : ndarray of int
        First night of the reference before the recent change.
    recent_from : ndarray of int
        First night of the recent change.
    recent_until : ndarray of int
        First night on which the change is no longer recent.
    reverted_from : ndarray of int
        First night of the last reverted change.
    reverted_until : ndarray of int
        Night after its last.
    level_before : ndarray of float
        Level before the recent change, NaN without a recent change.
    level_after : ndarray of float
        Level of the recent change.
    noise : ndarray of float
        Noise before the recent change.
    """

    start: Ints
    next_night: Ints
    start_before: Ints
    recent_from: Ints
    recent_until: Ints
    reverted_from: Ints
    reverted_until: Ints
    level_before: Floats
    level_after: Floats
    noise: Floats

    @classmethod
    def initial(cls, n_rows: int) -> State:
        """Return the state before the first night.

        Parameters
        ----------
        n_rows : int
            Number of rows.

        Returns
        -------
        State
            Without a change in any row.
        """
        positions = np.zeros((N_POSITIONS, n_rows), int)
        positions[-1] = -HABIT_NIGHTS - 1  # never
        return cls.of(positions, np.full((3, n_rows), np.nan))

    @classmethod
    def of(cls, positions: Ints, levels: Floats) -> State:
        """Return the state with given values.

        Parameters
        ----------
        positions : ndarray of int, shape (7, rows)
            Values of the first fields.
        levels : ndarray of float, shape (3, rows)
            Values of the other fields.

        Returns
        -------
        State
            With copies of the values.
        """
        values = [*positions.copy(), *levels.copy()]
        return cls(**{field.name: value for field, value in zip(fields(cls), values, strict=True)})

    def arrays(self) -> tuple[Ints, Floats]:
        """Return the values of all fields.

        Returns
        -------
        tuple of ndarray
            Positions, shape (7, rows), and levels, shape (3, rows).
        """
        values = [getattr(self, field.name) for field in fields(self)]
        return np.stack(values[:N_POSITIONS]), np.stack(values[N_POSITIONS:])
