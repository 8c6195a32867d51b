import numpy as np
import pytest

from benchkit.analysis.changepoint import scan
from benchkit.analysis.changepoint.checkpoints import Checkpoints
from benchkit.analysis.changepoints import Marks, detect_many, detect_nights
from validation.nightly_series import NIGHTS, SHAPES, bursts, lognormal, with_step


def assert_same(found, expected):
    assert found.changes == expected.changes
    for name, value in vars(expected.latest).items():
        np.testing.assert_array_equal(getattr(found.latest, name), value)
    for name in ("digest", "positions", "levels", "left_out"):
        np.testing.assert_array_equal(
            getattr(found.checkpoints, name), getattr(expected.checkpoints, name)
        )
    for name, value in vars(expected.checkpoints.events).items():
        np.testing.assert_array_equal(getattr(found.checkpoints.events, name), value)


def changing(rng, shape, n):
    """Return series with steps, reverted changes and missing nights, 220 nights long."""
    values = np.concatenate([shape(rng, n), shape(rng, n)], axis=1)
    for first in rng.integers(20, 150, 3):
        values[: n // 2, first : first + rng.integers(4, 30)] *= rng.choice([0.7, 1.2, 3])
    values[n // 3 :, 60:] *= 1.15
    values[n // 3 :, 170:] *= 1.1
    values[rng.random(values.shape) < 0.05] = np.nan
    return values


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_detect_nights_with_checkpoints_equals_whole_replay(shape, rng):
    values = changing(rng, shape, 16)
    times = np.arange(values.shape[1])
    marks = [None] * 15 + [Marks(restarts=[80, 150], excluded=[81])]

    known = None
    for night in range(values.shape[1]):
        now = {"times": times[: night + 1], "marks": marks}
        found = detect_nights(values[:, : night + 1], **now, earlier=known)
        if night % 7 == 0 or night == values.shape[1] - 1:
            assert_same(found, detect_nights(values[:, : night + 1], **now))
        known = found.checkpoints

    assert found.changes == detect_many(values, **now)
    assert sum(map(len, found.changes)) > 16


@pytest.mark.parametrize("step", [2, 3, 7, 11, 50])
def test_detect_nights_equals_whole_replay_after_missed_nights(step, rng):
    values = changing(rng, bursts, 30)

    known = None
    for n_nights in range(9, values.shape[1] + 1, step):
        found = detect_nights(values[:, :n_nights], earlier=known)
        assert_same(found, detect_nights(values[:, :n_nights]))
        known = found.checkpoints


def test_detect_nights_ignores_checkpoints_of_other_values(rng):
    values = changing(rng, lognormal, 20)
    known = detect_nights(values[:, :150]).checkpoints
    values[5, 20] *= 1.0001
    values[6, 100] = np.nan
    values = values[rng.permutation(20)]

    assert_same(detect_nights(values, earlier=known), detect_nights(values))


def test_detect_nights_replays_few_nights_with_checkpoints(rng, monkeypatch):
    values = with_step(lognormal(rng, 20), np.full(20, 50), 1.2)
    known = detect_nights(values[:, : NIGHTS - 1]).checkpoints
    replayed = []
    advance = scan.Replay.advance

    def counted_advance(self, first, last):
        replayed.append((last - first) * len(self.y))
        advance(self, first, last)

    monkeypatch.setattr(scan.Replay, "advance", counted_advance)
    detect_nights(values, earlier=known)

    # At most three nights of a block before the new one, the new one and the two last.
    assert sum(replayed) <= 20 * (3 + 1 + 3 + 2)


def test_checkpoints_take_repeats_events_of_rows(rng):
    values = with_step(lognormal(rng, 3), np.array([40, 50, 60]), 1.3)
    checkpoints = detect_nights(values).checkpoints

    taken = checkpoints.take(np.array([2, 0, 2]))

    assert taken.events.row.tolist() == [0, 1, 2]
    assert taken.events.index.tolist() == [60, 40, 60]
    assert Checkpoints.empty().take(np.zeros(0, int)).events.row.size == 0
