"""Coverage and error rates: each test simulates reports with a fixed seed and counts.

Bounds are binomial: a test fails at counts that a correct method gives with a probability below
1e-4. Rows of a report share their prior, so that many small reports are better than few large ones.
"""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from benchkit.analysis.design import LOOKS
from benchkit.analysis.effects import compare
from validation.simulated_noise import (
    IN_TIME,
    INDEPENDENT,
    changed_experiment,
    cover_and_reject,
    make,
    report,
    run_adaptively,
)

pytestmark = pytest.mark.slow
MIN_PROBABILITY = 1e-4


@pytest.mark.parametrize(("n_blocks", "n_arms"), [(3, 2), (5, 3), (10, 2)])
@pytest.mark.parametrize("kind", [*INDEPENDENT, "rare_outliers", *IN_TIME])
def test_compare_coverage_and_false_positive_rate(rng, kind, n_blocks, n_arms):
    reports = 40 if n_arms == 2 else 20  # a null arm takes four times as long
    held, wrong, total = cover_and_reject(rng, kind, n_blocks, n_arms=n_arms, reports=reports)

    assert binom.cdf(held, total, 0.93) > MIN_PROBABILITY
    assert binom.sf(held - 1, total, 0.975) > MIN_PROBABILITY
    assert binom.sf(wrong - 1, total, 0.06) > MIN_PROBABILITY


@pytest.mark.parametrize("n_blocks", [3, 10])
@pytest.mark.parametrize("kind", ["drift", "strong_drift", "neighbour"])
def test_compare_coverage_under_common_disturbances(rng, kind, n_blocks):
    held, wrong, total = cover_and_reject(rng, kind, n_blocks, reports=150)

    assert binom.cdf(held, total, 0.94) > MIN_PROBABILITY
    assert binom.sf(held - 1, total, 0.96) > MIN_PROBABILITY
    assert binom.sf(wrong - 1, total, 0.06) > MIN_PROBABILITY


@pytest.mark.parametrize("n_blocks", [3, 5])
def test_compare_coverage_is_exact_for_lognormal_noise(rng, n_blocks):
    held, _, total = cover_and_reject(rng, "lognormal", n_blocks)

    assert binomtest(held, total, 0.95).pvalue > MIN_PROBABILITY


@pytest.mark.parametrize("n_tests", [1, 9, 10, 20])
@pytest.mark.parametrize("kind", ["lognormal", "drift"])
def test_compare_calibration_in_small_reports(rng, kind, n_tests):
    held, wrong, total = cover_and_reject(rng, kind, 4, n_tests=n_tests, reports=1500 // n_tests)

    assert binom.cdf(held, total, 0.93) > MIN_PROBABILITY
    assert binom.sf(wrong - 1, total, 0.07) > MIN_PROBABILITY


def test_compare_needs_interleaved_arms_under_drift(rng):
    shape = (2000, 5, 2)
    sequential = np.exp(make("drift", rng, shape, order="sequential"))
    interleaved = np.exp(make("drift", rng, shape))

    alarms_sequential = (compare(sequential[:, :, 0], sequential[:, :, 1]).p < 0.05).mean()
    alarms_interleaved = (
        compare(interleaved[:, :, 0], interleaved[:, :, 1], blocked=True).p < 0.05
    ).mean()

    assert alarms_sequential > 0.2
    assert alarms_interleaved < 0.06


@pytest.mark.parametrize(("n_blocks", "found_at_least"), [(3, 0.18), (5, 0.37), (10, 0.55)])
def test_compare_false_discovery_rate_in_large_reports(rng, n_blocks, found_at_least):
    false, found, listed = [], [], 0
    for _ in range(12):
        a, null, b, changed = report(rng, n_blocks)
        seen = compare(a, b, null=null)
        called = seen.q <= 0.05
        false.append((called & ~changed).sum() / max(called.sum(), 1))
        found.append(seen.q[changed] <= 0.05)
        listed += called.sum()

    # 5 % is a mean over reports; allow three standard errors of this one
    assert np.mean(false) < 0.05 + 3 * np.std(false) / np.sqrt(len(false))
    assert np.concatenate(found).mean() > found_at_least
    assert listed > 12 * 10


def test_compare_correction_reduces_false_discoveries(rng):
    a, _, b, changed = report(rng, 5)
    seen = compare(a, b)

    uncorrected, corrected = seen.p <= 0.05, seen.q <= 0.05
    assert (uncorrected & ~changed).sum() / uncorrected.sum() > 0.25
    assert (corrected & ~changed).sum() / corrected.sum() < 0.15


def test_compare_null_arm_adds_power(rng):
    alone = with_null = 0.0
    for _ in range(8):
        a, null, b, changed = report(rng, 3, mixed=False)
        alone += (compare(a, b).q[changed] <= 0.05).mean() / 8
        with_null += (compare(a, b, null=null).q[changed] <= 0.05).mean() / 8

    assert with_null > alone + 0.05


def test_compare_selected_intervals_keep_coverage(rng):
    plain = wide = total = 0
    for _ in range(12):
        sigma = 0.05
        true = np.where(rng.random(400) < 0.15, 1.1, 1.0)
        a, b = np.exp(make("lognormal", rng, (2, 400, 5), level=np.full(2, sigma)))
        seen = compare(a, true[:, None] * b)
        listed = seen.q <= 0.05
        plain += ((seen.low <= true) & (true <= seen.high))[listed].sum()
        wide += ((seen.selected_low <= true) & (true <= seen.selected_high))[listed].sum()
        total += listed.sum()

    assert binom.cdf(wide, total, 0.93) > MIN_PROBABILITY
    assert plain < wide


def test_calibrated_rarely_rejects_calibrated_experiments(rng):
    alarms = 0
    for _ in range(60):
        a, null, b = (np.exp(make("lognormal", rng, (100, 4, 3)))).transpose(2, 0, 1)
        alarms += compare(a, b, null=null).calibrated is False

    assert alarms <= 4


def test_compare_noise_verdict_needs_comparable_null_change(rng):
    wrong = seen = found = great = 0
    for _ in range(20):
        arms = np.exp(0.05 * rng.standard_normal((200, 1, 3)))
        runs = arms * np.exp(0.01 * rng.standard_normal((200, 5, 3)))
        a, null, b = runs.transpose(2, 0, 1)
        still, moved = compare(a, b, null=null), compare(a, 4 * b, null=null)
        wrong += still.changed[still.null_moved].sum()
        seen += still.null_moved.sum()
        found += moved.changed[moved.null_moved].sum()
        great += moved.null_moved.sum()

    assert binom.sf(wrong - 1, seen, 0.05) > MIN_PROBABILITY
    assert found > 0.8 * great > 1000


def test_next_step_has_power_of_fixed_plan_with_half_the_runs(rng):
    changed = np.arange(100) % 10 == 0
    found, false, blocks, fixed = [], [], [], []
    for _ in range(25):
        a, b, effect = changed_experiment("lognormal", rng, changed)
        steps, n_blocks = run_adaptively(a, b)
        called = np.abs(steps) == 1
        assert (np.sign(effect[called & changed]) == steps[called & changed]).all()
        found.append(called[changed].mean())
        false.append((called & ~changed).sum() / max(called.sum(), 1))
        blocks.append(n_blocks.mean())
        q = compare(a[:, :10], b[:, :10], blocked=True).q
        fixed.append((q[changed] <= 0.05).mean())

    assert np.mean(false) < 0.05 + 3 * np.std(false) / 5
    assert np.mean(found) > np.mean(fixed) - 0.02  # ten blocks
    assert np.mean(blocks) < 10 / 2


def test_next_step_keeps_error_rate_over_all_looks(rng):
    alarms, naive, n_reports = 0, 0, 150
    for _ in range(n_reports):
        a, b = np.exp(make("lognormal", rng, (12, 20, 2))).transpose(2, 0, 1)
        steps, _ = run_adaptively(a, b)
        alarms += (np.abs(steps) == 1).any()
        naive += any((compare(a[:, :n], b[:, :n]).q <= 0.05).any() for n in LOOKS)

    assert binom.sf(alarms - 1, n_reports, 0.05) > MIN_PROBABILITY
    assert naive > alarms
