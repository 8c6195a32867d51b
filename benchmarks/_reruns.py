"""Simulate the whole path of a nightly regression: screen, re-runs of suspects, ledger.

A candidate of `latest_night` or an alarm of the detector is measured again, both builds in turns;
the noise of a re-run is drawn from the last 28 nights of the series. A confirmed candidate opens a
regression, so does an alarm that is not dismissed. A re-run shows the planted step only if the good
build is from before it, as in a real night.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchkit.analysis.changepoint.detect import SUSPECT_UNITS, detect_many, latest_night
from benchkit.analysis.regression.level_events import REST_NIGHTS
from benchkit.analysis.stats.confirmation import CONFIRMATION_LOOKS, judge_reruns

#: Nights from which the noise of a re-run is drawn.
NOISE_NIGHTS = 28


@dataclass(frozen=True)
class Path:
    """Result for each window: night of the first opened regression, -1 without one."""

    opened: np.ndarray
    n_false: int  # regressions opened before the step
    n_suspects: int
    n_blocks: int


def follow(values: np.ndarray, start: np.ndarray, ratio: float, history: int, seed: int) -> Path:
    """Follow windows with a step of `ratio` from the night `start` on; ratio 1 for no step."""
    rng = np.random.default_rng(seed)
    n_windows, n_nights = values.shape
    log = np.log(values)
    alarms = np.zeros(values.shape, bool)
    alarm_index = np.zeros(values.shape, int)
    for row, changes in enumerate(detect_many(values)):
        for change in changes:
            if change.direction == 1:
                alarms[row, change.detected_at] = True
                alarm_index[row, change.detected_at] = change.index
    opened = np.full(n_windows, -1)
    rest_until, ignored_until = np.zeros((2, n_windows), int)
    n_false = n_suspects = n_blocks = 0
    for night in range(history, n_nights):
        latest = latest_night(values[:, : night + 1])
        since = np.where(alarms[:, night], alarm_index[:, night], latest.since)
        rests = (night < rest_until) & (latest.units < SUSPECT_UNITS)
        fresh = latest.is_jump | (latest.since > ignored_until)
        candidate = (latest.candidate == 1) & ~rests & fresh
        row = np.flatnonzero((candidate | alarms[:, night]) & (opened < 0))
        if not row.size:
            continue
        effect = np.log(ratio) * ((night >= start[row]) & (since[row] <= start[row]))
        past = log[row, night - NOISE_NIGHTS : night]
        decision, used = rerun(rng, past, effect)
        n_suspects += row.size
        n_blocks += int(used.sum())
        opens = (decision == 1) | (alarms[row, night] & (decision == 0))
        before = opens & (night < start[row])
        n_false += int(before.sum())
        opened[row[opens & ~before]] = night
        waits = row[~opens]
        rest_until[waits], ignored_until[waits] = night + 1 + REST_NIGHTS, night
        if ratio == 1:  # count every false regression, not only the first of a window
            opened[:] = -1
    return Path(opened, n_false, n_suspects, n_blocks)


def rerun(
    rng: np.random.Generator, past: np.ndarray, effect: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return decisions of re-runs and the number of blocks they took."""
    n, last = len(past), CONFIRMATION_LOOKS[-1]
    noise = past - np.median(past, axis=1, keepdims=True)
    draws = np.take_along_axis(noise, rng.integers(0, NOISE_NIGHTS, (n, 3 * last)), axis=1)
    good, tonight = draws[:, : 2 * last], draws[:, 2 * last :] + effect[:, None]
    decision, used = np.zeros(n, int), np.full(n, last)
    running = np.ones(n, bool)
    for look in CONFIRMATION_LOOKS:
        result = judge_reruns(np.exp(good[:, : 2 * look]), np.exp(tonight[:, :look]), np.ones(n))
        stops = running & result.stopped
        decision[stops], used[stops] = result.decision[stops], look
        running &= ~stops
    return decision, used
