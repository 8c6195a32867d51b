import numpy as np
import pytest
from helpers.nightly_series import lognormal

from benchkit.analysis.changepoint.detect import latest_night


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
