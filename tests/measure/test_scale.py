"""Sizes of data for a cluster."""

import pytest

from benchkit.measure.errors import InvalidParameterError
from benchkit.measure.scale import Scale, linear

GIB = 2**30


@pytest.mark.parametrize("template", [("x", "x"), ("x", 100), (10, "2x", "x"), ("x", "1MiB")])
@pytest.mark.parametrize("nbytes", [2 * GIB, 77 * GIB])
def test_linear_shape_has_requested_size(template, nbytes):
    shape = linear(nbytes, template)

    size = 8
    for dimension in shape:
        size *= dimension
    assert size == pytest.approx(nbytes, rel=0.1)


def test_quadratic_equals_linear_at_reference():
    one, four = (Scale(nbytes, threads=2, workers=2) for nbytes in (GIB, 4 * GIB))

    assert one.quadratic(1, GIB, ("x", "x")) == linear(GIB, ("x", "x"))
    assert four.quadratic(1, GIB, ("x",))[0] == pytest.approx(2 * GIB / 8, rel=0.01)


def test_linear_rejects_unreachable_size():
    with pytest.raises(InvalidParameterError, match="more than 10 % off"):
        linear(100, ("x", 1000))


def test_chunk_is_proportional_to_memory_of_thread():
    small, large = Scale(2 * GIB, 2, 2), Scale(8 * GIB, 2, 2)

    assert large.chunk("128 MiB") == pytest.approx(4 * small.chunk("128 MiB"), rel=0.01)
    assert small.linear(0.5) == GIB


def test_linear_bytes_are_not_below_the_share():
    assert Scale(2 * GIB, 2, 2, 0.2).linear(1) >= 0.1 * 4 * GIB
