"""State of tables in the address."""

import pytest

from benchkit.show.dashboard.state.table_state import page_of


@pytest.mark.parametrize(
    ("word", "page"),
    [("2", 2), ("0", 1), ("000002", 2), ("99", 4), ("9" * 5000, 4), ("x", 1), ("", 1), ("٢", 1)],
)
def test_page_of_returns_nearest_existing_page(word, page):
    assert page_of(word, n_rows=100, page_size=25) == page
