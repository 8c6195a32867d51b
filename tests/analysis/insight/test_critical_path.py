"""Critical paths of graphs whose longest path is known."""

import time

import numpy as np
import pytest

from benchkit.analysis.insight import blame as module
from benchkit.analysis.insight.blame import critical_path, finish_times
from benchkit.store import task_graph
from benchkit.store.task_graph import largest_dependency


def graph(*dependencies):
    counts = [len(row) for row in dependencies]
    indices = np.array([other for row in dependencies for other in row], np.int32)
    return np.concatenate([[0], np.cumsum(counts)]).astype(int), indices


def random_graph(n_tasks, rng, reach=50):
    counts = rng.integers(0, 4, n_tasks)
    counts = np.minimum(counts, np.arange(n_tasks))
    owner = np.repeat(np.arange(n_tasks), counts)
    low = np.maximum(owner - reach, 0)
    indices = (low + rng.random(len(owner)) * (owner - low)).astype(np.int32)
    return np.concatenate([[0], np.cumsum(counts)]), indices


def slow_finish(indptr, indices, seconds):
    finish = []
    for node, own in enumerate(seconds):
        before = [finish[i] for i in indices[indptr[node] : indptr[node + 1]]]
        finish.append(own + max(before, default=0.0))
    return finish


def test_path_is_the_longest_chain():
    # 0 -> 2 -> 4 takes 1 + 5 + 1 s, 1 -> 3 -> 4 takes 2 + 3 + 1 s.
    indptr, indices = graph([], [], [0], [1], [2, 3], [])

    path, length = critical_path(indptr, indices, np.array([1.0, 2.0, 5.0, 3.0, 1.0, 6.5]))

    assert path.tolist() == [0, 2, 4]
    assert length == 7.0


def test_path_of_one_task_and_of_no_task():
    indptr, indices = graph([], [])
    path, length = critical_path(indptr, indices, np.array([np.nan, 2.0]))
    assert (path.tolist(), length) == ([1], 2.0)
    path, length = critical_path(np.zeros(1, int), np.zeros(0, int), np.zeros(0))
    assert (path.tolist(), length) == ([], 0.0)


@pytest.mark.parametrize("block", [1, 7, 256, 10_000])
@pytest.mark.parametrize("reach", [1, 2, 10, 100, 1000])
def test_finish_times_are_exact_for_each_size_of_block(reach, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        indptr, indices = random_graph(2000, rng, reach)
        seconds = rng.exponential(size=2000)

        finish = finish_times(indptr, indices, seconds)

        assert finish.tolist() == slow_finish(indptr, indices, seconds)


@pytest.mark.parametrize("width", [1, 2, 30])
def test_path_of_a_million_tasks_in_chains_is_the_longest_chain(width):
    n_tasks = 1_000_000
    counts = np.ones(n_tasks, int)
    counts[:width] = 0
    indptr, indices = np.concatenate([[0], np.cumsum(counts)]), np.arange(n_tasks - width)
    seconds = np.random.default_rng(0).integers(1, 100, n_tasks).astype(float)
    begin = time.process_time()

    path, length = critical_path(indptr, indices, seconds)

    # 0.3 s on an idle machine; other processes share the memory of this one.
    assert time.process_time() - begin < 4
    sums = [seconds[first::width].sum() for first in range(width)]
    assert length == max(sums)
    assert path.tolist() == list(range(int(np.argmax(sums)), n_tasks, width))


@pytest.mark.parametrize("block", [1, 7, 10_000])
def test_path_is_a_chain_of_dependencies(block, monkeypatch):
    monkeypatch.setattr(task_graph, "LARGE_BLOCK", block)
    rng = np.random.default_rng(2)
    indptr, indices = random_graph(500, rng)
    seconds = rng.exponential(size=500)

    path, length = critical_path(indptr, indices, seconds)

    assert len(path) > 10
    assert length == pytest.approx(max(slow_finish(indptr, indices, seconds)))
    assert length == pytest.approx(seconds[path].sum())
    for task, other in zip(path[1:], path[:-1], strict=True):
        assert other in indices[indptr[task] : indptr[task + 1]]


def test_largest_dependency_ignores_unknown_values():
    indptr, indices = graph([], [], [0, 1], [0], [])
    values = np.array([2.0, np.nan, 0.0, 0.0, 0.0])
    assert largest_dependency(indptr, indices, values).tolist() == [-1, -1, 0, 0, -1]


def test_path_of_a_million_tasks_takes_seconds():
    rng = np.random.default_rng(0)
    indptr, indices = random_graph(1_000_000, rng, reach=10_000)
    seconds = rng.exponential(size=1_000_000)
    begin = time.process_time()

    path, length = critical_path(indptr, indices, seconds)

    # 0.3 s on an idle machine; other processes share the memory of this one.
    assert time.process_time() - begin < 5
    assert length == pytest.approx(seconds[path].sum())
    assert (np.diff(path) > 0).all()
