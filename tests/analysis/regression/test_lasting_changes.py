"""Changes of task groups are reported when they have lasted for ten nights."""

import numpy as np
import pytest

from benchkit.analysis.regression.lasting_changes import LASTING_NIGHTS, find_lasting_changes


def odds(rng, size, changes):
    """Return odds of four groups with 2 % noise; a change: (group, first night, end, factor)."""
    seconds = np.array([[50.0], [5.0], [30.0], [15.0]])
    seconds = seconds * np.exp(0.02 * rng.standard_normal((4, size)))
    for group, first, end, factor in changes:
        seconds[group, first:end] *= factor
    return seconds / (seconds.sum(axis=0) - seconds)


def test_find_lasting_changes_waits_for_ten_nights(rng):
    rows = odds(rng, 60, [(1, 40, None, 1.3)])
    (found,) = find_lasting_changes([rows])

    assert [each.row for each in found] == [1]
    assert found[0].night - found[0].change.index + 1 == LASTING_NIGHTS
    assert found[0].change.index in (39, 40, 41)
    assert found[0].change.ratio == pytest.approx(1.3, abs=0.06)
    assert find_lasting_changes([rows[:, :48]]) == [[]]


@pytest.mark.parametrize(("factor", "is_found"), [(1.035, False), (1.07, True)])
def test_find_lasting_changes_ignores_small_changes(rng, factor, is_found):
    rows = np.exp(0.005 * rng.standard_normal((3, 60)))
    rows[1, 40:] *= factor

    assert bool(find_lasting_changes([rows])[0]) == is_found


def test_find_lasting_changes_ignores_nights_that_revert(rng):
    for length in (3, 5, 7):
        rows = odds(rng, 70, [(1, 40, 40 + length, 1.3)])
        assert find_lasting_changes([rows]) == [[]]


def test_find_lasting_changes_counts_measured_nights(rng):
    rows = odds(rng, 70, [(1, 40, None, 1.3)])
    rows[:, 45:50] = np.nan
    (found,) = find_lasting_changes([rows])

    assert found[0].night - found[0].change.index + 1 == LASTING_NIGHTS + 5


def test_find_lasting_changes_has_one_change_per_workload(rng):
    # The largest group grows: the shares of all others fall by the same odds.
    grows = odds(rng, 70, [(0, 40, None, 1.4)])
    twice = odds(rng, 90, [(1, 40, None, 1.3), (3, 65, None, 1.3)])
    found, both, none = find_lasting_changes([
        np.pad(grows, ((0, 0), (20, 0)), constant_values=np.nan), twice, twice[:0]
    ])  # fmt: skip

    assert len(found) == 1
    assert [each.row for each in both] == [1, 3]
    assert none == []
    assert find_lasting_changes([]) == []
