import numpy as np
import pytest

from benchkit.analysis.effects import compare
from benchkit.analysis.stats.confirmation import CONFIRMATION_LOOKS, judge_reruns


def rerun_to_the_end(rng, n, change, noise=0.03, minutes=0.0):
    """Return the decisions of n re-runs that are judged at each look until they stop.

    `minutes` is the standard deviation of what the runs of a block share, in logarithms.
    """
    last = CONFIRMATION_LOOKS[-1]
    logs = rng.normal(0, noise, (n, last, 3)) + rng.normal(0, minutes, (n, last, 1))
    good, tonight = np.exp(logs[:, :, :2]), change * np.exp(logs[:, :, 2])
    decision, running = np.zeros(n, int), np.ones(n, bool)
    for look in CONFIRMATION_LOOKS:
        result = judge_reruns(good[:, :look], tonight[:, :look], np.ones(n))
        stops = running & result.stopped
        decision[stops] = result.decision[stops]
        running &= ~result.stopped
    assert not running.any()
    return decision


def test_judge_reruns_rarely_confirms_no_change(rng):
    assert np.mean(rerun_to_the_end(rng, 4000, 1.0) == 1) < 0.004


@pytest.mark.parametrize(("change", "noise", "share"), [(1.05, 0.02, 0.9), (1.1, 0.03, 0.95)])
def test_judge_reruns_confirms_true_changes(change, noise, share, rng):
    assert np.mean(rerun_to_the_end(rng, 1000, change, noise) == 1) >= share


def test_judge_reruns_is_not_disturbed_by_slow_minutes(rng):
    # with both arms pooled .64 were confirmed, and .50 without a change left undecided
    assert np.mean(rerun_to_the_end(rng, 1000, 1.05, 0.01, minutes=0.04) == 1) > 0.98
    assert np.mean(rerun_to_the_end(rng, 1000, 1.0, 0.01, minutes=0.04) == -1) > 0.97


def test_judge_reruns_judges_each_row_alone(rng):
    good, tonight = rng.lognormal(0, 0.02, (30, 5, 2)), rng.lognormal(0, 0.02, (30, 5))

    together = judge_reruns(good, tonight, np.ones(30)).p
    alone = [judge_reruns(good[[row]], tonight[[row]], [1]).p[0] for row in range(30)]

    np.testing.assert_allclose(together, alone)


def test_judge_reruns_is_the_test_of_an_a_b_of_one_row(rng):
    good, tonight = rng.lognormal(0, 0.02, (1, 5, 2)), rng.lognormal(0, 0.02, (1, 5))

    rerun = judge_reruns(good, tonight, [1])
    effects = compare(good[:, :, 0], tonight, null=good[:, :, 1], blocked=True)

    np.testing.assert_allclose(
        [rerun.ratio, rerun.low, rerun.high, rerun.p],
        [effects.ratio, effects.low, effects.high, effects.p],
    )


def test_judge_reruns_dismisses_small_changes(rng):
    assert np.mean(rerun_to_the_end(rng, 1000, 1.0, 0.01) == -1) > 0.97


def test_judge_reruns_decides_in_the_suspected_direction():
    good, slower = [[[10.0, 10.1], [9.9, 10.0]]], [[12.0, 12.1]]

    assert judge_reruns(good, slower, [1]).decision.tolist() == [1]
    assert judge_reruns(good, slower, [-1]).decision.tolist() == [-1]


def test_judge_reruns_interval_covers_true_ratio(rng):
    good = np.exp(rng.normal(0, 0.03, (2000, 5, 2)))
    tonight = np.exp(rng.normal(np.log(1.1), 0.03, (2000, 5)))

    result = judge_reruns(good, tonight, np.ones(2000))

    covered = np.mean((result.low <= 1.1) & (1.1 <= result.high))
    assert 0.93 <= covered <= 0.97


def test_judge_reruns_without_enough_runs_goes_on():
    result = judge_reruns([[[np.nan, 10.0]]], [[11.0]], [1])

    assert (result.decision.tolist(), result.stopped.tolist()) == ([0], [False])
