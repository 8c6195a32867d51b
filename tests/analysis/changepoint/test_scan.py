import numpy as np
import pytest

from benchkit.analysis.changepoint import rule, scan
from benchkit.analysis.changepoints import Marks, detect_many, latest_night
from validation.nightly_series import NIGHTS, SHAPES, bursts, lognormal, sticky, with_step


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_scan_events_do_not_depend_on_later_nights(shape, rng):
    values = with_step(shape(rng, 25), rng.integers(20, 60, 25), 1.2)
    values = with_step(values, rng.integers(60, 100, 25), 0.7)
    whole = detect_many(values)

    assert sum(map(len, whole)) > 25
    for night in range(2, NIGHTS, 3):
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


@pytest.mark.parametrize("ratio", [1.1, 1.3, 2.5])
def test_scan_detects_step_after_reverted_change(ratio, rng):
    values = lognormal(rng, 200)
    values[:, 40:50] *= 4
    values[:, 75:] *= ratio

    found = detect_many(values)

    on_time = [
        any(abs(c.index - 75) <= 1 and c.detected_at <= 78 and c.direction == 1 for c in changes)
        for changes in found
    ]
    assert np.mean(on_time) >= 0.99


def test_scan_places_step_after_reverted_change_at_its_night(rng):
    values = lognormal(rng, 200)
    values[:, 40:50] *= 4
    values[:, 53:] *= 1.2

    found = detect_many(values)

    last = np.array([changes[-1].index for changes in found])
    assert np.mean(np.abs(last - 53) <= 1) >= 0.97


def test_scan_detects_small_step_soon_after_large_jump(rng):
    values = lognormal(rng, 200)
    values[:, 60:] *= 20
    values[:, 69:] *= 1.08

    found = detect_many(values)

    assert np.mean([[c.index for c in changes] == [60, 69] for changes in found]) >= 0.9


def test_scan_reverts_to_home_after_small_step_within_change(rng):
    values = lognormal(rng, 200)
    values[:, 40:50] *= 4
    values[:, 45:50] *= 1.1
    values[:, 75:] *= 1.1

    found = detect_many(values)

    late = [[c.direction for c in changes if c.detected_at > 60] for changes in found]
    assert np.mean([directions == [1] for directions in late]) >= 0.97


@pytest.mark.parametrize(
    ("bug", "n_nights", "apart", "step"), [(2, 8, 15, 1.15), (1.3, 5, 15, 1.1), (1.5, 12, 20, 2.5)]
)
def test_scan_detects_step_after_two_mended_bugs(bug, n_nights, apart, step, rng):
    values = lognormal(rng, 200)
    for first in (20, 20 + n_nights + apart):
        values[:, first : first + n_nights] *= bug
    start = 20 + 2 * (n_nights + apart)
    values[:, start:] *= step

    found = detect_many(values)

    hits = [
        any(abs(c.index - start) <= 1 and c.detected_at <= start + 2 for c in changes)
        for changes in found
    ]
    assert np.mean(hits) >= 0.95
    assert (latest_night(values[:, : start + 1]).candidate == 1).mean() >= 0.95


@pytest.mark.parametrize(("bug", "n_nights", "n_bugs"), [(1.3, 3, 3), (2, 8, 4)])
def test_scan_leaves_known_mended_faults_out_of_references(bug, n_nights, n_bugs, rng):
    values = lognormal(rng, 100)
    spans = [(30 + 15 * number, 30 + 15 * number + n_nights) for number in range(n_bugs)]
    for first, stop in spans:
        values[:, first:stop] *= bug
    values[:, 95:] *= 1.1

    def share_found(mended):
        found = detect_many(values, marks=[Marks(mended=mended)] * 100)
        return np.mean(
            [any(c.index >= 94 and c.detected_at <= 98 for c in changes) for changes in found]
        )

    assert share_found(spans) >= 0.95
    assert share_found([]) <= 0.05  # a habit of the series, for all that the nights show


def test_scan_keeps_changes_that_revert_three_times_in_reference(rng):
    values = lognormal(rng, 200)
    for first in (30, 50, 70):
        values[:, first : first + 8] *= 1.15
    values[:, 95:99] *= 1.15

    found = detect_many(values)

    # The habit of the series is in the reference: four nights of it are no alarm any more.
    assert np.mean([any(c.index >= 90 for c in changes) for changes in found]) <= 0.05


@pytest.mark.parametrize("index", [3, 5, 9])
@pytest.mark.parametrize(("ratio", "noise"), [(1.4, 0.02), (1.1, 0.01), (0.8, 0.02)])
def test_scan_detects_step_within_the_first_ten_nights(index, ratio, noise, rng):
    values = lognormal(rng, 200, noise)
    values[:, index:] *= ratio

    found = detect_many(values)

    hits = [
        any(abs(c.index - index) <= 1 and c.detected_at <= 19 for c in changes) for changes in found
    ]
    assert np.mean(hits) >= 0.95
    sizes = [changes[0].ratio for changes in found if changes]
    assert abs(np.median(sizes) / ratio - 1) < 0.01


def test_scan_rarely_detects_early_steps_in_noise(rng):
    found = detect_many(np.concatenate([shape(rng, 200) for shape in SHAPES if shape != sticky]))
    assert np.mean([any(c.index < 10 for c in changes) for changes in found]) < 0.005
