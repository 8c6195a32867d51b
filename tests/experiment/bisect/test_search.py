"""Search of a bisection on simulated builds: choice of pairs, stop rule, calibration."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from benchkit.experiment.bisect.search import Block, Search


def simulate(rng, n_builds, truth, *, step, noise, broken=0.0, drift=0.0, **options):
    """Bisect simulated builds; the build `truth` and all later builds are slower."""
    search = Search(n_builds, **options)
    # Differences of equal builds, and a drift from build to build.
    levels = rng.normal(0, 0.005, n_builds) + np.cumsum(rng.normal(0, drift, n_builds))
    levels[truth:] += step
    unbuildable = set(np.flatnonzero(rng.random(n_builds) < broken)) - {0, n_builds - 1}
    while (pair := search.next_pair()) is not None:
        if set(pair) & unbuildable:
            for build in set(pair) & unbuildable:
                search.skip(build)
            continue
        shared = rng.normal(0, 0.1)  # a slow minute affects both builds
        logs = shared + levels[list(pair)] + noise * rng.standard_t(5, 2)
        logs += rng.exponential(0.3, 2) * (rng.random(2) < 0.03)  # another process disturbs the run
        search.add(Block(pair, tuple(np.exp(logs))))
    return search


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_builds", "step", "noise", "options"),
    [
        (9, 0.2, 0.01, {}),
        (46, 0.2, 0.05, {"broken": 0.25}),
        (46, 0.2, 0.03, {"drift": 0.005}),
        (20, -0.15, 0.03, {}),
    ],
)
def test_search_answers_are_as_often_right_as_stated(n_builds, step, noise, options):
    rng, n_found, n_right, stated = np.random.default_rng(20), 0, 0, []
    for _ in range(40):
        truth = int(rng.integers(1, n_builds))
        search = simulate(rng, n_builds, truth, step=step, noise=noise, **options)
        if search.found:
            low, high = search.between
            n_found, n_right = n_found + 1, n_right + (low < truth <= high)
            stated.append(search.chance)

    assert n_found >= 32  # most searches end with an answer
    assert min(stated) >= 0.95
    assert binomtest(n_right, n_found, float(np.mean(stated)), alternative="less").pvalue > 0.001


def test_search_stops_when_ends_do_not_differ():
    rng = np.random.default_rng(1)
    searches = [simulate(rng, 30, 15, step=0.0, noise=0.01) for _ in range(15)]

    assert {search.ends for search in searches} <= {"same", "undecided"}
    assert not any(search.found for search in searches)
    assert {block.builds for search in searches for block in search.blocks} == {(0, 29)}


@pytest.mark.parametrize(("ratio", "ends"), [(1.003, "same"), (1.03, "differ"), (0.97, "differ")])
def test_search_ignores_negligible_differences(ratio, ends):
    search = Search(5)
    for wobble in (1.0, 1.0004, 0.9996):
        search.add(Block((0, 4), (10.0, 10.0 * ratio * wobble)))

    assert search.ends == ends


def measured(search, truth, *, ratio=1.5):
    """Run a search without noise; return the measured pairs."""
    pairs = []
    while (pair := search.next_pair()) is not None:
        pairs.append(pair)
        search.add(Block(pair, tuple(10 * (ratio if build >= truth else 1) for build in pair)))
    return pairs


@pytest.mark.parametrize("truth", [1, 2, 17, 31, 32])
def test_search_halves_and_confirms_the_last_pair(truth):
    search = Search(33)
    pairs = measured(search, truth)

    assert search.found
    assert search.between == (truth - 1, truth)
    assert pairs.count((truth - 1, truth)) >= 3
    n_ends = pairs.index((0, 16))
    assert pairs[:n_ends] == [(0, 32)] * n_ends
    assert n_ends <= 5
    assert len(pairs) <= n_ends + 2 * 5 + 3


def test_search_corrects_a_wrong_step():
    search = Search(17)
    for _ in range(3):
        search.add(Block((0, 16), (10.0, 15.0)))
    for _ in range(2):
        search.add(Block((0, 8), (10.0, 14.8)))  # two disturbed blocks
    measured(search, 12)

    assert search.found
    assert search.between == (11, 12)


def test_search_reports_skipped_builds_between_the_ends():
    search = Search(9)
    for build in (3, 4):
        search.skip(build)
    measured(search, 4)

    assert search.between == (2, 5)
    assert search.chance > 0.99
    assert search.side(2) < 0.01 < search.side(3) < search.side(4) < 0.99 < search.side(5)


def test_search_counts_a_timeout_as_slow():
    search = Search(9)
    while (pair := search.next_pair()) is not None:
        hangs = tuple(build >= 6 for build in pair)
        values = tuple(math.nan if hang else 10.0 for hang in hangs)
        search.add(Block(pair, values, hangs))

    assert search.found
    assert search.between == (5, 6)


def test_search_skips_a_build_without_results_in_two_blocks():
    search = Search(9)
    while (pair := search.next_pair()) is not None:
        fails = pair[1] == 4
        value = math.nan if fails else 15.0 if pair[1] >= 6 else 10.0
        event = None if fails else False
        search.add(Block(pair, (10.0 if pair[0] < 6 else 15.0, value), (False, event)))

    assert search.skipped == {4}
    assert search.between == (5, 6)


def test_search_finds_intermittent_failures():
    rng = np.random.default_rng(5)
    right = []
    for _ in range(20):
        truth = int(rng.integers(1, 16))
        search = Search(16, by_events=True, max_repeats=40)
        while (pair := search.next_pair()) is not None:
            fails = tuple(bool(b >= truth and rng.random() < 0.6) for b in pair)
            search.add(Block(pair, events=fails))
        if search.found:
            right.append(search.between == (truth - 1, truth))

    assert len(right) >= 14
    assert np.mean(right) >= 0.85


def test_search_without_failures_reports_equal_ends():
    search = Search(5, by_events=True)
    while (pair := search.next_pair()) is not None:
        search.add(Block(pair))

    assert search.ends == "same"
    assert len(search.blocks) == 5


def test_search_uses_differences_for_metrics_with_zeros():
    search = Search(9)
    rng = np.random.default_rng(2)
    while (pair := search.next_pair()) is not None:
        spilled = [(2e9 if build >= 3 else 0.0) * rng.normal(1, 0.02) for build in pair]
        search.add(Block(pair, tuple(spilled)))

    assert search.found
    assert search.between == (2, 3)
