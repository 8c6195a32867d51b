"""Joint evidence: the metrics of a workload support each other at the promised error rate."""

import numpy as np
import pytest

from benchkit.analysis.effects import compare
from benchkit.analysis.stats.joint_evidence import combine_evidence, metric_correlation
from benchkit.errors import UsageError
from validation.simulated_noise import report, workload_report

N_REPORTS = 5


def judged(rng, n_blocks, *, blocked=False, **options):
    """Return the effects of a report with joint evidence, and which rows changed."""
    a, null, b, changed, workload, metric = workload_report(
        rng, n_blocks, blocked=blocked, **options
    )
    effects = compare(a, b, null=null, family=metric, workload=workload, blocked=blocked)
    return effects, changed


def assert_false_share(false):
    """5 % is a mean over reports; allow three standard errors of these."""
    assert np.mean(false) < 0.05 + 3 * np.std(false) / np.sqrt(len(false))


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("correlation", [0, 0.4, 0.8])
@pytest.mark.parametrize("n_blocks", [3, 5, 10])
def test_compare_joint_false_discovery_rate(rng, n_blocks, correlation, blocked):
    false, joint, alone = [], 0, 0
    for _ in range(N_REPORTS):
        effects, changed = judged(rng, n_blocks, correlation=correlation, blocked=blocked)
        called = effects.q <= 0.05
        false.append((called & ~changed).sum() / max(called.sum(), 1))
        joint += (called & changed).sum()
        alone += ((effects.own_q <= 0.05) & changed).sum()

    assert_false_share(false)
    assert joint > {0: 1.15, 0.4: 1.05, 0.8: 0.85}[correlation] * alone


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("n_blocks", [3, 5, 10])
def test_compare_joint_rarely_lists_unchanged_reports(rng, n_blocks, blocked):
    listed = sum(
        (judged(rng, n_blocks, correlation=0.4, share=0, blocked=blocked)[0].q <= 0.05).any()
        for _ in range(10)
    )

    assert listed <= 3  # 5 % of reports; 4 or more of 10 has a probability of .001


def test_compare_joint_finds_changes_that_move_together(rng):
    results = [judged(rng, 5, correlation=0.4) for _ in range(N_REPORTS)]

    found = np.concatenate([effects.q[changed] <= 0.05 for effects, changed in results])
    alone = np.concatenate([effects.own_q[changed] <= 0.05 for effects, changed in results])
    assert found.mean() > 0.53
    assert found.mean() > alone.mean() + 0.04


@pytest.mark.parametrize("n_blocks", [3, 5, 10])
def test_compare_joint_loses_little_if_metrics_change_alone(rng, n_blocks):
    joint, alone = [], []
    for _ in range(8):
        a, null, b, changed = report(rng, n_blocks, mixed=False)
        workload, metric = np.divmod(np.arange(700), 7)
        effects = compare(a, b, null=null, family=metric, workload=workload)
        joint.append((effects.q[changed] <= 0.05).mean())
        alone.append((effects.own_q[changed] <= 0.05).mean())

    assert np.mean(joint) > np.mean(alone) - 0.03


@pytest.mark.parametrize("correlation", [0, 0.4, 0.8])
@pytest.mark.parametrize("blocked", [False, True])
def test_metric_correlation_is_that_of_the_runs(rng, correlation, blocked):
    a, _, b, _, workload, metric = workload_report(
        rng, 10, correlation=correlation, blocked=blocked, shape=(200, 4)
    )
    effects = compare(a, b, family=metric, workload=workload, blocked=blocked)

    matrix = metric_correlation(effects.points, blocked, workload, metric)
    assert matrix.shape == (4, 4)
    assert (np.diag(matrix) == 1).all()
    assert matrix[~np.eye(4, dtype=bool)] == pytest.approx(correlation, abs=0.06)
    assert effects.joint.correlation == pytest.approx(correlation, abs=0.06)


def test_combine_evidence_needs_many_rows():
    rows = np.zeros(57)
    assert (
        combine_evidence(rows, rows + 1, rows + 4, np.repeat(np.arange(19), 3), np.eye(3)) is None
    )
    one = compare([[1.0, 1.1]], [[1.2, 1.3]], family=["a"], workload=["x"])
    assert one.joint is None
    assert one.q.tolist() == one.own_q.tolist()


def test_combine_evidence_raises_rows_beside_a_large_change():
    workload = np.repeat(np.arange(40), 3)
    t = np.tile([0.1, -0.3, 0.5], 40)
    t[:3] = 6.0, 5.0, 2.3  # the third metric alone is little evidence
    t[3] = 2.3
    result = combine_evidence(0.03 * t, np.full(120, 0.03), np.full(120, 8.0), workload, np.eye(3))
    assert result.q[2] < 0.5 * result.q[3]
    assert result.log_evidence[2] == pytest.approx(result.log_evidence[3])


def test_combine_evidence_of_identical_metrics_adds_nothing():
    workload = np.repeat(np.arange(40), 3)
    t = np.tile([0.1, -0.3, 0.5], 40)
    t[:3] = 6.0, 5.0, 2.3
    t[3] = 2.3
    result = combine_evidence(
        0.03 * t, np.full(120, 0.03), np.full(120, 8.0), workload, np.ones((3, 3))
    )
    assert result.q[2] == pytest.approx(result.q[3], rel=0.3)


def test_compare_checks_labels_of_workloads():
    with pytest.raises(UsageError, match="workload: 1 labels for 2 tests"):
        compare([[1.0], [2.0]], [[1.0], [2.0]], family=["a", "b"], workload=["x"])
