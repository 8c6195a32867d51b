"""The checks of the group-by workloads; the check of q5 is tested in `test_answers`."""

import pandas as pd
import pytest
from helpers.wrong_results import (
    VARIANTS,
    nan,
    prove,
    proved_here,
    rows_with,
    series_with,
    swapped_values,
    with_value,
)

from benchkit.measure.errors import WrongAnswer


def a_group_is_lost(frame):
    return frame.iloc[1:]


def columns_wrong(*names):
    """Return ways in which the columns of a result can be wrong."""
    wrong = {"a group is lost": rows_with(a_group_is_lost)}
    for name in names:
        wrong[f"a value of {name} is off"] = with_value(name, lambda value: value * 1.01 + 1)
        wrong[f"a value of {name} is not a number"] = with_value(name, nan)
        wrong[f"two values of {name} are swapped"] = swapped_values(name)
    return wrong


def first_off(values):
    values[0] += 1e-3


def first_not_a_number(values):
    values[0] = float("nan")


def swapped(values):
    values[[0, -1]] = values[[-1, 0]]


SERIES = {
    "a row is lost": rows_with(a_group_is_lost),
    "a value is off": series_with(first_off),
    "a value is not a number": series_with(first_not_a_number),
    "values of two groups are swapped": series_with(swapped),
}
WRONG = {
    "h2o.q1": columns_wrong("v1"),
    "h2o.q2": columns_wrong("v1"),
    "h2o.q3": columns_wrong("v1", "v3"),
    "h2o.q4": columns_wrong("v1", "v2", "v3"),
    "h2o.q6": columns_wrong("median", "std"),
    "h2o.q7": {
        # Ranges are small integers: swapping two equal ones would leave the result correct.
        what: spoil
        for what, spoil in columns_wrong("range").items()
        if "swapped" not in what
    },
    "h2o.q8": SERIES,
    "h2o.q9": SERIES,
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG)


def test_check_accepts_rounding_of_undefined_correlation():
    q9 = {each.workload.name: each.workload for each in VARIANTS}["h2o.q9"]
    known = pd.DataFrame({"id2": [1, 2], "r2": [1e-35, 0.5]})
    names = ["id2", "r2"]

    def check(r2):
        result = pd.Series([r2, 0.5], index=pd.Index([1, 2], name="id2"))
        q9.call("check", result=result, prepared=(names, known))

    check(2e-34)
    with pytest.raises(WrongAnswer, match="r2"):
        check(1e-6)
