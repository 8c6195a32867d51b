import pytest

from benchkit.experiment.run.estimate import OVERHEAD_S, Estimate


def test_the_time_left_is_what_is_known_and_then_what_is_seen():
    estimate = Estimate(["a", "b", "a"], {"a": 10.0, "b": 2.0})
    assert estimate.remaining_seconds == pytest.approx(22.0 + 3 * OVERHEAD_S)

    estimate.finished("a", 13.0, 12.0)
    assert estimate.remaining_seconds == pytest.approx(2.0 + 12.0 + 2 * 1.0)


def test_unknown_workloads_are_taken_to_be_like_those_seen():
    estimate = Estimate(["a", "b"], {})
    estimate.finished("a", 5.0, 4.0)

    assert estimate.remaining_seconds == pytest.approx(4.0 + 1.0)


def test_a_run_without_a_duration_leaves_the_list_all_the_same():
    estimate = Estimate(["a"], {})
    estimate.finished("a", 5.0, None)

    assert estimate.remaining_seconds == 0
