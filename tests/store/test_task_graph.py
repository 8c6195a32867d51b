"""The recorded graph: rows of a sparse matrix as differences, and sizes."""

import numpy as np
import pytest

from benchkit.store.task_graph import TaskGraph, decode_rows, encode_rows


@pytest.mark.parametrize("n_edges", [0, 1, 5, 3000])
def test_decode_rows_inverts_encode_rows(n_edges):
    rng = np.random.default_rng(n_edges)
    owners = np.sort(rng.integers(0, 500, n_edges))
    indptr = np.searchsorted(owners, np.arange(501))
    indices = np.concatenate(
        [np.sort(rng.integers(0, 2**30, count)) for count in np.diff(indptr)]
    ).astype(np.int32)

    encoded = encode_rows(indptr, indices)

    assert encoded.dtype == np.int32
    assert decode_rows(indptr, encoded).tolist() == indices.tolist()


def test_encode_rows_is_constant_for_regular_graphs():
    # A tree reduction by pairs: node i of the second layer depends on 2 i and 2 i + 1.
    indptr = np.concatenate([np.zeros(8, int), np.arange(0, 9, 2)])
    assert encode_rows(indptr, np.arange(8)).tolist() == [0, 1, 2, 1, 2, 1, 2, 1]


def test_sizes_of_submissions_can_be_multiplied(a_run):
    submissions = TaskGraph.of(a_run).submissions

    assert a_run["submissions/n_nodes"].dtype == np.int32
    for name in ("first_node", "n_nodes", "nbytes"):
        assert submissions[name].dtype == np.int64
