"""Continue the replay of nightly series where the replay of an earlier night ended.

A checkpoint is the state of a row after some of its nights, found by the digest of their values:
it is valid for every row that begins with the same values, whatever the series is called. The
result equals that of a replay of all nights, at a cost that does not grow with their number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from benchkit.analysis.changepoint.rule import MOST_REFERENCE_NIGHTS, REFRESH_NIGHTS, WINDOWS
from benchkit.analysis.changepoint.scan import MOST_NIGHTS_BACK, Replay
from benchkit.analysis.changepoint.state import N_POSITIONS, Events, LatestReference, State

__all__ = ["ARRAYS", "Checkpoints", "scan_nights"]

#: Last nights of a checkpoint that the replay of later nights reads: a change begins at most 40
#: nights before its detection, and its reference at most 60 nights before that.
TAIL_NIGHTS = MOST_NIGHTS_BACK + MOST_REFERENCE_NIGHTS + REFRESH_NIGHTS
#: Last whole blocks of a checkpoint in which a window of later nights may begin.
TAIL_BLOCKS = -(-max(WINDOWS) // REFRESH_NIGHTS)
#: Number of nights by which a checkpoint may be older than that of the last judged night; from
#: older ones the row is replayed from its first night.
MOST_NIGHTS_MISSED = 7
DIGEST_BYTES = 16

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Checkpoints:
    """States of rows after a number of their nights; one element of each array per row."""

    events: Events  # Changes of level in the nights, sorted by row and night
    digest: NDArray[np.uint8]  # (rows, 16), digest of the values of the nights
    positions: Ints  # (rows, 7), positions of `State`, relative to the first night of the row
    levels: Floats  # (rows, 3), levels of `State`
    centre: Floats  # (rows, blocks), levels before the last whole blocks of nights
    left_out: Bools  # (rows, nights), which of the last nights are left out of references

    @classmethod
    def empty(cls) -> Checkpoints:
        """Return no checkpoints."""
        none = np.zeros(0, int)
        return cls(
            Events(none, none, none, np.zeros(0), np.zeros(0), np.zeros(0)),
            np.zeros((0, DIGEST_BYTES), np.uint8),
            np.zeros((0, N_POSITIONS), int),
            np.zeros((0, 3)),
            np.zeros((0, TAIL_BLOCKS)),
            np.zeros((0, TAIL_NIGHTS), bool),
        )

    def take(self, rows: Ints) -> Checkpoints:
        """Return the checkpoints of some rows, in their order."""
        event_rows = self.events.row
        first, last = (np.searchsorted(event_rows, rows, side=side) for side in ("left", "right"))
        n = last - first
        at = np.repeat(first - np.cumsum(n) + n, n) + np.arange(n.sum())
        events = self.events.take(at, row=np.repeat(np.arange(rows.size), n))
        return Checkpoints(events, *(getattr(self, name)[rows] for name in ARRAYS))


#: Names of the arrays of `Checkpoints`.
ARRAYS = ("digest", "positions", "levels", "centre", "left_out")


def scan_nights(
    y: Floats, length: Ints, stop: Ints, earlier: Checkpoints
) -> tuple[Events, LatestReference, Checkpoints]:
    """Find the changes of many series, with the states of an earlier night."""
    # y: (rows, nights), logarithms of the values, without gaps: NaN only after the last night of a
    # row.
    # length: (rows,), number of nights of each row.
    # stop: (rows,), night before which the latest reference of each row ends.
    digest, found, n_earlier = _find(y, stop, earlier)
    old, new = np.flatnonzero(found >= 0), np.flatnonzero(found < 0)
    width = int(stop[new].max(initial=0))
    whole = Replay.initial(np.where(np.arange(width) < stop[new, None], y[new, :width], np.nan))
    whole.advance(0, width)
    parts = [_checkpoints(whole, Checkpoints.empty(), np.zeros(new.size, int), stop[new])]
    before = earlier.take(found[old])
    continued, offset = _continue(y[old], before, n_earlier[old], stop[old])
    parts.append(_checkpoints(continued, before, offset, stop[old]))
    checkpoints = _joined(parts, np.argsort(np.concatenate([new, old]), kind="stable"), digest)

    ahead, offset = _continue(y, checkpoints, stop, length, advance=False)
    latest = ahead.latest_reference(stop - offset)
    ahead.advance(TAIL_NIGHTS, ahead.y.shape[1])
    return _with_events(checkpoints.events, ahead.events, offset), latest, checkpoints


def _find(y: Floats, stop: Ints, earlier: Checkpoints) -> tuple[NDArray[np.uint8], Ints, Ints]:
    """Return digest, position of the checkpoint (or -1) and number of its nights, by row."""
    place = {digest.tobytes(): at for at, digest in enumerate(earlier.digest)}
    digests, found, n_earlier = bytearray(), np.full(stop.size, -1), np.zeros(stop.size, int)
    for row, n_nights in enumerate(stop.tolist()):
        values = y[row, :n_nights].tobytes()
        # Most often one night was added, or none.
        for missed in (1, 0, *range(2, MOST_NIGHTS_MISSED + 1)) if place else ():
            n_bytes = max(n_nights - missed, 0) * y.itemsize
            hashed = blake2b(values[:n_bytes], digest_size=DIGEST_BYTES)
            at = place.get(hashed.digest())
            if at is not None:
                found[row], n_earlier[row] = at, n_bytes // y.itemsize
                hashed.update(values[n_bytes:])
                break
        else:
            hashed = blake2b(values, digest_size=DIGEST_BYTES)
        digests += hashed.digest()
    return np.frombuffer(bytes(digests), np.uint8).reshape(-1, DIGEST_BYTES), found, n_earlier


def _continue(
    y: Floats, before: Checkpoints, n_earlier: Ints, last: Ints, *, advance: bool = True
) -> tuple[Replay, Ints]:
    """Return the replay from checkpoints to night `last`, and the position of its first column."""
    offset = (n_earlier - TAIL_NIGHTS) // REFRESH_NIGHTS * REFRESH_NIGHTS  # may be negative
    rows = np.arange(offset.size)[:, None]
    at = offset[:, None] + np.arange((last - offset).max(initial=TAIL_NIGHTS))
    inside = (at >= 0) & (at < last[:, None])
    tail = np.full(at.shape, np.nan)
    tail[inside] = y[np.broadcast_to(rows, at.shape)[inside], at[inside]]
    replay = Replay.initial(tail)
    n_columns = n_earlier - offset
    left_out = (n_columns - TAIL_NIGHTS).reshape(-1, 1) + np.arange(TAIL_NIGHTS)
    replay.clean[rows, left_out] = np.where(before.left_out, np.nan, tail[rows, left_out])
    first_block = TAIL_NIGHTS // REFRESH_NIGHTS - TAIL_BLOCKS
    replay.centre[:, first_block : first_block + TAIL_BLOCKS] = before.centre
    replay.state = State.of((before.positions - offset[:, None]).T, before.levels.T)
    if advance:
        replay.advance(TAIL_NIGHTS, replay.y.shape[1])
    return replay, offset


def _checkpoints(replay: Replay, before: Checkpoints, offset: Ints, n_nights: Ints) -> Checkpoints:
    """Return the state of a replay after `n_nights` of each row, without digests."""
    rows, n_columns = np.arange(offset.size)[:, None], (n_nights - offset).reshape(-1, 1)
    replay.state.next_night = n_nights - offset
    positions, levels = replay.state.arrays()
    block = n_columns // REFRESH_NIGHTS - TAIL_BLOCKS + np.arange(TAIL_BLOCKS)
    centre = np.full(block.shape, np.nan)
    night = n_columns - TAIL_NIGHTS + np.arange(TAIL_NIGHTS)
    left_out = np.zeros(night.shape, bool)
    if replay.y.shape[1]:
        centre = np.where(block >= 0, replay.centre[rows, np.maximum(block, 0)], np.nan)
        at = rows, np.maximum(night, 0)
        left_out = (night >= 0) & np.isnan(replay.clean[at]) & ~np.isnan(replay.y[at])
    return Checkpoints(
        _with_events(before.events, replay.events, offset),
        np.zeros((offset.size, DIGEST_BYTES), np.uint8),
        positions.T + offset[:, None],
        levels.T,
        centre,
        left_out,
    )


def _with_events(before: Events, later: Events, offset: Ints) -> Events:
    """Return events and later ones, whose positions are relative to `offset`, sorted."""
    moved = offset[later.row]
    columns = (later.row, later.index + moved, later.detected_at + moved)
    later = Events(*columns, later.change, later.error, later.chance)
    return Events.joined([before, later])


def _joined(parts: list[Checkpoints], order: Ints, digest: NDArray[np.uint8]) -> Checkpoints:
    """Return the checkpoints of several parts, as rows in another order, with digests."""
    n_before = np.cumsum([0, *(len(part.levels) for part in parts)])
    events = Events.joined(
        [
            part.events.take(np.arange(part.events.row.size), row=part.events.row + n)
            for part, n in zip(parts, n_before, strict=False)
        ]
    )
    arrays = [np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS]
    return replace(Checkpoints(events, *arrays).take(order), digest=digest)
