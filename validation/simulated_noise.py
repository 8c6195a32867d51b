"""Noise of many kinds, for calibrations: logarithms of run times without any change."""

import numpy as np

from benchkit.analysis.design import LOOKS, next_step
from benchkit.analysis.effects import compare

#: Kinds in which runs are independent of each other and of time.
INDEPENDENT = ("lognormal", "skewed", "bimodal", "outliers", "heavy_tailed")
#: Share of the time in which threads wait at a load of 16 on two processors.
USUAL_WAIT = 7 / 8
#: Kinds that depend on time; they allow a fair comparison only when the arms are interleaved.
IN_TIME = ("drift", "strong_drift", "neighbour", "autocorrelated", "slow_blocks")


def levels(rng, n_tests):
    """Return the noise of one run for each test, 1 to 20 %, mostly near 5 %."""
    return np.clip(0.05 * rng.lognormal(sigma=0.6, size=n_tests), 0.01, 0.2)


def moments(rng, shape, order):
    """Return the time of each run, 0 to 1: blocks in sequence, arms by `order` in each block."""
    _, n_blocks, n_arms = shape
    if order == "sequential":
        place = np.arange(n_arms) * n_blocks + np.arange(n_blocks)[:, None]
        place = np.broadcast_to(place, shape)
    else:
        place = np.argsort(rng.random(shape), axis=2) + n_arms * np.arange(n_blocks)[:, None]
    return place, place / (n_blocks * n_arms - 1)


def make(kind, rng, shape, *, level=None, order="interleaved"):
    """Return log noise, shape (tests, blocks, arms)."""
    sigma = (levels(rng, shape[0]) if level is None else np.broadcast_to(level, shape[:1]))[
        :, None, None
    ]
    noise = sigma * rng.standard_normal(shape)
    place, moment = moments(rng, shape, order)
    if kind == "lognormal":
        return noise
    if kind == "skewed":
        return sigma * (rng.exponential(size=shape) - 1)
    if kind == "bimodal":
        return 0.4 * noise + np.log(1.25) * (rng.random(shape) < 0.3)
    if kind == "outliers":
        return noise + np.log(1.5) * (rng.random(shape) < 0.1)
    if kind == "rare_outliers":
        return noise + np.log(3) * (rng.random(shape) < 0.05)
    if kind == "heavy_tailed":
        return sigma * rng.standard_t(3, size=shape) / np.sqrt(3)
    if kind == "drift":
        return noise + np.log1p(0.10 * moment)
    if kind == "strong_drift":
        return noise + np.log1p(0.20 * moment)
    if kind == "neighbour":
        return noise + np.log(1.2) * (moment > rng.uniform(0.2, 0.8, (shape[0], 1, 1)))
    if kind == "autocorrelated":
        n_runs, keep = shape[1] * shape[2], 0.7
        steps = rng.standard_normal((shape[0], n_runs))
        for i in range(1, n_runs):
            steps[:, i] = keep * steps[:, i - 1] + np.sqrt(1 - keep**2) * steps[:, i]
        flat = np.take_along_axis(steps, place.reshape(shape[0], -1), axis=1)
        return sigma * flat.reshape(shape)
    if kind == "slow_blocks":
        return noise + sigma * rng.lognormal(sigma=0.7, size=(shape[0], 1, 1)) * (
            rng.standard_normal((*shape[:2], 1))
        )
    raise ValueError(kind)


def report(rng, n_blocks, *, n_tests=700, share=0.1, kind="lognormal", mixed=True):
    """Return runs of a whole report in which some rows change by +/- 5, 10 or 20 %.

    Noise is of one kind, or also of four others, each in a tenth of the rows.

    Returns
    -------
    baseline, null, contender : ndarray, shape (tests, blocks)
    changed : ndarray of bool, shape (tests,)
    """
    level = levels(rng, n_tests)
    noise = make(kind, rng, (n_tests, n_blocks, 3), level=level)
    if mixed:
        for i, kind in enumerate(INDEPENDENT[1:]):
            rows = np.arange(n_tests) % 10 == i
            noise[rows] = make(kind, rng, (rows.sum(), n_blocks, 3), level=level[rows])
    changed = rng.random(n_tests) < share
    effect = np.log1p(rng.choice([0.05, 0.10, 0.20], n_tests)) * rng.choice([-1, 1], n_tests)
    noise[:, :, 2] += np.where(changed, effect, 0.0)[:, None]
    unit = rng.lognormal(2, 1, (n_tests, 1))
    return *(unit * np.exp(noise[:, :, i]) for i in range(3)), changed


def workload_report(
    rng, n_blocks, *, correlation, share=0.15, blocked=False, one_metric=False, shape=(100, 7)
):
    """Return runs of a report in which a change moves six in ten metrics of a workload, or one.

    Returns
    -------
    baseline, null, contender : ndarray, shape (tests, blocks)
        Metrics of a workload in successive rows, whose noise is correlated from run to run.
    changed : ndarray of bool, shape (tests,)
        Changes of 5, 10 or 20 %, all metrics of a workload in one direction.
    workload, metric : ndarray of int, shape (tests,)
    """
    n_workloads, n_metrics = shape
    level = levels(rng, n_workloads * n_metrics).reshape(*shape, 1, 1)
    common = rng.standard_normal((n_workloads, 1, n_blocks, 3))
    own = rng.standard_normal((*shape, n_blocks, 3))
    noise = level * (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)
    if blocked:
        slow = rng.lognormal(sigma=0.7, size=(n_workloads, 1, 1, 1))
        noise += level * slow * rng.standard_normal((n_workloads, 1, n_blocks, 1))
    in_changed = rng.random((n_workloads, 1)) < share
    if one_metric:
        moved = np.arange(n_metrics) == rng.integers(n_metrics, size=(n_workloads, 1))
    else:
        moved = rng.random(shape) < 0.6
    changed = in_changed & moved
    effect = np.log1p(rng.choice([0.05, 0.10, 0.20], shape)) * rng.choice([-1, 1], (n_workloads, 1))
    noise[:, :, :, 2] += np.where(changed, effect, 0.0)[:, :, None]
    arms = [np.exp(noise[:, :, :, i]).reshape(-1, n_blocks) for i in range(3)]
    workload, metric = (index.ravel() for index in np.indices(shape))
    return *arms, changed.ravel(), workload, metric


def work_report(rng, n_blocks, n_workloads, *, wall, cpu, follows=0.0, share=0.15, size=0.10):
    """Return runs of a report in which a code change moves duration and CPU seconds.

    Six metrics of a workload in successive rows: duration, mean and peak of memory, CPU seconds of
    workers, scheduler and client. A change is of the tasks (duration and workers), of the
    scheduler (its CPU seconds), or of both numbers of memory.

    Parameters
    ----------
    wall, cpu : float
        Noise of a duration and of CPU seconds; correlated by .3 within a run, and with the noise of
        a block.
    follows : float
        Power of the load with which CPU seconds of a disturbed run rise in addition.

    Returns
    -------
    baseline, null, contender : ndarray, shape (tests, blocks)
    wait_share : ndarray, shape (arms, workloads, blocks)
        Share of the time in which threads wait, `USUAL_WAIT` in the middle; the noise of the
        duration, which has its cause there.
    changed : ndarray of bool, shape (tests,)
    workload, metric : ndarray of int, shape (tests,)
    """
    typical = np.array([wall, 0.02, 0.02, cpu, cpu, cpu])
    level = (typical * rng.lognormal(sigma=0.5, size=(n_workloads, 6)))[:, :, None, None]
    common = rng.standard_normal((n_workloads, 1, n_blocks, 3))
    own = rng.standard_normal((n_workloads, 6, n_blocks, 3))
    noise = level * (np.sqrt(0.3) * common + np.sqrt(0.7) * own)
    noise += 0.7 * level * rng.standard_normal((n_workloads, 1, n_blocks, 1))
    noise[:, 3:] += follows * noise[:, :1]
    longer = noise[:, 0] - np.log(1 - USUAL_WAIT)  # by how much waits prolong a second of work
    wait_share = 1 - np.exp(-np.maximum(longer, 0.01)).transpose(2, 0, 1)
    kind = rng.integers(0, 3, n_workloads)
    moved = np.array([[1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0, 1, 1, 0, 0, 0]], bool)
    changed = moved[kind] & (rng.random(n_workloads) < share)[:, None]
    effect = np.log1p(size) * rng.choice([-1, 1], n_workloads)
    noise[:, :, :, 2] += (changed * effect[:, None])[:, :, None]
    arms = [np.exp(noise[:, :, :, i]).reshape(-1, n_blocks) for i in range(3)]
    workload, metric = (index.ravel() for index in np.indices((n_workloads, 6)))
    return *arms, wait_share, changed.ravel(), workload, metric


def cover_and_reject(rng, kind, n_blocks, *, n_tests=100, n_arms=2, reports=40):
    """Return the number of intervals with the true ratio 1, of false alarms, and of all rows.

    A factor moves an interval and nothing else: coverage does not depend on the true ratio.
    """
    held = wrong = 0
    for _ in range(reports):
        runs = np.exp(make(kind, rng, (n_tests, n_blocks, n_arms)))
        null = runs[:, :, 2] if n_arms == 3 else None
        blocked = kind in IN_TIME
        found = compare(runs[:, :, 0], runs[:, :, 1], null=null, blocked=blocked)
        held += ((found.low <= 1) & (found.high >= 1)).sum()
        wrong += (found.p < 0.05).sum()
    return int(held), int(wrong), reports * n_tests


def changed_experiment(kind, rng, changed):
    """Return runs of two arms at all looks, and the changes of 5, 10 or 20 % of some tests."""
    n_tests = len(changed)
    effect = np.log1p(rng.choice([0.05, 0.10, 0.20], n_tests)) * rng.choice([-1, 1], n_tests)
    level = 0.05 * rng.lognormal(sigma=0.3, size=n_tests)
    logs = make(kind, rng, (n_tests, LOOKS[-1], 2), level=level)
    logs[changed, :, 1] += effect[changed, None]
    return *np.exp(logs).transpose(2, 0, 1), effect


def run_adaptively(a, b):
    """Run an experiment with `next_step`; return decisions and blocks of each test."""
    seen = np.full((2, *a.shape), np.nan)
    steps, n_blocks = np.zeros(len(a), int), np.zeros(len(a), int)
    for before, look in zip((0, *LOOKS), LOOKS, strict=False):
        running = steps == 0
        seen[:, running, before:look] = np.stack([a, b])[:, running, before:look]
        n_blocks[running] = look
        now = next_step(*seen[:, :, :look])
        assert (now[~running] == steps[~running]).all()  # decisions are final
        steps = now
    return steps, n_blocks
