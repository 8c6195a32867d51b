"""Simulated totals and call stacks of task groups, on a machine of changing speed."""

import numpy as np

from benchkit.analysis.compare.composition import GroupRuns
from benchkit.analysis.compare.group_totals import GroupTotals
from benchkit.analysis.compare.run_groups import FrameSamples


def group_report(
    rng, n_blocks, *, share=0.15, size=1.1, n_workloads=20, noise=0.02, speed=0.1, cpu=None
):
    """Return workloads of which a share has one group that becomes slower.

    With ``cpu`` processor times are known, and have this noise.

    Returns
    -------
    groups : list of GroupRuns
        The arms baseline, null and contender, of workloads with 4 to 12 groups.
    planted : dict of str to str
        Workload -> the group of 2 to 10 % of the run that is slower in the contender.
    """
    groups, planted = [], {}
    for number in range(n_workloads):
        name, n_groups = f"w{number}", int(rng.integers(4, 13))
        seconds = rng.dirichlet(np.full(n_groups, 0.8)) + 0.003
        seconds[0] = rng.uniform(0.02, 0.10) / 0.9 * seconds[1:].sum()
        level = noise * rng.lognormal(sigma=0.5, size=n_groups)
        block = speed * rng.standard_normal(n_blocks)
        is_planted = rng.random() < share
        if is_planted:
            planted[name] = "g0"
        arms = {}
        for arm in ("baseline", "null", "contender"):
            values = seconds[:, None] * np.exp(
                block
                + 0.5 * speed * rng.standard_normal(n_blocks)
                + level[:, None] * rng.standard_normal((n_groups, n_blocks))
            )
            works = np.full_like(values, np.nan)
            if cpu is not None:
                works = seconds[:, None] * np.exp(cpu * rng.standard_normal(values.shape))
            if arm == "contender" and is_planted:
                values[0] *= size
                works[0] *= size
            arms[arm] = [
                {f"g{g}": GroupTotals(100 * run[g], 10 * (g + 1), 1e6, 100 * work[g])
                 for g in range(n_groups)}
                for run, work in zip(values.T, works.T, strict=True)
            ]  # fmt: skip
        groups.append(GroupRuns(name, "b", arms))
    return groups, planted


def score_groups(table, planted):
    """Return numbers of rows of shares: found, false, planted ones found, right groups first."""
    called = table[table["metric"].isin(["group_share", "group_cpu_share"])]
    called = called[called["verdict"].isin(["more", "less"])]
    called = called.drop_duplicates(["workload", "group"])
    right = sum(planted.get(row.workload) == row.group for row in called.itertuples())
    named = called.drop_duplicates("workload")
    hits = [planted.get(row.workload) == row.group for row in named.itertuples()]
    planted_hits = [hit for hit, w in zip(hits, named["workload"], strict=True) if w in planted]
    return len(called), len(called) - right, right, sum(planted_hits), len(planted_hits)


def _samples(rng, shares, *, noise=0.1, total=1000):
    """Return the samples of a group in one run: leaves below two callers and a task."""
    shares = shares * np.exp(noise * rng.standard_normal(shares.size))
    counts = {("task", "own.py"): 0}
    depths = {("task", "own.py"): 1.0}
    for leaf, count in enumerate(rng.multinomial(total, shares / shares.sum()).tolist()):
        for frame, depth in (("task", 1), (f"caller{leaf % 2}", 2), (f"leaf{leaf}", 3)):
            key = frame, "own.py" if frame == "task" else "lib.py"
            counts[key] = counts.get(key, 0) + count
            depths[key] = float(depth)
    return FrameSamples(total, counts, depths)


def frame_arms(rng, size, n_runs=5, **options):
    """Return samples of a group of 12 functions by arm; the fourth is slower in the contender."""
    shares = rng.dirichlet(np.full(12, 0.7)) + 0.02
    after = shares * np.where(np.arange(12) == 3, size, 1)
    return {
        "baseline": [_samples(rng, shares, **options) for _ in range(n_runs)],
        "null": [None, *(_samples(rng, shares, **options) for _ in range(n_runs - 1))],
        "contender": [_samples(rng, after, **options) for _ in range(n_runs)],
    }
