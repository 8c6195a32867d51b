"""Simulate the whole path of a nightly regression: screen, re-runs of suspects, ledger.

A candidate of `latest_night` or an alarm of the detector is measured again, both builds in turns;
the noise of a re-run is drawn from the last 28 nights of the series. A confirmed candidate opens a
regression, so does an alarm that is not dismissed. A re-run shows the planted step only if the good
build is from before it, as in a real night.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchkit.analysis.changepoints import Detector
from benchkit.analysis.options import DETECTION
from benchkit.analysis.regression.level_events import MARGIN_NIGHTS, REST_NIGHTS
from benchkit.analysis.stats.confirmation import CONFIRMATION_LOOKS, judge_reruns

#: Windows of a piece, whose result is kept.
PIECE = 250
#: Nights from which the noise of a re-run is drawn.
NOISE_NIGHTS = 28


def follow_pieces(
    quiet: np.ndarray,
    sizes: Sequence[float],
    history: int,
    within: int,
    *,
    file: Path | None = None,
    seconds: float = np.inf,
) -> list[dict[str, Any]]:
    """Return the results of windows without a step (size 1) and with one, in pieces.

    Results of pieces are kept in `file`, one a line; after `seconds` no further piece begins.
    """
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    pieces = {(piece["size"], piece["first"]): piece for piece in map(json.loads, lines)}
    end = time.monotonic() + seconds
    for key in [(size, at) for at in range(0, len(quiet), PIECE) for size in (1.0, *sizes)]:
        if key not in pieces and time.monotonic() < end:
            pieces[key] = _piece(quiet, *key, history, within)
            if file is not None:
                with file.open("a") as opened:
                    opened.write(json.dumps(pieces[key]) + "\n")
    return list(pieces.values())


def _piece(
    quiet: np.ndarray, size: float, first: int, history: int, within: int
) -> dict[str, object]:
    """Return the result of `PIECE` windows with a step; delays are in nights."""
    values = quiet[first : first + PIECE]
    start = np.random.default_rng(5).integers(40, quiet.shape[1] - within - 2, len(quiet))
    start = start[first : first + PIECE]
    never = np.full(len(values), quiet.shape[1])
    step = np.where(np.arange(quiet.shape[1]) >= start[:, None], size, 1)
    path = follow(values * step, never if size == 1 else start, size, history, seed=7 + first)
    delay = np.where(path.opened >= 0, path.opened - start + 1.0, np.inf)
    counts = {"n_false": path.n_false, "n_suspects": path.n_suspects, "n_blocks": path.n_blocks}
    return {"size": size, "first": first, "n_windows": len(values), **counts,
            "delays": delay.tolist()}  # fmt: skip


@dataclass(frozen=True)
class Followed:
    """Result for each window: night of the first opened regression, -1 without one."""

    opened: np.ndarray
    n_false: int  # regressions opened before the step
    n_suspects: int
    n_blocks: int


def follow(
    values: np.ndarray, start: np.ndarray, ratio: float, history: int, seed: int
) -> Followed:
    """Follow windows with a step of `ratio` from the night `start` on; ratio 1 for no step."""
    rng = np.random.default_rng(seed)
    n_windows, n_nights = values.shape
    log = np.log(values)
    alarms = np.zeros(values.shape, bool)
    alarm_index = np.zeros(values.shape, int)
    detector = Detector(values)
    for row, changes in enumerate(detector.changes):
        for change in changes:
            if change.direction == 1:
                alarms[row, change.detected_at] = True
                alarm_index[row, change.detected_at] = change.index
    opened = np.full(n_windows, -1)
    rest_until, ignored_until = np.zeros((2, n_windows), int)
    n_false = n_suspects = n_blocks = 0
    for night in range(history, n_nights):
        latest = detector.on(night).latest
        since = np.where(alarms[:, night], alarm_index[:, night], latest.since)
        rests = (night < rest_until) & (latest.units < DETECTION.suspect_units)
        fresh = latest.is_jump | (latest.since > ignored_until)
        candidate = (latest.candidate == 1) & ~rests & fresh
        rows = np.flatnonzero((candidate | alarms[:, night]) & (opened < 0))
        if not rows.size:
            continue
        good_until = since[rows] - MARGIN_NIGHTS
        effect = np.log(ratio) * ((night >= start[rows]) & (good_until <= start[rows]))
        past = log[rows, night - NOISE_NIGHTS : night]
        decision, used = rerun(rng, past, effect)
        n_suspects += rows.size
        n_blocks += int(used.sum())
        opens = (decision == 1) | (alarms[rows, night] & (decision == 0))
        before = opens & (night < start[rows])
        n_false += int(before.sum())
        opened[rows[opens & ~before]] = night
        waits = rows[~opens]
        rest_until[waits], ignored_until[waits] = night + 1 + REST_NIGHTS, night
        if ratio == 1:  # count every false regression, not only the first of a window
            opened[:] = -1
    return Followed(opened, n_false, n_suspects, n_blocks)


def rerun(
    rng: np.random.Generator, past: np.ndarray, effect: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return decisions of re-runs and the number of blocks they took."""
    n, last = len(past), CONFIRMATION_LOOKS[-1]
    noise = past - np.median(past, axis=1, keepdims=True)
    draws = np.take_along_axis(noise, rng.integers(0, NOISE_NIGHTS, (n, 3 * last)), axis=1)
    good, tonight = draws[:, : 2 * last].reshape(n, last, 2), draws[:, 2 * last :] + effect[:, None]
    decision, used = np.zeros(n, int), np.full(n, last)
    running = np.ones(n, bool)
    for look in CONFIRMATION_LOOKS:
        result = judge_reruns(np.exp(good[:, :look]), np.exp(tonight[:, :look]), np.ones(n))
        stops = running & result.stopped
        decision[stops], used[stops] = result.decision[stops], look
        running &= ~stops
    return decision, used
