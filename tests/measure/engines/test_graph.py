"""Graphs that a client of another engine submitted."""

import numpy as np

from benchkit.measure.engines.graph import UNKNOWN, Graph, Submission, SubmittedTask


def submission(received, *tasks, wanted=(), **options):
    rows = [SubmittedTask(key, dependencies, n) for n, (key, dependencies) in enumerate(tasks)]
    return Submission(received, received, rows, wanted, options)


def edges(graph):
    """Return the numbers of each node's dependencies."""
    return [list(each) for each in graph.dependencies]


def test_tasks_become_nodes_with_their_dependencies():
    sent = submission(1.0, ("a", ()), ("b", ()), ("c", ("a", "b", "a", "c")), wanted=["c"])

    graph = Graph([sent], [("a", 1.1), ("b", 1.2), ("c", 1.3)])

    assert graph.keys == ["a", "b", "c"]
    assert edges(graph) == [[], [], [0, 1]]  # a task that names itself depends on nothing more
    assert graph.wanted == [2]
    assert set(graph.pairs()) == {("c", "a"), ("c", "b")}


def test_result_of_an_earlier_submission_is_the_same_node():
    graph = Graph(
        [submission(1.0, ("a", ())), submission(2.0, ("a", ()), ("b", ("a",)))],
        [("a", 1.1), ("b", 2.1)],
    )

    assert graph.keys == ["a", "b"]
    assert edges(graph) == [[], [0]]


def test_task_that_is_computed_again_is_another_node():
    executions = [("a", 1.1), ("a", 2.1), ("b", 2.2)]
    graph = Graph(
        [submission(1.0, ("a", ())), submission(2.0, ("a", ()), ("b", ("a",)))], executions
    )

    assert graph.keys == ["a", "a", "b"]
    assert edges(graph) == [[], [], [1]]
    assert [graph.node_of(key, begin) for key, begin in executions] == [0, 1, 2]


def test_task_submitted_twice_before_it_runs_is_one_node():
    graph = Graph([submission(1.0, ("a", ())), submission(2.0, ("a", ()))], [("a", 3.0)])

    assert graph.keys == ["a"]


def test_data_from_before_the_clock_are_nodes_without_an_order():
    graph = Graph([submission(1.0, ("a", ("data",)), wanted=["a"])], [("a", 1.1)])

    assert graph.keys == ["a", "data"]
    assert edges(graph) == [[1], []]
    assert graph.orders == [0, -1]


def test_task_that_the_client_did_not_submit_has_no_node():
    graph = Graph([submission(1.0, ("a", ()))], [("a", 1.1), ("inner", 1.2)])

    assert graph.node_of("inner", 1.2) == UNKNOWN
    # The clocks of workers differ: an execution may seem to begin before it was submitted.
    assert graph.node_of("a", 0.999) == 0


def test_tables_have_a_row_for_each_node_and_submission():
    graph = Graph(
        [submission(1.0, ("a", ()), wanted=["a"]), submission(2.0, ("b", ("a",)), priority=3)], []
    )

    tables = graph.tables({"a": 7, "b": 8}.__getitem__)

    nodes = {name: np.frombuffer(values, np.int32) for name, values in tables["nodes"].items()}
    assert {name: values.tolist() for name, values in nodes.items()} == {
        "group": [7, 8],
        "n_dependencies": [0, 1],
        "order": [0, 0],
    }
    assert np.frombuffer(tables["dependencies"], np.int32).tolist() == [0]
    assert np.frombuffer(tables["submissions"]["first_node"], np.int32).tolist() == [0, 1]
    assert np.frombuffer(tables["submissions"]["received"]).tolist() == [1.0, 2.0]
    assert tables["node_options"] == [(1, '{"priority": 3}')]


def test_tables_after_another_graph_have_its_numbers_before():
    graph = Graph([submission(1.0, ("a", ()), ("b", ("a",)), wanted=["b"])], [])

    tables = graph.tables({"a": 0, "b": 0}.__getitem__, 10)

    assert np.frombuffer(tables["dependencies"], np.int32).tolist() == [10]
    assert np.frombuffer(tables["wanted"], np.int32).tolist() == [11]
    assert np.frombuffer(tables["submissions"]["first_node"], np.int32).tolist() == [10]
