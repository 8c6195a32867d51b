import numpy as np
import pytest

from benchkit.analysis.changepoints import Detector, latest_night
from validation.nightly_series import NIGHTS, SHAPES, lognormal, with_step


def test_latest_night_marks_suspect_series(rng):
    values = lognormal(rng, 5)
    values[1, -1] *= 1.3
    values[2, -1] *= 0.7
    values[3, -1] = np.nan
    values[4, 5:] = np.nan

    latest = latest_night(values)

    assert latest.suspect.tolist() == [0, 1, -1, 0, 0]
    assert latest.ratio[1] == pytest.approx(1.3, rel=0.05)
    assert np.isnan(latest.units[3:]).all()


def test_latest_night_rarely_suspects_noise(rng):
    latest = latest_night(lognormal(rng, 3000))

    assert np.mean(latest.suspect != 0) < 0.002
    assert np.nanstd(latest.units) == pytest.approx(1, rel=0.2)


def test_latest_night_candidates_are_rare_without_change(rng):
    latest = latest_night(lognormal(rng, 3000, 0.02))

    assert 0.004 < np.mean(latest.candidate == 1) < 0.02


def test_latest_night_candidate_after_slow_change_names_its_first_night(rng):
    values = lognormal(rng, 500, 0.02)
    values[:, 104:] *= 1.05

    latest = latest_night(values)

    found = latest.candidate == 1
    # In a quarter of the series the detector has found the change, so that its level is new.
    assert np.mean(found | np.isnan(latest.units)) > 0.95
    assert 103 <= np.median(latest.since[found]) <= 105
    # The reference is not affected by the last nights.
    assert np.nanmedian(latest.ratio) == pytest.approx(1.05, abs=0.01)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_latest_night_reference_ends_before_changes_of_the_last_nights(shape, rng):
    values = with_step(shape(rng, 60), rng.integers(NIGHTS - 6, NIGHTS - 2, 60), 1.4)
    calm = values.copy()
    calm[:, -2:] /= 1.4
    found, other = Detector(values).on(), Detector(calm).on()

    new = [changes for changes in found.changes if changes[-1:] and changes[-1].detected_at >= 108]
    assert len(new) > 20
    np.testing.assert_allclose(found.latest.ratio, 1.4 * other.latest.ratio)
    earlier, calm_earlier = (each.latest.recent_units[:, :-2] for each in (found, other))
    np.testing.assert_array_equal(earlier, calm_earlier)


@pytest.mark.parametrize("n_before", [1, 3, 7, 9])
def test_latest_night_candidates_in_first_nights(n_before, rng):
    values = lognormal(rng, 200, 0.01)[:, : n_before + 1]
    values[:100, -1] *= 1.4

    latest = latest_night(values)

    assert latest.candidate[:100].tolist() == [1] * 100
    assert np.mean(latest.candidate[100:] != 0) <= 0.03
    assert set(latest.since[:100]) == {1}  # the build of the first night is the good one
    assert set(latest.n_before) == {n_before}
    assert np.median(latest.ratio[:100]) == pytest.approx(1.4, abs=0.02)


def test_latest_night_has_reference_of_ten_nights(rng):
    ten, nine = (latest_night(lognormal(rng, 20)[:, : n + 1]) for n in (10, 9))

    assert np.isfinite(ten.units).all()
    assert np.isnan(nine.units).all()


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 0), (3, 1)])
def test_latest_night_accepts_series_without_nights(shape):
    latest = latest_night(np.full(shape, np.nan))

    assert latest.candidate.tolist() == [0] * shape[0]
    assert latest.recent_units.shape == shape
