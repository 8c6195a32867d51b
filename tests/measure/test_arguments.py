"""Arguments as commands, Python functions and papermill pass them."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from benchkit.measure.arguments import (
    check_count,
    check_mapping,
    check_scale,
    check_seconds,
    check_tags,
    check_text,
    list_of,
)
from benchkit.measure.errors import UsageError


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ("tip", ["tip"]),
        ('["tip", "release"]', ["tip", "release"]),
        (" [] ", []),
        ("", []),
        (None, []),
        (Path("w"), [Path("w")]),
        (("a", "b"), ["a", "b"]),
        ((name for name in "ab"), ["a", "b"]),
    ],
)
def test_list_of_returns_items(value, items):
    assert list_of(value, "names") == items


@pytest.mark.parametrize("value", ["[tip", 3, 1.5, True, {"a": 1}, b"tip", [1], '["a", null]'])
def test_list_of_refuses_other_values(value):
    with pytest.raises(UsageError) as caught:
        list_of(value, "names")

    assert str(caught.value) == (
        f"names={value!r}: must be a list of texts; papermill takes -y '{{names: [first, second]}}'"
    )


@pytest.mark.parametrize("value", [1, 1.0, 0.25, np.float32(0.5)])
def test_check_scale_returns_number(value):
    assert check_scale(value) == float(value)


@pytest.mark.parametrize("value", [0, -1, 2, float("nan"), "big", "0.5", None, True])
def test_check_scale_refuses_other_values(value):
    with pytest.raises(UsageError, match=r"scale=.*: must be a number above 0 and up to 1"):
        check_scale(value)


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", None, True])
def test_check_count_refuses_other_values(value):
    assert check_count(np.int64(3), "repeats") == 3
    with pytest.raises(UsageError, match=r"repeats=.*: must be a whole number, 1 or more"):
        check_count(value, "repeats")


@pytest.mark.parametrize("value", [0, -3, "ten", float("inf"), float("nan"), True])
def test_check_seconds_refuses_other_values(value):
    assert check_seconds(None, "deadline_s") is None
    with pytest.raises(UsageError, match=r"deadline_s=.*: must be a number of seconds above 0"):
        check_seconds(value, "deadline_s")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (12345, "run=12345: must be text; papermill takes -r run VALUE"),
        (" ", "run=' ': is empty: give a name"),
    ],
)
def test_check_text_refuses_other_values(value, message):
    with pytest.raises(UsageError) as caught:
        check_text(value, "run")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [("x", "tags='x': must be a dict"), ({1: "a"}, "tags: key 1 must be text")],
)
def test_check_mapping_refuses_other_values(value, message):
    with pytest.raises(UsageError) as caught:
        check_mapping(value, "tags")
    assert str(caught.value).startswith(message)


def test_check_tags_returns_json_values():
    tags = {"n": np.int64(3), "yes": np.True_, "day": date(2026, 1, 2), "x": 1.5, "a": "b"}

    assert check_tags(tags) == {"n": 3, "yes": True, "day": "2026-01-02", "x": 1.5, "a": "b"}
