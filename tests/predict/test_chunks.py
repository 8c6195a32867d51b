"""Larger chunks: tasks of a group are merged in pairs, where that is another size of the chunks."""

from itertools import pairwise

import numpy as np
import pytest

from benchkit.errors import UsageError
from benchkit.predict.chunks import CHUNKS_NOTE, CHUNKS_REACH, with_larger_chunks
from benchkit.predict.whatif import WhatIf, what_if
from benchkit.predict.workflow import Workflow
from validation.graph_runs import MadeTask, graph_run


def mapped_run(tmp_path, order=range(8), **options):
    """Return a run of 8 tasks of 1 s on 2 workers, 8 that use one result each, and their sum."""
    tasks = [MadeTask(f"a-{n}", n // 2, n // 2 + 1, worker=n % 2, thread=n % 2, nbytes=n)
             for n in range(8)]  # fmt: skip
    tasks += [MadeTask(f"b-{place}", 4 + place // 2, 5 + place // 2, [f"a-{n}"], worker=place % 2,
                       thread=place % 2) for place, n in enumerate(order)]  # fmt: skip
    tasks.append(MadeTask("sum-0", 8, 9, [f"b-{n}" for n in range(8)]))
    return graph_run(tmp_path, tasks, duration=9, n_workers=2, wanted=[[16]], **options)


def edges_of(graph):
    return [graph.indices[a:b].tolist() for a, b in pairwise(graph.indptr)]


@pytest.mark.parametrize(
    ("chunks", "workers", "seconds"),
    [("2x", 2, 9.0), (4, 2, 9.0), ("8x", 2, 17.0), ("2x", 4, 5.0), ("4x", 4, 9.0)],
)
def test_larger_chunks_leave_fewer_tasks_to_run_at_a_time(tmp_path, chunks, workers, seconds):
    answer = what_if(mapped_run(tmp_path), chunks=chunks, workers=workers)

    [found] = answer.predictions
    assert found.seconds == pytest.approx(seconds, rel=0.02)
    assert found.high / found.seconds >= np.exp(CHUNKS_REACH) - 1e-9
    assert found.change == f"--workers {workers} --chunks {chunks}"
    assert answer.note == CHUNKS_NOTE


def test_merged_tasks_use_the_results_of_merged_tasks(tmp_path):
    order = [3, 0, 7, 1, 5, 2, 6, 4]
    given = Workflow.of(mapped_run(tmp_path, order))

    merged = with_larger_chunks(given, 2)
    graph = merged.graph

    assert [graph.group_names[group] for group in graph.group] == ["a"] * 4 + ["b"] * 4 + ["sum"]
    assert sorted(edges_of(graph)[4:8]) == [[0], [1], [2], [3]]
    assert edges_of(graph)[8] == [4, 5, 6, 7]
    assert merged.seconds.tolist() == pytest.approx([2] * 8 + [1])
    assert graph.nbytes[:4].tolist() == [1, 5, 9, 13]
    assert graph.submissions["wanted"][0].tolist() == [8]
    assert (graph.indices < np.repeat(np.arange(len(graph)), np.diff(graph.indptr))).all()
    assert merged.merged.tolist()[:8] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_odd_task_of_a_group_stays_alone(tmp_path):
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(5)]
    given = Workflow.of(graph_run(tmp_path, tasks, duration=5))

    assert with_larger_chunks(given, 2).seconds.tolist() == pytest.approx([2, 2, 1])
    assert with_larger_chunks(given, 4).seconds.tolist() == pytest.approx([4, 1])
    assert with_larger_chunks(given, 4).merged.tolist() == [0, 0, 0, 0, 1]


def test_second_graph_waits_for_the_merged_results_of_the_first(tmp_path):
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(4)]
    tasks += [MadeTask(f"b-{n}", 6 + n, 7 + n) for n in range(4)]
    run = graph_run(
        tmp_path, tasks, duration=10, submissions=[(0, 4), (6, 4)],
        wanted=[[0, 1, 2, 3], [4, 5, 6, 7]],
    )  # fmt: skip

    assert WhatIf(run).predict(chunks="2x", workers=2).seconds == pytest.approx(2 + 2 + 2)
    graph = with_larger_chunks(Workflow.of(run), 2).virtual_graph(run, np.full(4, 2.0))
    assert [(each.tasks, each.wanted, each.after) for each in graph.submissions] == [
        ([0, 1], [0, 1], -1), ([2, 3], [2, 3], 1),
    ]  # fmt: skip


def shared_inputs(tmp_path):
    """Return a run whose results are each used by two tasks of a group, as those of a rechunk."""
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(2)]
    tasks += [MadeTask(f"b-{n}", 2 + n, 3 + n, ["a-0", "a-1"]) for n in range(2)]
    return graph_run(tmp_path, tasks, duration=4)


def chain(tmp_path):
    tasks = [MadeTask(f"a-{n}", n, n + 1) for n in range(3)]
    tasks += [MadeTask(f"c-{n}", 3 + n, 4 + n, [f"a-{n}", *([f"c-{n - 1}"] * (n > 0))])
              for n in range(3)]  # fmt: skip
    return graph_run(tmp_path, tasks, duration=6)


def single(tmp_path):
    return graph_run(tmp_path, [MadeTask("a-0", 0, 1)], duration=1)


def bound(tmp_path):
    return mapped_run(tmp_path, options={3: {"priority": 9}})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (shared_inputs, "several tasks of b use each result of a .rechunk, shuffle"),
        (chain, "each task of c waits for the one before it"),
        (single, "no task group has several tasks"),
        (bound, "its tasks have workers or priorities of their own"),
    ],
)
def test_graphs_that_other_chunks_would_change_are_refused(tmp_path, make, message):
    with pytest.raises(UsageError, match=f"chunks: {message}"):
        WhatIf(make(tmp_path)).predict(chunks="2x")


def test_result_that_all_tasks_use_may_stay(tmp_path):
    tasks = [MadeTask("mean-0", 0, 1)]
    tasks += [MadeTask(f"b-{n}", 1 + n, 2 + n, ["mean-0"]) for n in range(4)]
    given = Workflow.of(graph_run(tmp_path, tasks, duration=5))

    assert edges_of(with_larger_chunks(given, 2).graph) == [[], [0], [0]]


@pytest.mark.parametrize("chunks", ["3x", "0.5x", "1x", "x", 0, 2.5, "2 x"])
def test_chunks_that_are_no_power_of_two_are_refused(tmp_path, chunks):
    with pytest.raises(UsageError, match=r"must be 2x, 4x, 8x, \.\.\.: tasks are merged in pairs"):
        WhatIf(mapped_run(tmp_path)).predict(chunks=chunks)
