import json
import re

import pytest

from benchkit.cli.agents.tools import StoreTools
from benchkit.cli.compare import compare_command
from benchkit.errors import InvalidSelectionError, NotEnoughRuns, UsageError
from benchkit.store.filters import (
    KEYS,
    PAIR_KEYS,
    pair_workloads,
    parse_selection,
    select_runs,
    select_sets,
)


def test_select_runs_applies_filters(filled):
    assert len(select_runs(filled, "env:main")) == 3
    assert len(select_runs(filled, "env:main,tag:variant=A")) == 2
    assert len(select_runs(filled, "workload:frame.*")) == 2
    assert len(select_runs(filled, "param:chunks=thin")) == 2


@pytest.mark.parametrize(("key", "field"), [("commit", "git_commit"), ("build", "packages_hash")])
def test_select_runs_accepts_beginning_of_hash(store, make_run, key, field):
    store.add(make_run(groups=False, **{field: "abc123def"}))
    store.add(make_run(groups=False, **{field: "fff"}))

    assert len(select_runs(store, f"{key}:abc12")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("main", "'main' must be KEY:VALUE"),
        ("evn:main", "unknown key 'evn': did you mean 'env'?"),
        ("tag:A", "must be tag:NAME=VALUE"),
        ("env:a,env:b", "environment is given twice"),
        ("env:a,evn:b", "unknown key 'evn': did you mean 'env'?"),
        ("env:", "must be KEY:VALUE"),
    ],
)
def test_parse_selection_rejects_invalid_text(text, message):
    with pytest.raises(InvalidSelectionError) as caught:
        parse_selection(text)

    assert message in str(caught.value)


@pytest.mark.parametrize("help_text", [compare_command.help, StoreTools.list_rows.__doc__])
def test_help_names_all_keys(help_text):
    keys = {*KEYS, *PAIR_KEYS} - {"environment"}  # a longer word for env

    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", help_text)] == []


def test_parse_selection_names_all_keys_for_an_unknown_one():
    with pytest.raises(InvalidSelectionError, match=r"use env, .*, since, until, tag, param$"):
        parse_selection("id:3")


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("tag:scale=10GB", {"tags": {"scale": "10GB"}}),
        ("arm:n=4,saturation=inf,env:a,b", {"arm": "n=4,saturation=inf", "environment": "a,b"}),
        ("param:n=1,tag:n=2", {"params": {"n": "1"}, "tags": {"n": "2"}}),
        ("tag:label=a,b,env:main", {"tags": {"label": "a,b"}, "environment": "main"}),
        ("tag:path=C:\\d,x:y", {"tags": {"path": "C:\\d,x:y"}}),
        ("workload:a.b[x=(1, 2),y=3],env:main", {"workload": "a.b[x=(1, 2),y=3]",
                                                 "environment": "main"}),
    ],
)  # fmt: skip
def test_parse_selection_keeps_tags_apart_and_commas_together(text, filters):
    assert parse_selection(text) == filters


FIELDS = ["scale", "cluster", "version", "host", "dask", "python", "environment", "arm", "block"]


@pytest.mark.parametrize("name", [*FIELDS, "seed", "cost", "duration", "workload", "since"])
def test_select_runs_reads_tag_named_like_field(store, make_run, name):
    for size in ("10GB", "100GB"):
        store.add(make_run(groups=False, tags={name: size}))

    assert list(select_runs(store, f"tag:{name}=10GB")["tags"]) == [json.dumps({name: "10GB"})]
    assert list(store.runs(tags={name: "100GB"})["tags"]) == [json.dumps({name: "100GB"})]


def test_select_runs_reads_tuple_of_parameter(store, make_run):
    names = ["mine.sum[chunks=(1, 2)]", "mine.sum[chunks=(3,)]"]
    for name, chunks in zip(names, [[1, 2], [3]], strict=True):
        store.add(make_run(name, groups=False, params={"chunks": chunks}))

    for name, value in zip(names, ["(1, 2)", "(3,)"], strict=True):
        assert list(select_runs(store, f"param:chunks={value}")["workload"]) == [name]
        assert list(select_runs(store, f"workload:{name}")["workload"]) == [name]


def test_runs_of_variant_named_with_star_are_its_own(store, make_run):
    for value in ("*", "ab"):
        store.add(make_run(f"mine.sum[glob={value}]", groups=False))

    assert list(store.runs("mine.sum[glob=*]")["workload"]) == ["mine.sum[glob=*]"]
    assert len(store.runs("mine.sum[glob=?b]")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env:nope", "env:nope matches no runs; environments here: main, dev-2026.9"),
        ("env:mainn,since:30d", "env:mainn matches no runs: did you mean 'main'?"),
        ("tag:variant=Z", "tag:variant=Z matches no runs; values of variant here: A, B"),
        ("category:x", "category:x matches no runs; categories here: array, frame"),
    ],
)
def test_select_runs_names_what_exists(filled, text, message):
    with pytest.raises(NotEnoughRuns) as caught:
        select_runs(filled, text)

    assert str(caught.value) == message


def test_select_runs_refuses_unknown_tag(filled):
    with pytest.raises(UsageError, match=r"^'varyant' is not a tag of these runs: did you mean"):
        select_runs(filled, "tag:varyant=A")


def test_select_runs_may_be_empty_for_a_time(filled):
    assert select_runs(filled, "env:main,until:2026-01-01").empty


def test_select_sets_have_workloads_without_the_selected_parameters(store, make_run):
    for method in ("apply", "sum"):
        name = f"etl.agg[method={method},n=10]"
        store.add(make_run(groups=False, workload=name, params={"method": method, "n": 10}))
    store.add(make_run(groups=False, workload="etl.other", params={}))

    sets = select_sets(store, ["param:method=apply", "param:method=sum", "workload:etl.other"])

    assert [frame["workload"].tolist() for frame in sets.values()] == [
        ["etl.agg[n=10]"],
        ["etl.agg[n=10]"],
        ["etl.other"],
    ]
    assert select_sets(store, ["workload:etl.agg*"])["workload:etl.agg*"]["workload"].tolist() == [
        "etl.agg[method=apply,n=10]",
        "etl.agg[method=sum,n=10]",
    ]


def runs_of(store, make_run, rows):
    for arm, workload in rows:
        store.add(make_run(workload, groups=False, arm=arm))
    return store.runs()


def test_pair_workloads_removes_swept_parameters(store, make_run):
    rows = [("method=sum", "t.g[method=sum,n=1]"), ("method=apply", "t.g[method=apply,n=1]")]
    runs = runs_of(store, make_run, [*rows, ("null", "t.g[method=sum,n=1]")])

    assert set(pair_workloads(runs)["workload"]) == {"t.g[n=1]"}


def test_pair_workloads_keeps_parameters_named_like_a_swept_setting(store, make_run):
    """The arms set the workers of the cluster; the parameter of the workload has the same name."""
    rows = [
        (f"n_workers={setting}", f"t.g[n_workers={value}]")
        for setting in (2, 4)
        for value in (2, 4)
    ]
    runs = runs_of(store, make_run, rows)

    assert set(pair_workloads(runs)["workload"]) == {"t.g[n_workers=2]", "t.g[n_workers=4]"}
