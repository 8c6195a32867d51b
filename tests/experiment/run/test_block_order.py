"""Order of the arms in a block: places, neighbours, and that a cost of a place is no change."""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import benchkit
from benchkit.analysis.effects import compare
from benchkit.analysis.stats.confirmation import CONFIRMATION_LOOKS, judge_reruns
from benchkit.experiment.bisect import session
from benchkit.experiment.bisect.search import Search
from benchkit.experiment.environment.builds import Candidate
from benchkit.experiment.run.events import Finished
from benchkit.experiment.run.plan import block_order, plan_measurements

#: Cost of the first and of the last place of a block, logarithms: all other places cost nothing.
FIRST, LAST = 0.05, 0.03
CHANGE = float(np.log(1.05))
N_ROWS = 90


def cost(place, n_arms):
    """Return the cost of a place."""
    return FIRST if place == 0 else LAST if place == n_arms - 1 else 0.0


def runs_of_plan(rng, plan, arms, *, noise=0.01):
    """Return logarithms of durations, shape (variants, blocks, arms); the place has a cost."""
    variants = list(dict.fromkeys(m.variant for m in plan))
    logs = np.full((len(variants), 1 + max(m.block for m in plan), len(arms)), np.nan)
    for start in range(0, len(plan), len(arms)):
        slow_minute = rng.normal(0, 0.02)
        for place, m in enumerate(plan[start : start + len(arms)]):
            logs[variants.index(m.variant), m.block, arms.index(m.arm)] = (
                slow_minute + cost(place, len(arms)) + rng.normal(0, noise)
            )
    return logs


def planned_runs(rng, arms, n_blocks):
    """Return the runs of an A/B."""
    variants = {f"w{number}": 1.0 for number in range(N_ROWS)}
    return runs_of_plan(rng, plan_measurements(arms, variants, n_blocks), arms)


def interleaved_runs(rng, arms, n_blocks):
    """Return the runs of loops over `benchkit.interleave`, one loop for each row."""
    rows = []
    for _ in range(N_ROWS):
        turns = list(benchkit.interleave(arms, n_blocks, warm_up=False))
        plan = [SimpleNamespace(variant="", block=t.block, arm=t.arm) for t in turns]
        rows.append(runs_of_plan(rng, plan, arms))
    return np.concatenate(rows)


@pytest.mark.parametrize("n_arms", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("position", [0, 1, 5])
def test_block_order_has_each_arm_in_each_place_equally_often(n_arms, position):
    arms = [*"ABCDEFG"[:n_arms]]
    places = np.zeros((n_arms, n_arms), int)
    for block in range(4 * n_arms):
        for place, arm in enumerate(block_order(arms, block, position)):
            places[arms.index(arm), place] += 1

        assert np.ptp(places) <= 1, f"after {block + 1} blocks"
        assert block % n_arms < n_arms - 1 or np.ptp(places) == 0


@pytest.mark.parametrize("n_arms", [2, 3, 4, 5, 6, 7])
def test_block_order_has_each_arm_directly_after_each_other_equally_often(n_arms):
    arms = [*"ABCDEFG"[:n_arms]]
    blocks = [block_order(arms, block) for block in range(2 * n_arms)]
    after = Counter(pair for names in blocks for pair in pairwise(names))

    assert after == {(a, b): 2 for a in arms for b in arms if a != b}


def test_block_order_keeps_baseline_and_contender_neighbours_in_two_of_three_blocks():
    blocks = ["".join(block_order([*"ABN"], block)) for block in range(6)]

    assert blocks == ["ABN", "BNA", "NAB", "ANB", "BAN", "NBA"]
    assert sum("AB" in block or "BA" in block for block in blocks) == 4


def test_block_order_begins_with_the_baseline():
    # the arm that ran first is the baseline of the report
    for n_arms in range(1, 8):
        assert block_order([*"ABCDEFG"[:n_arms]], 0) == [*"ABCDEFG"[:n_arms]]


@pytest.mark.parametrize("runs", [planned_runs, interleaved_runs])
@pytest.mark.parametrize("arms", [["A", "B"], ["A", "B", "null"], ["A", "B", "C", "D", "null"]])
def test_cost_of_a_place_is_no_change_and_hides_none(runs, arms):
    logs = runs(np.random.default_rng(0), arms, 20)
    n_changed = N_ROWS // 3
    changed_logs = logs.copy()
    changed_logs[:n_changed, :, 1] += CHANGE
    with_null = "null" in arms

    def judge(logs, n_blocks):
        baseline, contender, null = (np.exp(logs[:, :n_blocks, arm]) for arm in (0, 1, -1))
        return compare(baseline, contender, null=null if with_null else None, blocked=True)

    for n_blocks in (5, 10, 20):
        assert judge(logs, n_blocks).changed.mean() <= 0.05
    # workloads begin with different rows, so that what 10 blocks leave has no common sign
    assert abs(judge(logs, 10).estimate.mean()) < 0.005
    found = judge(changed_logs, 20).changed
    assert found[:n_changed].mean() > 0.95
    assert found[n_changed:].mean() <= 0.05


@pytest.mark.parametrize("change", [0.0, CHANGE])
def test_rerun_is_judged_without_the_cost_of_a_place(change):
    arms = ["last-good", "tonight", "null"]
    rng, decisions = np.random.default_rng(1), []
    for _ in range(3):
        logs = planned_runs(rng, arms, CONFIRMATION_LOOKS[-1])
        logs[:, :, 1] += change
        decision = np.zeros(len(logs), int)
        for n_blocks in CONFIRMATION_LOOKS:
            good = np.exp(logs[:, :n_blocks, [0, 2]])
            tonight = np.exp(logs[:, :n_blocks, 1])
            rerun = judge_reruns(good, tonight, np.ones(len(logs)))
            decision = np.where(decision == 0, np.where(rerun.stopped, rerun.decision, 0), decision)
        decisions.append(decision)

    confirmed = (np.concatenate(decisions) == 1).mean()
    assert confirmed > 0.95 if change else confirmed <= 0.002 * len(CONFIRMATION_LOOKS)


class Bisected:
    """An experiment of a bisection whose runs have the level of the build and the cost of place."""

    def __init__(self, rng, levels):
        self.rng, self.levels = rng, levels
        self.arms, self.id, self.is_stored, self.deadline_s = [], "e", False, 60.0
        self.variants = [SimpleNamespace(name="w", workload=None)]
        self.order = []

    def retire(self, *keep):
        """Keep the processes: there are none."""

    def run(self, plan):
        """Yield the end of each measurement."""
        for place, m in enumerate(plan):
            if place % 2 == 0:
                slow_minute = self.rng.normal(0, 0.02)
            log = slow_minute + self.levels[int(m.arm)] + cost(place % 2, 2)
            self.order.append((m.block, m.arm))
            value = float(np.exp(log + self.rng.normal(0, 0.01)))
            record = {"block": m.block, "arm": m.arm, "outcome": "ok", "duration": value}
            yield Finished(m, record, will_retry=False, remaining_seconds=0.0)


@pytest.fixture
def bisected(monkeypatch):
    """Return a function that runs a bisection of simulated builds."""
    monkeypatch.setattr(session, "build", lambda environment, report: None)

    def run(levels, search, seed=0):
        candidates = [Candidate(str(number), str(number), {}) for number in range(len(levels))]
        builds = SimpleNamespace(candidates=candidates, environment=lambda position: None)
        experiment = Bisected(np.random.default_rng(seed), levels)
        list(session.Bisection(experiment, builds, search).run())
        return experiment

    return run


class InTurn:
    """A search that asks for two pairs in turn."""

    ends, last, skipped, chance, confidence = "differ", 2, frozenset(), 0.0, 1.0
    chances, draw = np.full(3, 1 / 3), None

    def __init__(self):
        self.blocks = []

    def next_pair(self):
        """Return one pair after the other."""
        return [(0, 1), (0, 2)][len(self.blocks) % 2] if len(self.blocks) < 8 else None

    def add(self, block):
        """Keep the block."""
        self.blocks.append(block)

    def is_unusable(self, build):
        """Return that all can be measured."""
        return False

    def side(self, build):
        """Return the probability to be bad."""
        return 0.5


def test_bisection_measures_either_build_of_each_pair_first_equally_often(bisected):
    order = bisected([0.0, 0.0, 0.0], InTurn()).order

    firsts = [(order[start][1], order[start + 1][1]) for start in range(0, len(order), 2)]
    assert Counter(firsts) == dict.fromkeys([("0", "1"), ("1", "0"), ("0", "2"), ("2", "0")], 2)


def test_bisection_of_equal_builds_finds_no_change_in_the_cost_of_a_place(bisected):
    searches = [Search(9) for _ in range(20)]
    for seed, search in enumerate(searches):
        bisected([0.0] * 9, search, seed)

    assert "differ" not in {search.ends for search in searches}


def test_bisection_finds_the_build_in_spite_of_the_cost_of_a_place(bisected):
    n_right = 0
    for seed in range(20):
        search, truth = Search(9), 1 + seed % 8
        bisected([CHANGE * 2 * (build >= truth) for build in range(9)], search, seed)
        n_right += search.found and search.between == (truth - 1, truth)

    assert n_right >= 17
