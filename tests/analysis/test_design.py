import numpy as np
import pytest

from benchkit.analysis.design import LOOKS, next_step, sequential_p
from validation.simulated_noise import make


def arms(rng, n_tests, n_blocks, level=0.02):
    return np.exp(make("lognormal", rng, (n_tests, n_blocks, 2), level=level)).transpose(2, 0, 1)


def test_next_step_continues_before_first_look(rng):
    a, b = arms(rng, 20, 2)

    assert (next_step(a, 2 * b) == 0).all()


def test_next_step_decides_changed_and_same(rng):
    a, b = arms(rng, 30, 8)
    b[0] *= 1.3
    b[1] /= 1.3

    steps = next_step(a, b)

    assert steps[:2].tolist() == [1, -1]
    assert (steps[2:] == 2).mean() > 0.8


def test_next_step_ignores_blocks_between_looks(rng):
    a, b = arms(rng, 30, 7, 0.08)

    np.testing.assert_array_equal(next_step(a[:, :5], b[:, :5]), next_step(a, b))


def test_next_step_stops_tests_without_power(rng):
    a, b = arms(rng, 30, 20, 0.3)

    assert (next_step(a[:, :3], b[:, :3]) == 3).mean() > 0.3
    assert (next_step(a, b) != 0).all()


def test_next_step_keeps_changed_decision(rng):
    a, b = arms(rng, 30, 12)
    b[0, :5] *= 1.5
    b[0, 5:] /= 1.5

    assert next_step(a[:, :5], b[:, :5])[0] == 1
    assert next_step(a, b)[0] == 1


def test_next_step_keeps_decision_of_stopped_test(rng):
    a, b = arms(rng, 30, 20, 0.06)
    early = next_step(a[:, :3], b[:, :3])
    stopped = early != 0
    a[stopped, 3:] = b[stopped, 3:] = np.nan

    late = next_step(a, b)

    assert 0 < stopped.sum() < 30
    np.testing.assert_array_equal(late[stopped], early[stopped])


def test_next_step_with_few_or_no_runs(rng):
    a, b = arms(rng, 30, 5)
    b[0, 1:] = np.nan  # one run
    b[1] = np.nan

    assert next_step(a, b)[:2].tolist() == [0, 3]


def test_next_step_decides_with_missing_runs(rng):
    a, b = arms(rng, 30, 8)
    b[0] *= 1.3
    a[0, 0] = b[0, 3] = np.nan

    assert next_step(a, b)[0] == 1


def test_next_step_uses_null_arm(rng):
    a, b = arms(rng, 30, 5)
    null, _ = arms(rng, 30, 5)
    b[0] *= 1.2

    assert next_step(a, b, null=null)[0] == 1


def test_sequential_p_is_between_single_look_and_bonferroni():
    p = np.array([0.0, 1e-9, 1e-5, 0.001, 0.05, 0.5, 1.0])

    corrected = sequential_p(p, LOOKS)

    assert (corrected >= p).all()
    assert (corrected <= np.minimum(5 * p, 1)).all()
    assert (np.diff(corrected) >= 0).all()
    assert sequential_p(p, (5,)) == pytest.approx(p, abs=1e-6)


def test_sequential_p_bounds_simulated_error_rate(rng):
    sums = np.cumsum(rng.standard_normal((100_000, LOOKS[-1])), axis=1)
    z = np.abs(sums[:, np.array(LOOKS) - 1] / np.sqrt(LOOKS)).max(axis=1)

    chance = (z > 2.5758).mean()  # p = 0.01 at any look

    bound = sequential_p(np.array([0.01]), LOOKS)[0]
    assert chance < bound < 1.35 * chance
