import numpy as np
import pytest

from benchkit.errors import UsageError
from benchkit.experiment.run.estimate import Estimate
from benchkit.experiment.run.plan import plan_measurements
from benchkit.experiment.run.stopping import LOOKS, StopPolicy, blocks_within, parse_budget


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("1.5h", 5400), ("2 min", 120)],
)
def test_parse_budget_time(text, seconds):
    assert parse_budget(text) == (seconds, None)


@pytest.mark.parametrize(("text", "usd"), [("5USD", 5), ("$2.50", 2.5), ("0.5 USD", 0.5)])
def test_parse_budget_usd(text, usd):
    assert parse_budget(text) == (None, usd)


@pytest.mark.parametrize("text", ["", "20", "m", "20x", "20m!", "5EUR"])
def test_parse_budget_rejects_other_text(text):
    with pytest.raises(UsageError, match="must be a time such as"):
        parse_budget(text)


def test_blocks_within_is_at_least_two():
    assert blocks_within(100, 30) == 3
    assert blocks_within(10, 30) == 2


def simulate(ratios, *, adaptive=True, seed=0, **budget):
    """Simulate a plan with noise of 2 %; return the runs per variant and the policy."""
    rng = np.random.default_rng(seed)
    arms, names = ["A", "B", "null"], [f"x.w{i}" for i in range(len(ratios))]
    policy = StopPolicy(
        arms, names, Estimate([], dict.fromkeys(names, 5.0)), adaptive=adaptive, **budget
    )
    done = dict.fromkeys(names, 0)
    for m in plan_measurements(arms, dict.fromkeys(names, 60.0), LOOKS[-1]):
        if policy.should_skip(m):
            continue
        ratio = ratios[names.index(m.variant)] if m.arm == "B" else 1.0
        policy.record(
            {
                "outcome": "ok",
                "arm": m.arm,
                "workload": m.variant,
                "block": m.block,
                "duration": 10 * ratio * rng.lognormal(sigma=0.02),
                "cost": 0.01,
            }
        )
        done[m.variant] += 1
    return done, policy


def test_stop_policy_skips_settled_workloads():
    ratios = [1.3] * 6 + [1.0] * 10
    done, policy = simulate(ratios)

    whole = 3 * LOOKS[-1]
    assert all(count < whole for count in done.values())
    assert policy.n_settled == sum(whole - count for count in done.values())
    assert policy.n_settled > 0.5 * whole * len(ratios)


def test_stop_policy_skips_whole_blocks():
    done, _ = simulate([1.0, 1.1, 1.3] * 4)

    assert all(count % 3 == 0 for count in done.values())


def test_stop_policy_without_adaptive_skips_nothing():
    done, policy = simulate([1.3, 1.0], adaptive=False)

    assert set(done.values()) == {3 * LOOKS[-1]}
    assert policy.n_settled == 0


def test_stop_policy_time_budget_keeps_two_blocks():
    done, policy = simulate([1.3, 1.0], adaptive=False, budget_s=0.001)

    assert set(done.values()) == {6}
    assert policy.n_over_budget == 2 * 3 * (LOOKS[-1] - 2)


def test_stop_policy_usd_budget_keeps_whole_blocks():
    done, policy = simulate([1.3, 1.0], adaptive=False, budget_usd=0.305)

    assert sum(done.values()) == 30
    assert policy.n_over_budget == 2 * 3 * LOOKS[-1] - 30
