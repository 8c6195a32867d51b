import numpy as np
import pytest
from helpers import simulated_noise as noise

from benchkit.analysis.stats.effects import adjust, compare
from benchkit.analysis.stats.log_scale import to_log_scale
from benchkit.analysis.stats.moderated_t import moderated_t
from benchkit.analysis.stats.relabelling import relabelled_p


def equal_arms(rng, kind, n_runs, *, n_arms=2, n_tests=700):
    return np.exp(noise.make(kind, rng, (n_tests, n_runs, n_arms))).transpose(2, 0, 1)


def corrected(arms, *, blocked=False):
    """Return p values of the t test, and the result of the correction."""
    points = to_log_scale(*arms, blocked=blocked)
    families = [np.arange(len(arms[0]))]
    p = moderated_t(points, points.contender, blocked, families, None).p
    return p, *relabelled_p(points, p, blocked, families)


@pytest.mark.parametrize("blocked", [False, True])
def test_compare_lists_no_rows_with_noise_of_two_modes(blocked, rng):
    n_before, n_listed, n_exact = 0, 0, 0
    for _ in range(6):
        arms = equal_arms(rng, "bimodal", 3)
        p, _, is_exact = corrected(arms, blocked=blocked)
        n_before += (adjust(p, "fdr_bh") <= 0.05).sum()
        n_listed += (compare(*arms, blocked=blocked).q <= 0.05).sum()
        n_exact += is_exact

    assert n_before >= 8
    assert n_listed == 0
    assert n_exact <= 1


def test_relabelled_p_is_near_exact_p_with_lognormal_noise(rng):
    p, new_p, is_exact = corrected(equal_arms(rng, "lognormal", 3))

    assert is_exact
    assert (new_p >= p * (1 - 1e-12)).all()
    common = p > 0.001
    assert (new_p[common] <= 2 * p[common]).all()


@pytest.mark.parametrize(("n_runs", "n_arms", "n_tests"), [(4, 2, 700), (3, 3, 700), (3, 2, 99)])
def test_relabelled_p_leaves_other_reports_unchanged(n_runs, n_arms, n_tests, rng):
    arms = equal_arms(rng, "bimodal", n_runs, n_arms=n_arms, n_tests=n_tests)

    p, new_p, is_exact = corrected(arms)

    assert new_p is p
    assert is_exact
