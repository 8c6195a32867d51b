import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from benchkit.analysis.effects import adjust, compare
from benchkit.errors import UsageError


def lognormal(rng, shape, noise=0.05):
    return 10 * rng.lognormal(sigma=noise, size=shape)


def test_compare_single_row_is_t_test_of_logarithms(rng):
    a, b = lognormal(rng, (1, 5)), 1.1 * lognormal(rng, (1, 4))

    found = compare(a, b)

    expected = stats.ttest_ind(np.log(b[0]), np.log(a[0]))
    interval = np.exp(expected.confidence_interval(0.95))
    assert found.p[0] == pytest.approx(expected.pvalue)
    assert (found.low[0], found.high[0]) == pytest.approx(tuple(interval))


def test_compare_single_blocked_row_is_paired_t_test(rng):
    block = rng.lognormal(sigma=0.3, size=(1, 6))
    a, b = lognormal(rng, (1, 6)) * block, 1.1 * lognormal(rng, (1, 6)) * block

    found = compare(a, b, blocked=True)

    expected = stats.ttest_rel(np.log(b[0]), np.log(a[0]))
    assert found.p[0] == pytest.approx(expected.pvalue)
    assert found.df[0] == pytest.approx(5)


def test_compare_missing_run_excludes_only_its_block(rng):
    a, b = lognormal(rng, (1, 6)), lognormal(rng, (1, 6))
    with_missing = b.copy()
    with_missing[0, 2] = np.nan

    found = compare(a, with_missing, blocked=True)

    kept = [0, 1, 3, 4, 5]
    expected = stats.ttest_rel(np.log(b[0, kept]), np.log(a[0, kept]))
    assert found.p[0] == pytest.approx(expected.pvalue)
    assert "left out" in found.notes[0]


def test_compare_is_independent_of_row_order(rng):
    a, b = lognormal(rng, (40, 5)), lognormal(rng, (40, 5))
    shuffled = rng.permutation(40)

    found, again = compare(a, b), compare(a[shuffled], b[shuffled])

    np.testing.assert_allclose(found.p[shuffled], again.p, rtol=1e-10)


def test_compare_of_swapped_arms_inverts_ratio(rng):
    a, b = lognormal(rng, (40, 5)), lognormal(rng, (40, 4))

    there, back = compare(a, b), compare(b, a)

    np.testing.assert_allclose(there.ratio, 1 / back.ratio)
    np.testing.assert_allclose(there.low, 1 / back.high)
    np.testing.assert_allclose(there.p, back.p)


@pytest.mark.parametrize("blocked", [False, True])
def test_compare_factor_of_an_arm_moves_intervals_only(rng, blocked):
    a, null, b = lognormal(rng, (3, 40, 5))

    found = compare(a, b, null=null, blocked=blocked)
    moved = compare(a, 1.1 * b, null=null, blocked=blocked)

    for name in ("ratio", "low", "high"):
        np.testing.assert_allclose(getattr(moved, name), 1.1 * getattr(found, name))
    np.testing.assert_allclose(moved.se, found.se)


def test_compare_is_independent_of_unit(rng):
    a, b = lognormal(rng, (40, 5)), lognormal(rng, (40, 5))
    unit = 10 ** rng.uniform(-6, 12, (40, 1))

    np.testing.assert_allclose(compare(a, b).p, compare(unit * a, unit * b).p, rtol=1e-6)


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize(
    ("baseline", "contender"),
    [
        ([10, 10, 10], [10, 10, 10]),
        ([10, 10, 10], [11, 11, 11]),
        ([0.1, 0.1, 0.1, np.nan], [0.1, 0.1, 0.1, 0.1]),
        ([0, 0, 0], [0, 0, 0]),
        ([0, 0, 0], [0, 1, 5]),
        ([5, 5, 6], [6, 6, 6]),
        ([1, 2], [2, 3]),
        ([2, 2], [3, 3]),
        ([1, np.nan, np.nan], [9, np.nan, np.nan]),
        ([1, np.nan, np.nan], [9, 8, 9]),
        ([np.nan, np.nan], [9, 8]),
        ([np.inf, 1, 1.1], [1, 1.05, 1.1]),
        ([-1, 1, 0], [1, -1, 0.5]),
        ([1e-300, 2e-300, 1e-300], [1e300, 1e-300, 1e300]),
    ],
)
def test_compare_degenerate_rows_are_not_changed(baseline, contender, blocked):
    width = max(len(baseline), len(contender))
    a, b = (
        np.pad(np.asarray(row, float), (0, width - len(row)), constant_values=np.nan)[None]
        for row in (baseline, contender)
    )

    found = compare(a, b, blocked=blocked)

    assert not found.p[0] < 0.05
    assert not found.changed[0]
    assert len(found.notes) == 1


def test_compare_degenerate_rows_do_not_affect_others(rng):
    a, b = lognormal(rng, (60, 4)), lognormal(rng, (60, 4))
    strange = np.array([[5.0] * 4, [0.0] * 4, [np.nan] * 4, [7, 7, np.nan, np.inf]])

    alone, together = compare(a, b), compare(np.r_[a, strange], np.r_[b, strange])

    np.testing.assert_allclose(together.p[:60], alone.p, rtol=1e-6)
    assert together.verdict[62] == "failed"
    assert np.isnan(together.p[62])


def test_compare_padding_is_not_missing(rng):
    a, b = lognormal(rng, (20, 6)), lognormal(rng, (20, 5))
    a[3, 4:] = np.nan  # it has four runs
    b[5, 1] = np.nan  # its second run has no value
    a[7, 5] = np.inf

    found = compare(a, b)

    assert np.flatnonzero(found.points.n_missing).tolist() == [5, 7]
    assert [i for i, note in enumerate(found.notes) if "without a value" in note] == [5, 7]
    assert compare(a[:, :5], b, blocked=True).points.n_missing[[3, 5]].tolist() == [1, 1]


def test_compare_single_run_gives_ratio_only():
    found = compare([[10.0]] * 20, [[12.0]] * 20)

    assert found.ratio == pytest.approx(np.full(20, 1.2))
    assert np.isnan(found.p).all()
    assert np.isnan(found.low).all()
    assert (found.needed == 1).all()
    assert any("one run a side" in text for text in found.warnings)


def test_compare_zeros_as_differences(rng):
    a = np.array([[0.0, 0, 0, 0, 0], [0, 10, 11, 9, 10], [0, 0, 0, 0, 0]])
    b = np.array([[7.0, 8, 9, 8, 8], [30, 33, 31, 29, 30], [0, 0, 0, 0, 0]])

    found = compare(a, b)

    assert np.isposinf(found.ratio[0])
    assert "no ratio" in found.notes[0]
    assert found.ratio[1] == pytest.approx(b[1].mean() / a[1].mean())
    assert found.low[1] > 1
    assert "differences" in found.notes[1]
    assert found.verdict.tolist() == ["more", "more", "same"]
    assert (compare(b[1:2], a[1:2]).low >= 0).all()


def test_warnings_mention_two_modes_without_null_arm(rng):
    a, null, b = lognormal(rng, (3, 30, 3), 0.02)
    b[0] *= 1.5

    assert any("two modes" in text for text in compare(a, b).warnings)
    assert not any("two modes" in text for text in compare(a, b, null=null).warnings)
    assert not any("two modes" in text for text in compare(a[1:], b[1:]).warnings)


def test_warnings_mention_missing_prior_in_small_reports(rng):
    few, many = lognormal(rng, (2, 9, 5)), lognormal(rng, (2, 10, 5))

    assert any("own runs only" in text for text in compare(*few).warnings)
    assert not compare(*many).warnings


def test_compare_adds_null_arm_to_baseline(rng):
    a, null, b = lognormal(rng, (3, 50, 5))

    found = compare(a, b, null=null)

    assert (found.n_baseline == 10).all()
    assert found.se.mean() < compare(a, b).se.mean()
    assert found.calibrated


def test_banner_reports_uncalibrated_experiment(rng):
    a, null, b = lognormal(rng, (3, 50, 5))

    found = compare(a, b, null=1.15 * null)

    assert found.calibrated is False
    assert "not calibrated" in found.banner


def test_verdict_is_noise_if_null_arm_changed(rng):
    a, null, b = lognormal(rng, (3, 50, 5), 0.02)
    null[0] *= 1.10
    b[:2] *= 1.30

    found = compare(a, b, null=null)

    assert found.verdict[:2].tolist() == ["noise", "more"]
    assert "the null arm moved too" in found.notes[0]


def test_verdict_is_change_far_beyond_null_arm(rng):
    a, null, b = lognormal(rng, (3, 50, 5), 0.002)
    null[0] *= 1.01
    b[0] *= 1.30

    found = compare(a, b, null=null)

    assert found.null_moved[0]
    assert found.verdict[0] == "more"
    assert "by far less" in found.notes[0]


def test_verdict_uses_labels(rng):
    a, b = lognormal(rng, (2, 30, 8), 0.02)
    b[0] *= 1.2
    b[1] /= 1.2

    found = compare(a, b, labels=("faster", "slower"))

    assert found.verdict[:2].tolist() == ["slower", "faster"]
    assert (found.verdict[2:] == "same").mean() > 0.8


def test_selected_intervals_are_wider_for_changed_rows_only(rng):
    a, b = lognormal(rng, (2, 60, 5))
    b[:5] *= 1.4

    found = compare(a, b)

    wider = (found.selected_high - found.selected_low) > (found.high - found.low) * 1.01
    np.testing.assert_array_equal(wider, found.q <= 0.05)


def test_probability_agrees_with_interval_and_p(rng):
    a, b = lognormal(rng, (2, 30, 5))
    b[3] *= 1.1

    found = compare(a, b)
    table = found.table()

    one_sided = np.where(found.estimate > 0, table.less[:, 0], table.more[:, 0])
    np.testing.assert_allclose(2 * one_sided, found.p)
    at_low = [found.probability([low - 1])[i, 0] for i, low in enumerate(found.low)]
    np.testing.assert_allclose(at_low, 0.975)
    assert (np.diff(table.more, axis=1) <= 0).all()


def test_hodges_lehmann_is_robust_against_outlier(rng):
    a, b = lognormal(rng, (2, 20, 9), 0.02)
    b[0, 0] *= 5

    found = compare(a, b)

    assert abs(found.hodges_lehmann[0] - 1) < 0.05
    assert found.ratio[0] > 1.1
    assert "outlier" in found.notes[0]
    assert not any("outlier" in note for note in found.notes[1:])


def test_compare_families_are_independent(rng):
    noise = np.repeat([0.01, 0.10], 50)[:, None]
    a, b = lognormal(rng, (2, 100, 3), noise)

    found = compare(a, b, family=["duration"] * 50 + ["memory_peak"] * 50)

    first = compare(a[:50], b[:50])
    np.testing.assert_allclose(found.p[:50], first.p)


@pytest.mark.parametrize("n", [1, 2, 300])
def test_adjust_agrees_with_statsmodels(rng, n):
    p = rng.random(n) ** 3
    p[-1] = p[0]  # tied

    found = adjust(np.append(p, np.nan))

    np.testing.assert_allclose(found[:-1], multipletests(p, method="fdr_bh")[1])
    assert np.isnan(found[-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"contender": [[1.0]]}, "contender: 1 rows, but the baseline has 2"),
        ({"contender": [1.0, 2.0]}, r"contender: an array of shape \(2,\)"),
        ({"null": [[1.0]]}, "null: 1 rows"),
        ({"family": ["a"]}, "family"),
        ({"blocked": True, "contender": [[1.0], [2.0]]}, "contender: 1 blocks"),
    ],
)
def test_compare_rejects_mismatched_arrays_by_name(arguments, message):
    given = {"baseline": [[1.0, 2.0]] * 2, "contender": [[1.5, 2.0]] * 2, **arguments}

    with pytest.raises(UsageError, match=message):
        compare(**given)


def test_draws_of_a_simulation_are_compared_draw_by_draw():
    """A change of 1 % shows although draws differ by 20 %; equal draws are equal after one."""
    draws = np.array([5.0, 5.9, 5.4, 5.2])
    changed = draws * [1.010, 1.011, 1.009, 1.010]

    found = compare([draws, draws], [changed, draws], paired=True)

    assert found.verdict.tolist() == ["more", "same"]
    assert 1.008 < found.low[0] < found.ratio[0] < found.high[0] < 1.012
    assert (found.low[1], found.ratio[1], found.high[1]) == (1.0, 1.0, 1.0)
    one = compare([draws[:1], draws[:1]], [changed[:1], draws[:1]], paired=True)
    assert one.verdict.tolist() == ["undecided", "same"]
    assert one.needed.tolist() == [1, 0]


def test_identical_arms_of_a_simulation_never_differ():
    draws = np.random.default_rng(0).uniform(1, 9, (200, 3))

    assert set(compare(draws, draws, paired=True).verdict) == {"same"}
