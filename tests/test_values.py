"""Values of the index."""

import pytest

from benchkit.values import decode_json


@pytest.mark.parametrize("text", [None, float("nan"), "", "[1]", "{"])
def test_decode_json_of_anything_but_an_object_is_empty(text):
    assert decode_json(text) == {}


def test_decode_json_returns_object():
    assert decode_json('{"n": 1}') == {"n": 1}
