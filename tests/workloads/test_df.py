"""The checks of the DataFrame workloads."""

import pandas as pd
import pytest
from helpers.wrong_results import item, nan, prove, proved_here, series_with


def first_off(values):
    values[0] += 1


def two_swapped(values):
    values[[0, 1]] = values[[1, 0]]


def one_moved(values):
    values[0] += 1
    values[1] -= 1


def named(name, change):
    """Change one value of a Series by its name in the index."""

    def spoil(series):
        return pd.Series({**series.to_dict(), name: change(series[name])})

    return spoil


def cell(name, change, row=0):
    """Change one value of a frame."""

    def spoil(frame):
        values = frame[name].tolist()
        values[row] = change(values[row])
        return frame.assign(**{name: values})

    return spoil


def in_another_order(frame):
    return frame.iloc[[1, 0, *range(2, len(frame))]]


def one_more(number):
    return number + 1


def one_lost(result):
    return result.iloc[1:]


WRONG = {
    "df.align": {
        "a mean is of something": item("mean", series_with(lambda means: means.fill(0.0))),
        "a column is lost": item("mean", one_lost),
        "a row is lost": item("rows", lambda rows: rows - 1),
        "a difference is there": item("count", one_more),
    },
    "df.filter": {
        "a row is lost": item("rows", lambda rows: rows - 1),
        "a row is another": item("total", lambda total: total + 0.01),
        "not a number": item("total", nan),
    },
    "df.cow_chain": {
        "a column is lost": cell("columns", lambda count: count - 1),
        "a row is lost": cell("rows", lambda count: count - 1),
        "a word was not replaced": cell("new", lambda count: count - 1),
        "a partition was not converted": cell("float32", lambda count: count - 1),
        "a column of floats is of another type": cell("float64", lambda count: count - 1),
        "a column of integers is of another type": cell("int64", one_more),
        "a gap was not filled": cell("floats", nan),
        "values of neighbouring columns are swapped": cell("floats", lambda total: total + 0.5),
        "an integer is off": cell("integers", one_more),
    },
    "df.drop_duplicates": {
        "a key is lost": one_lost,
        "a key is there twice": lambda keys: pd.concat([keys, keys.iloc[:1]]),
        "a key is another": series_with(first_off),
        "keys of two rows are swapped": series_with(two_swapped),
    },
    "df.value_counts": {
        "a key is lost": one_lost,
        "a row is lost": series_with(first_off),
        "a row is of another key": series_with(one_moved),
    },
    "df.sort_values": {
        "a row is lost": cell("rows", lambda rows: rows - 1),
        "a row is torn apart": cell("product", lambda product: product + 0.01),
        "a payload is not a number": cell("product", nan),
        "not sorted inside": cell("is_sorted", lambda _: False),
        "partitions are swapped": in_another_order,
    },
    "df.groupby_high_cardinality": {
        "a group is lost": named("groups", lambda groups: groups - 1),
        "a sum is off": named("sums", lambda total: total + 0.01),
        "sums of two groups are swapped": named("by_key", lambda total: total * (1 + 1e-8)),
        "a mean is not a number": named("means", nan),
    },
    "df.rolling": {
        "a row is lost": cell("rows", lambda rows: rows - 1),
        "a mean is off": cell("total", lambda total: total + 0.01),
        "a border was not seen": cell("head", lambda head: head + 0.01, row=1),
        "a mean is not a number": cell("total", nan),
    },
    "df.merge_asof": {
        "a trade is lost": named("rows", lambda rows: rows - 1),
        "a quote is too old": named("quoted", one_more),
        "a quote is another": named("total", lambda total: total + 0.01),
        "quotes are swapped": named("product", lambda total: total + 0.01),
    },
    "df.repartition_uneven": {
        "a row is lost": cell("rows", lambda rows: rows - 1),
        "a row is another": cell("total", one_more),
        "not sorted inside": cell("is_sorted", lambda _: False),
        "partitions are swapped": in_another_order,
    },
    "df.to_from_array_delayed": {
        "a row is lost": one_lost,
        "rows are swapped": in_another_order,
        "columns are swapped": lambda frame: frame[frame.columns[::-1]],
        "a value is not a number": cell("float_1", nan),
    },
    "df.rideshare_eda": {
        "a trip is lost": item("rows", lambda rows: rows - 1),
        "a gap was filled": item("missing", lambda share: share - 1e-6),
        "a trip is another company's": item("companies", series_with(one_moved)),
        "companies have changed names": item("tips", lambda tips: tips.set_axis(tips.index[::-1])),
        "a tip was counted twice": item("tips", cell("sum", one_more)),
        "a share is off": item("tipped", series_with(first_off)),
        "a trip is of another zone": item("by_zone", cell("count", one_more)),
        "a mean is not a number": item("by_zone", cell("mean", nan)),
        "a mile is lost": item("miles", lambda miles: miles - 0.01),
        "a longest trip is lost": item("longest", one_lost),
    },
    "df.nunique": {"one is lost": lambda count: count - 1, "one is counted twice": one_more},
}


@pytest.mark.parametrize("variant", proved_here(WRONG), ids=lambda variant: variant.name)
def test_check_rejects_wrong_results(client, variant):
    prove(client, variant, WRONG)
