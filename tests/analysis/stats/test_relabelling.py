import numpy as np
import pytest

from benchkit.analysis.effects import adjust, compare
from benchkit.analysis.stats.log_scale import to_log_scale
from benchkit.analysis.stats.moderated_t import moderated_t
from benchkit.analysis.stats.relabelling import relabelled_p
from validation import simulated_noise as noise


def equal_arms(rng, kind, n_runs, *, n_arms=2, n_tests=700):
    return np.exp(noise.make(kind, rng, (n_tests, n_runs, n_arms))).transpose(2, 0, 1)


def corrected(arms, *, blocked=False):
    """Return p values of the t test, and the result of the correction."""
    points = to_log_scale(*arms, blocked=blocked)
    families = [np.arange(len(arms[0]))]
    test = moderated_t(points, points.contender, blocked, families)
    listed = adjust(test.p) <= 0.05
    return test.p, listed, relabelled_p(points, test, listed, blocked, families)


@pytest.mark.parametrize(
    ("n_runs", "n_arms", "blocked", "least"),
    [(3, 2, False, 8), (3, 2, True, 6), (3, 3, False, 3), (3, 3, True, 3), (4, 2, False, 3)],
)
def test_compare_rarely_lists_rows_with_noise_of_two_modes(n_runs, n_arms, blocked, least, rng):
    n_before = n_listed = 0
    for _ in range(4):
        arms = equal_arms(rng, "bimodal", n_runs, n_arms=n_arms)
        effects = compare(*arms[:2], null=arms[2] if n_arms == 3 else None, blocked=blocked)
        listed = adjust(effects.p) <= 0.05
        n_before += listed.sum()
        n_listed += effects.changed.sum()
        assert any("labels" in text for text in effects.warnings) == bool(effects.n_false)
        assert effects.n_false or not listed.any()

    assert n_before >= least
    assert n_listed <= 1  # a report lists a row with a probability of 1 / 25


def test_compare_lists_a_large_change_with_noise_of_two_modes(rng):
    baseline, contender, null = equal_arms(rng, "bimodal", 3, n_arms=3)
    contender[0] *= 3
    effects = compare(baseline, contender, null=null)

    assert effects.n_false > 1
    assert np.flatnonzero(effects.changed).tolist() == [0]


def test_relabelled_p_is_near_exact_p_with_lognormal_noise(rng):
    p, _, result = corrected(equal_arms(rng, "lognormal", 3))
    new_p = result.p

    assert result.is_exact
    assert (new_p >= p * (1 - 1e-12)).all()
    common = p > 0.001
    assert (new_p[common] <= 2 * p[common]).all()


@pytest.mark.parametrize(("n_runs", "n_arms", "n_tests"), [(6, 2, 700), (3, 3, 99), (3, 2, 99)])
def test_relabelled_p_leaves_other_reports_unchanged(n_runs, n_arms, n_tests, rng):
    arms = equal_arms(rng, "bimodal", n_runs, n_arms=n_arms, n_tests=n_tests)

    p, _, result = corrected(arms)

    assert result.p is p
    assert result.is_exact


def test_relabelling_works_if_all_rows_of_a_metric_are_listed():
    rng = np.random.default_rng(0)
    a, b = np.exp(0.05 * rng.standard_normal((2, 120, 3)))
    b[:60] *= 4

    effects = compare(a, b, family=["duration"] * 60 + ["memory_peak"] * 60)

    assert (effects.q[:60] < 0.05).all()
    assert (effects.q[60:] > 0.05).all()


@pytest.mark.parametrize(("correlation", "n_runs"), [(0.8, 3), (0.8, 4), (0.5, 3), (0.0, 5)])
def test_relabelling_keeps_changes_of_one_metric_if_metrics_are_correlated(correlation, n_runs):
    rng = np.random.default_rng([n_runs, int(10 * correlation)])
    n_plain = n_found = 0
    for _ in range(3):
        a, null, b, changed, workload, metric = noise.workload_report(
            rng, n_runs, correlation=correlation, one_metric=True
        )
        effects = compare(a, b, null=null, family=metric, workload=workload)
        n_plain += (changed & (adjust(effects.p) <= 0.05)).sum()
        n_found += (changed & (effects.own_q <= 0.05)).sum()

    assert n_plain > 3
    assert n_found > 0.8 * n_plain


def test_relabelling_takes_one_workload_whose_metrics_look_certain_for_chance():
    rng = np.random.default_rng([5, 2])
    n_plain = n_found = 0
    for _ in range(4):
        a, _, b, changed, workload, metric = noise.workload_report(
            rng, 5, correlation=0.8, one_metric=True
        )
        effects = compare(a, b, family=metric, workload=workload)
        n_plain += (changed & (adjust(effects.p) <= 0.05)).sum()
        n_found += (changed & (effects.own_q <= 0.05)).sum()

    assert n_plain > 10
    assert n_found >= 0.9 * n_plain
