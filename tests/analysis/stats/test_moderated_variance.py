import numpy as np
import pytest
from scipy.special import polygamma

from benchkit.analysis.stats.moderated_variance import inverse_trigamma, shrink


def variances(rng, true, df):
    return true * rng.chisquare(df, len(true)) / df


def test_inverse_trigamma_inverts_trigamma():
    x = np.geomspace(1e-3, 1e6, 50)

    np.testing.assert_allclose(inverse_trigamma(polygamma(1, x)), x, rtol=1e-6)


def test_shrink_strength_depends_on_similarity_of_rows(rng):
    df = np.full(200, 4.0)
    alike = variances(rng, np.full(200, 0.01), df)
    unlike = variances(rng, 0.01 * np.exp(3 * rng.standard_normal(200)), df)

    shrunk, shrunk_df, _ = shrink(alike, df)
    _, df_unlike, _ = shrink(unlike, df)

    assert np.abs(np.log(shrunk / 0.01)).max() < 0.5
    assert np.median(shrunk_df) > 50
    assert np.median(df_unlike) < 8


def test_shrink_reduces_error_of_variances(rng):
    df = np.full(300, 4.0)
    true = 0.0025 * np.exp(0.8 * rng.standard_normal(300))
    seen = variances(rng, true, df)

    shrunk, _, _ = shrink(seen, df)

    assert np.abs(np.log(shrunk / true)).mean() < 0.75 * np.abs(np.log(seen / true)).mean()


def test_shrink_matches_closed_form_for_gamma_prior(rng):
    d0, s0, df = 8.0, 0.0025, np.full(4000, 4.0)
    true = s0 * d0 / rng.chisquare(d0, 4000)
    seen = variances(rng, true, df)

    shrunk, shrunk_df, _ = shrink(seen, df)

    closed = (d0 * s0 + df * seen) / (d0 + df)
    middle = (seen > np.quantile(seen, 0.1)) & (seen < np.quantile(seen, 0.9))
    np.testing.assert_allclose(shrunk[middle], closed[middle], rtol=0.15)
    assert np.median(shrunk_df) == pytest.approx(d0 + 4, rel=0.25)


def test_shrink_ignores_invalid_variances(rng):
    df = np.r_[np.full(30, 4.0), 0.0, 4.0, 4.0]
    seen = np.r_[variances(rng, np.full(30, 0.01), df[:30]), 1.0, 0.0, np.nan]

    shrunk, shrunk_df, prior_df = shrink(seen, df)
    alone, _, _ = shrink(seen[:30], df[:30])

    np.testing.assert_allclose(shrunk[:30], alone)
    np.testing.assert_array_equal(shrunk[30:], seen[30:])
    np.testing.assert_array_equal(shrunk_df[30:], df[30:])
    assert (prior_df[30:] == 0).all()
