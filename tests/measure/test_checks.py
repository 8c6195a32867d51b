"""`expect`: the comparison of a result with the known answer."""

from __future__ import annotations

import pytest

from benchkit.measure import expect
from benchkit.measure.errors import WrongAnswer


def test_expect_compares_with_none():
    expect(None, equals=None)

    with pytest.raises(WrongAnswer, match=r"^result: 3, expected None$"):
        expect(3, equals=None)
    with pytest.raises(WrongAnswer, match=r"^rows: None, expected 3$"):
        expect(None, equals=3, what="rows")


def test_expect_without_expectation_names_the_arguments():
    with pytest.raises(TypeError, match=r"^expect: pass equals=, close_to=, at_least= or at_most="):
        expect(3)
