import numpy as np
import pytest
from helpers.nightly_series import NIGHTS, SHAPES, bursts, lognormal, with_step

from benchkit.analysis.changepoint import rule, scan
from benchkit.analysis.changepoint.detect import detect_many


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_scan_events_do_not_depend_on_later_nights(shape, rng):
    values = with_step(shape(rng, 25), rng.integers(20, 60, 25), 1.2)
    values = with_step(values, rng.integers(60, 100, 25), 0.7)
    whole = detect_many(values)

    assert sum(map(len, whole)) > 25
    for night in range(NIGHTS):
        known = [[c for c in changes if c.detected_at <= night] for changes in whole]
        assert detect_many(values[:, : night + 1]) == known


@pytest.mark.parametrize(("chunk", "look"), [(4, 6), (12, 1), (100, 2), (1000, 1000)])
def test_scan_result_is_independent_of_chunk_size(chunk, look, rng, monkeypatch):
    values = with_step(bursts(rng, 50), rng.integers(20, 60, 50), 1.2)
    values = with_step(values, rng.integers(60, 100, 50), 0.7)
    expected = detect_many(values)

    monkeypatch.setattr(scan, "CHUNK_NIGHTS", chunk)
    monkeypatch.setattr(rule, "FIRST_NIGHTS_JUDGED", look)

    assert detect_many(values) == expected


def test_scan_result_is_independent_of_padding(rng):
    values = with_step(lognormal(rng, 1500, 0.03), np.full(1500, 50), 1.06)
    length = rng.integers(56, 75, 1500)
    padded = np.where(np.arange(NIGHTS) < length[:, None], values, np.nan)

    found = detect_many(padded)

    assert sum(map(len, found)) > 100
    for n in np.unique(length):
        alone = detect_many(values[length == n, :n])
        assert [found[row] for row in np.flatnonzero(length == n)] == alone


def test_scan_restores_reference_after_reverted_change(rng):
    values = lognormal(rng, 100)
    values[:, 60:66] *= 1.5
    values[:, 75:] *= 1.5

    found = detect_many(values)

    assert sum([c.direction for c in changes] == [1, -1, 1] for changes in found) >= 95
    assert all(abs(c.index - at) <= 1 for c, at in zip(found[0], (60, 66, 75), strict=True))


def test_scan_detects_growth_of_recent_change(rng):
    values = lognormal(rng, 100)
    values[:, 60:] *= 1.2
    values[:, 66:] *= 1.3

    found = detect_many(values)

    assert sum([c.index for c in changes] == [60, 66] for changes in found) >= 90
