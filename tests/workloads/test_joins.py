"""The checks of the joins and sorts that are not among the first twelve."""

import numpy as np
import pytest
from helpers.wrong_results import edges_with, nan, prove, proved_here, rows_with, with_value


def a_sorted_partition_is_not(edges):
    return edges.assign(is_sorted=edges.index != 1)


WRONG = {
    "join.join_big_small": {
        "a match is lost": with_value("rows", lambda rows: rows - 1),
        "a match is of another key": with_value("keys", lambda keys: keys + 1),
        "a column is lost": with_value("cells", lambda cells: cells - 1),
        "a row has another's payload": with_value("product", lambda product: product + 0.01),
        "a payload is not a number": with_value("product", nan),
        "a partition is lost": rows_with(lambda frame: frame[frame["rows"] > 0].iloc[1:]),
    },
    "join.set_index_rideshare": {
        "a row is lost": edges_with(
            lambda edges: edges.assign(rows=edges["rows"] - (edges.index == 0))
        ),
        "a row is torn apart": edges_with(
            lambda edges: edges.assign(product=edges["product"] * (1 + 1e-7))
        ),
        "not sorted inside": edges_with(a_sorted_partition_is_not),
        "a zone beyond its division": edges_with(
            lambda edges: edges.assign(high=edges["high"] + 300)
        ),
        "a value is not a number": edges_with(lambda edges: edges.assign(product=np.nan)),
        "a partition is lost": edges_with(lambda edges: edges.iloc[:-1]),
    },
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG)
