import numpy as np
import pytest

from benchkit.analysis.effects import compare_bootstrap
from benchkit.analysis.stats.bootstrap import THRESHOLDS
from benchkit.errors import UsageError


def random_table(rng, a, b, n=40_000):
    """Return the table from random resamples, as coiled/benchmarks computes it."""
    change = rng.choice(b, (n, len(b))).mean(axis=1) / rng.choice(a, (n, len(a))).mean(axis=1) - 1
    return (change[:, None] < -THRESHOLDS).mean(axis=0), (change[:, None] > THRESHOLDS).mean(axis=0)


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 3), (5, 5), (7, 4), (8, 8), (12, 5), (20, 20)])
def test_bootstrap_equals_limit_of_random_resampling(rng, n_a, n_b):
    a, b = rng.lognormal(sigma=0.3, size=n_a), 1.1 * rng.lognormal(sigma=0.3, size=n_b)

    table = compare_bootstrap([a], [b])

    less, more = random_table(rng, a, b)
    np.testing.assert_allclose(table.less[0], less, atol=0.013)  # five standard errors
    np.testing.assert_allclose(table.more[0], more, atol=0.013)


def test_bootstrap_of_two_runs_a_side():
    # A is 10, 11 or 12 with weights 1, 2, 1; B is 11, 12 or 13
    table = compare_bootstrap([[10.0, 12.0]], [[11.0, 13.0]], thresholds=[0.0, 0.1, 0.2])

    assert table.more[0] == pytest.approx([11 / 16, 5 / 16, 1 / 16])
    assert table.less[0] == pytest.approx([1 / 16, 0, 0])


def test_bootstrap_of_equal_constants_shows_no_change():
    table = compare_bootstrap([[0.1] * 9, [0.3] * 9], [[0.1] * 4 + [np.nan] * 5, [0.3] * 9])

    assert (table.more == 0).all()
    assert (table.less == 0).all()


def test_bootstrap_ignores_missing_runs(rng):
    a, b = rng.lognormal(size=(2, 1, 5))
    with_missing = np.c_[a, [[np.nan, np.inf]]]

    np.testing.assert_array_equal(
        compare_bootstrap(with_missing, b).more, compare_bootstrap(a, b).more
    )
    assert np.isnan(compare_bootstrap([[np.nan]], [[1.0]]).more).all()


def test_bootstrap_is_deterministic(rng):
    a, b = rng.lognormal(size=(2, 3, 9))

    np.testing.assert_array_equal(compare_bootstrap(a, b).more, compare_bootstrap(a, b).more)


def test_bootstrap_enumeration_agrees_with_convolution(rng, monkeypatch):
    a, b = rng.lognormal(sigma=0.2, size=(2, 10, 6))
    enumerated = compare_bootstrap(a, b)

    monkeypatch.setattr("benchkit.analysis.stats.bootstrap.MAX_ENUMERATED", 1)
    convolved = compare_bootstrap(a, b)

    np.testing.assert_allclose(convolved.more, enumerated.more, atol=0.01)
    np.testing.assert_allclose(convolved.less, enumerated.less, atol=0.01)


@pytest.mark.parametrize(
    ("contender", "thresholds", "message"),
    [([[1.0], [2.0]], [0.0], "contender: 2 rows"), ([[1.0]], [-0.1], "negative")],
)
def test_bootstrap_rejects_invalid_arguments(contender, thresholds, message):
    with pytest.raises(UsageError, match=message):
        compare_bootstrap([[1.0]], contender, thresholds=thresholds)
