from itertools import product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestIndPower

from benchkit.analysis.stats.power import runs_needed, runs_until_decided


def test_runs_needed_is_smallest_sufficient_number(rng):
    n, noise, effect = runs_needed(0.1, 0.05), 0.05, np.log(1.1)

    found = []
    for runs in (n - 1, n):
        a, b = noise * rng.standard_normal((2, 20_000, runs))
        found.append((stats.ttest_ind(a, b + effect, axis=1).pvalue < 0.05).mean())

    assert found[0] < 0.8 < found[1]


def test_runs_needed_agrees_with_statsmodels():
    for effect, noise in product((0.02, 0.05, 0.1), (0.03, 0.08)):
        runs = runs_needed(effect, noise)
        size = np.log1p(effect) / np.sqrt(np.log1p(noise**2))
        assert TTestIndPower().power(size, runs, 0.05) >= 0.8
        assert runs == 2 or TTestIndPower().power(size, runs - 1, 0.05) < 0.8


def test_runs_needed_limits():
    assert runs_needed(2.0, 0.001) == runs_needed(0.5, 0.001) == runs_needed(0.05, 0.0) == 2
    assert runs_needed(0.001, 0.3) == -1
    assert runs_needed(0.0, 0.05) == -1


def test_runs_needed_is_similar_for_both_directions():
    assert abs(runs_needed(-0.05, 0.05) - runs_needed(0.05, 0.05)) <= 2


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_runs_until_decided_has_nominal_power(rng, noise):
    n = int(runs_until_decided(np.array([noise]), np.array([0.0]), 0.05)[0])

    a, b = noise * rng.standard_normal((2, 4000, n))
    test = stats.ttest_ind(a, b, axis=1)
    low, high = test.confidence_interval(0.90)
    decided = (np.exp(low) > 0.95) & (np.exp(high) < 1.05)

    assert 0.72 < decided.mean() < 0.9
