"""CPU seconds of disturbed runs at equal load."""

import numpy as np
import pytest
from scipy.special import stdtr
from scipy.stats import binomtest

from benchkit.analysis.stats.blocked_t import fit_within_blocks
from benchkit.analysis.stats.equal_load import at_equal_load

ARMS = ("baseline", "contender", "null")


def disturbed(rng, n_blocks, *, noise=0.01, follows=0.17, work=0.0, waits=0.0):
    """Return CPU seconds and shares of waits; `work`, `waits`: changes, as logarithms."""
    load = 2 + 0.2 * rng.standard_normal((n_blocks, 3)) + 0.2 * rng.standard_normal((n_blocks, 1))
    load[:, 1] += waits
    cpu = follows * load + noise * rng.standard_normal((n_blocks, 3))
    cpu[:, 1] += work
    sides = [dict(zip(ARMS, rows.T, strict=True)) for rows in (np.exp(cpu), 1 - np.exp(-load))]
    return sides[0], sides[1]


def change(side):
    """Return estimate and p value of the contender."""
    logs = {arm: np.log(values) for arm, values in side.items()}
    baseline = np.stack([logs["baseline"], logs["null"]], axis=1)
    fit = fit_within_blocks(baseline[None], logs["contender"][None])
    t = fit.difference[0] / np.sqrt(fit.variance[0] * fit.leverage[0])
    return fit.difference[0], 2 * stdtr(fit.df[0], -abs(t))


@pytest.mark.parametrize("waits", [0.0, 0.1])
def test_at_equal_load_has_few_false_changes(waits, rng):
    n = 400
    p = [change(at_equal_load(*disturbed(rng, 5, waits=waits)))[1] for _ in range(n)]

    # the slope of one workload is an estimate: .06 to .08 at five blocks
    assert binomtest(int(np.sum(np.array(p) < 0.05)), n, 0.08, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("work", [1.1, 1.5, 3.2])
def test_at_equal_load_finds_a_change_of_the_work_with_its_size(work, rng):
    results = [disturbed(rng, 5, work=np.log(work), noise=0.01) for _ in range(100)]

    before = np.array([change(cpu) for cpu, _ in results])
    after = np.array([change(at_equal_load(cpu, load)) for cpu, load in results])

    assert after[:, 0].std() < before[:, 0].std() / 2
    assert abs(after[:, 0].mean() - np.log(work)) < 0.005
    assert (after[:, 1] < 0.005).mean() > 0.98


def test_at_equal_load_keeps_what_it_cannot_judge(rng):
    cpu, load = disturbed(rng, 3)
    assert at_equal_load(cpu, load) is cpu  # three blocks
    unrelated = [disturbed(rng, 6, follows=0.0) for _ in range(40)]
    kept = [at_equal_load(cpu, load) is cpu for cpu, load in unrelated]
    assert np.mean(kept) > 0.9
    cpu, load = disturbed(rng, 6, waits=2.0)
    assert at_equal_load(cpu, load) is cpu  # threads of the contender wait for each other
    cpu, load = disturbed(rng, 6)
    cpu["null"][2] = np.nan
    adjusted = at_equal_load(cpu, load)
    assert adjusted["contender"][2] == cpu["contender"][2]  # its block is incomplete
    assert adjusted["contender"][3] != cpu["contender"][3]
    unknown = {arm: np.full(6, np.nan) for arm in ARMS}
    assert at_equal_load(cpu, unknown) is cpu  # no waits were recorded
