from datetime import date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

from benchkit.errors import UsageError
from benchkit.store.arrow import records_to_table
from benchkit.store.filters import Selection, check_names, matching, parse_moment, workload_matcher

MIDNIGHT = datetime(2026, 8, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "value",
    [
        "2026-08-01",
        "2026-08-01T00:00Z",
        "2026-08-01 02:00+02:00",
        date(2026, 8, 1),
        datetime(2026, 8, 1),
        MIDNIGHT,
        pd.Timestamp("2026-08-01"),
        np.datetime64("2026-08-01"),
    ],
)
def test_parse_moment_accepts_times(value):
    assert parse_moment(value) == MIDNIGHT


@pytest.mark.parametrize(
    ("age", "seconds"),
    [("7d", 604800), ("12h", 43200), ("30m", 1800), ("2w", 1209600), (timedelta(hours=1), 3600)],
)
def test_parse_moment_accepts_ages(age, seconds):
    before = datetime.now(timezone.utc)

    moment = parse_moment(age)

    assert timedelta(0) <= moment + timedelta(seconds=seconds) - before < timedelta(minutes=5)


@pytest.mark.parametrize(
    "value", ["soon", "", "7 parsecs", "2026-13-01", None, 7, pd.NaT, "9" * 30 + "d"]
)
def test_parse_moment_rejects_other_values_with_examples(value):
    with pytest.raises(UsageError, match=r"is not a time: use 2026-11-20.* 7d"):
        parse_moment(value)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("array.sum", "array.sum", True),
        ("array.sum", "array.sum[chunks=thin]", True),
        ("array.sum", "array.summary", False),
        ("array.sum[chunks=thin]", "array.sum[chunks=thin]", True),
        ("array.sum[chunks=thin]", "array.sum[chunks=thick]", False),
        ("array.*", "array.sum[chunks=thin]", True),
        ("*[chunks=th*]", "array.sum[chunks=thin]", True),
        ("array.su?", "array.sum", True),
        ("array.su?", "array.sums", False),
        ("ARRAY.*", "array.sum", False),
        ("array.[s]*", "array.sum", False),
    ],
)
def test_workload_matcher_matches_names(pattern, name, fits):
    assert workload_matcher(pattern)(name) is fits


@pytest.fixture
def table():
    return records_to_table(
        [
            {
                "id": "a",
                "workload": "array.sum[n=1]",
                "environment": "main",
                "started": "2026-08-01",
                "n_workers": 2,
                "tags": '{"variant": "A", "n": 3, "slow": true}',
                "params": '{"n": 1}',
            },
            {
                "id": "b",
                "workload": "frame.join",
                "environment": "dev-2",
                "started": "2026-08-02",
                "n_workers": 4,
                "tags": '{"variant": "B", "n": 3.0}',
            },
            {"id": "c", "workload": "frame.join"},
        ]
    )


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        ({}, "abc"),
        ({"workload": "frame.*"}, "bc"),
        ({"workload": ["array.sum", "frame.join"]}, "abc"),
        ({"runs": ["c", "z"]}, "c"),
        ({"since": "2026-08-02"}, "b"),
        ({"before": "2026-08-02"}, "a"),
        ({"where": {"environment": "main"}}, "a"),
        ({"where": {"environment": "dev-*"}}, "b"),
        ({"where": {"environment": ["main", "dev-*"]}}, "ab"),
        ({"where": {"id": ["a", "c", "z"]}}, "ac"),
        ({"where": {"id": ["a", "[b]*", "c?"]}}, "a"),
        ({"where": {"id": []}}, ""),
        ({"where": {"n_workers": 2}}, "a"),
        ({"where": {"n_workers": "4"}}, "b"),
        ({"where": {"n_workers": [2, 4]}}, "ab"),
        ({"where": {"variant": "A"}}, "a"),
        ({"where": {"n": 3}}, "ab"),
        ({"where": {"n": "1"}}, "a"),
        ({"where": {"slow": True}}, "a"),
        ({"where": {"slow": "true"}}, "a"),
        ({"where": {"tags": {"variant": "B"}}}, "b"),
        ({"where": {"variant": "A", "environment": "dev-*"}}, ""),
        ({"where": {"nothing_like_it": "A"}}, ""),
    ],
)
def test_matching_combines_all_filters(table, selection, ids):
    matched = table["id"].to_numpy()[matching(table, Selection(**selection))]

    assert "".join(matched) == ids


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"started": "2026-08-01"}, "since= and until="),
        ({"n_workers": "two"}, "n_workers is a number"),
        ({"tags": "A"}, "give a dict"),
    ],
)
def test_matching_rejects_values_of_wrong_type(table, where, message):
    with pytest.raises(UsageError, match=message):
        matching(table, Selection(where=where))


def test_check_names_suggests_nearest_name():
    table = records_to_table(
        [{"id": "a", "tags": '{"variant": "A", "slow": true}', "params": '{"n": 1}'}, {"id": "b"}]
    )
    fields = ["environment", "workload"]

    check_names(table, {"environment": "a", "variant": "A", "slow": "true"}, fields)
    with pytest.raises(UsageError, match=r"'environmant' is not a field.*mean 'environment'"):
        check_names(table, {"environmant": "a"}, fields)
    with pytest.raises(UsageError, match="did you mean 'variant'"):
        check_names(table, {"varianx": "A"}, fields)


@pytest.mark.parametrize("wanted", ["bad", ["ok", "bad"]])
def test_check_names_refuses_an_outcome_that_does_not_exist(wanted):
    table = records_to_table([{"id": "a", "outcome": "ok"}])

    check_names(table, {"outcome": ["ok", "time*"]}, ["outcome"])
    with pytest.raises(UsageError) as error:
        check_names(table, {"outcome": wanted}, ["outcome"])
    assert str(error.value) == (
        "no outcome named 'bad': outcomes are ok, wrong_answer, failed, timeout, lost_workers, "
        "infrastructure, skipped"
    )


def test_check_names_accepts_any_name_in_empty_store():
    assert check_names(records_to_table([]), {"variant": "A"}, ["environment"]) is None
