"""Probability of the position of a step, from differences and event counts."""

from benchkit.analysis.stats.step_posterior import chances_of_place, weight_of_events


def test_chances_of_place_is_robust_to_an_outlier():
    ends = {(0, 4): [0.20, 0.21, 0.19]}
    calm = chances_of_place(5, {**ends, (0, 2): [0.0, 0.01, -0.01]}, size=0.2)
    hit = chances_of_place(5, {**ends, (0, 2): [0.0, 0.01, 0.9]}, size=0.2)

    assert calm[3:].sum() > 0.99
    assert 0.5 < hit[3:].sum() < calm[3:].sum()


def test_weight_of_events_grows_with_failures():
    weights = [weight_of_events((0, n), (n, 0)) for n in (1, 2, 3, 5)]

    assert weights == sorted(weights)
    assert weight_of_events((3, 0), (3, 0)) < 0.1
