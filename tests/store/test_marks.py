import json

import pytest

from benchkit.errors import UnknownRun, UsageError
from benchkit.measure.run_ids import new_id
from benchkit.store.marks import KINDS, active_marks, new_mark

THIN, SQUARE = "array.basic_sum[chunks=thin]", "array.basic_sum[chunks=square]"


def excluded_days(store):
    """Return the days of August whose runs are not comparable."""
    frame = store.runs(comparable=False)
    return [moment.day for moment in frame["started"]]


def test_runs_without_marks_are_comparable(filled):
    frame = filled.runs()

    assert frame["comparable"].tolist() == [True] * 6
    assert frame["reason"].tolist() == [""] * 6


@pytest.mark.parametrize(
    ("what", "days"),
    [
        ({"before": "2026-08-03"}, [1, 2]),
        ({"before": "2026-08-03T02:00:00+00:00"}, [1, 2]),
        ({"before": "2026-08-06", "workload": "array.*"}, [1, 2, 4, 5]),
        ({"before": "2026-08-06", "workload": "array.basic_sum"}, [1, 2, 4, 5]),
        ({"before": "2026-08-06", "workload": THIN}, [1, 4]),
        ({"before": "2026-08-06", "where": {"environment": "dev-*"}}, [4, 5]),
        ({"before": "2026-08-06", "where": {"variant": "B"}}, [2, 4]),
        ({"before": "2026-08-06", "where": {"chunks": "thin"}}, [1, 4]),
        ({}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_bankruptcy_excludes_selected_earlier_runs(filled, what, days):
    filled.mark("bankruptcy", reason="new disks", **what)

    assert excluded_days(filled) == days
    assert set(filled.runs(comparable=False)["reason"]) <= {"new disks"}


@pytest.mark.parametrize(
    ("kind", "what", "message"),
    [
        ("bankruptcy", {"where": {"variant": "Z"}}, "mark bankruptcy: variant=Z: matches no runs"),
        ("accept", {"workload": "frame.jion"}, "'frame.jion': matches no runs: did you mean"),
        ("exclude", {"workload": "x.*"}, "mark exclude: 'x.*': matches no runs: see `benchkit"),
        ("rename", {"from_": "frame.jo", "to": "b"}, "mark rename: 'frame.jo': matches no runs"),
        (
            "rename",
            {"from_": "mainn", "to": "b", "field": "environment"},
            "mark rename: environment=mainn: matches no runs",
        ),
        (
            "accept",
            {"workload": "frame.join", "metric": "durration"},
            "mark accept: no metric named 'durration': did you mean 'duration'?",
        ),
    ],
)
def test_mark_refuses_names_that_match_no_run(filled, kind, what, message):
    with pytest.raises(UsageError) as caught:
        filled.mark(kind, **what)

    assert message in str(caught.value)
    assert filled.marks() == []


def test_bankruptcy_keeps_later_runs(filled, make_run):
    filled.mark("bankruptcy")
    later = make_run(groups=False, started="2100-01-01T00:00:00+00:00")

    filled.add(later)

    assert filled.runs(comparable=True)["id"].tolist() == [later.attrs["id"]]


def test_exclude_selects_runs_by_id_or_its_beginning(filled):
    first, second = filled.runs()["id"][:2]

    filled.mark("exclude", runs=first, reason="laptop on battery")
    filled.mark("exclude", runs=[second], reason="wrong machine")

    frame = filled.runs(comparable=False, columns=["id", "reason"])
    assert frame["id"].tolist() == [first, second]
    assert frame["reason"].tolist() == ["laptop on battery", "wrong machine"]


def test_exclude_rejects_unknown_run(filled):
    with pytest.raises(UnknownRun):
        filled.mark("exclude", runs=["ffffffff"])
    assert filled.marks() == []


def test_undo_cancels_a_mark_and_another_undo(filled):
    mark = filled.mark("exclude", workload="frame.join")
    assert excluded_days(filled) == [3, 6]

    undo = filled.mark("undo", mark=mark, by="me")
    assert excluded_days(filled) == []

    filled.mark("undo", mark=undo)
    assert excluded_days(filled) == [3, 6]
    assert [mark["kind"] for mark in filled.marks()] == ["exclude", "undo", "undo"]


def test_undo_rejects_unknown_mark(filled):
    with pytest.raises(UsageError, match="no mark"):
        filled.mark("undo", mark=new_id())
    filled.mark("exclude", workload="frame.join")
    with pytest.raises(UsageError, match="no mark"):
        filled.mark("undo", mark="../store")


def test_accept_is_stored_and_changes_no_run(filled):
    filled.mark("accept", workload="frame.join", metric="duration", at="2026-08-03", reason="safer")

    assert excluded_days(filled) == []
    (mark,) = filled.marks()
    assert mark["at"] == "2026-08-03T00:00:00+00:00"
    assert mark["metric"] == "duration"


def test_rename_changes_workload_of_all_variants(filled):
    filled.mark("rename", from_="array.basic_sum", to="reduction.column_sum")

    frame = filled.runs("reduction.*")

    assert frame["workload"].unique().tolist() == [
        "reduction.column_sum[chunks=thin]",
        "reduction.column_sum[chunks=square]",
    ]
    assert set(frame["category"]) == {"reduction"}
    assert filled.runs("array.*").empty
    assert len(filled.runs("frame.join")) == 2
    assert set(filled.runs("frame.join")["category"]) == {"frame"}


def test_rename_changes_a_single_variant(filled):
    filled.mark("rename", from_=THIN, to="array.thin_sum")

    assert len(filled.runs("array.thin_sum")) == 2
    assert len(filled.runs(SQUARE)) == 2


def test_rename_changes_parameter(filled):
    filled.mark("rename", field="parameter", from_="chunks", to="shape", workload="array.*")

    frame = filled.runs("array.basic_sum[shape=thin]")

    assert len(frame) == 2
    assert frame["params"].tolist() == ['{"shape": "thin"}'] * 2
    assert len(filled.runs(shape="square")) == 2


def test_rename_changes_environment(filled):
    filled.mark("rename", field="environment", from_="dev-2026.9", to="main")

    assert len(filled.runs(environment="main")) == 6


def test_marks_are_applied_in_order_of_creation(filled):
    filled.mark("exclude", workload="frame.join", reason="before the rename")
    filled.mark("rename", from_="frame.join", to="frame.merge")
    filled.mark("exclude", workload="frame.join", reason="former name")

    assert set(filled.runs("frame.merge")["reason"]) == {"before the rename"}


def test_runs_omits_columns_that_only_marks_need(filled):
    filled.mark("exclude", where={"variant": "A"})
    filled.mark("rename", from_="frame.join", to="frame.merge")

    frame = filled.runs("frame.merge", columns=["duration", "comparable"])

    assert frame.columns.tolist() == ["duration", "comparable"]
    assert frame["comparable"].tolist() == [False, True]


@pytest.mark.parametrize(
    ("kind", "what", "message"),
    [
        ("exclud", {}, "did you mean 'exclude'"),
        ("exclude", {}, "select runs by"),
        ("exclude", {"workloads": "x"}, "did you mean 'workload'"),
        ("exclude", {"before": "soon"}, "is not a time"),
        ("rename", {"from_": "a"}, "to is missing"),
        ("rename", {"from_": "a", "to": "b", "field": "host"}, "workload, parameter, environment"),
        ("undo", {}, "mark is missing"),
        ("accept", {}, "workload is missing"),
    ],
)
def test_new_mark_rejects_invalid_mark(kind, what, message):
    with pytest.raises(UsageError, match=message):
        new_mark(kind, **what)


def test_mark_rejects_values_that_are_not_json(filled):
    with pytest.raises(UsageError, match="texts and numbers"):
        filled.mark("exclude", where={"variant": object()})
    assert filled.marks() == []


def test_mark_writes_every_kind(filled):
    what = {
        "accept": {"workload": "frame.join"},
        "bankruptcy": {},
        "decide": {"workload": "frame.join", "verdict": "noise", "evidence": ["0198f2"]},
        "exclude": {"workload": "frame.*"},
        "rename": {"from": "frame.join", "to": "y"},
        "threshold": {"workload": "frame.*", "metric": "duration", "size": "10%"},
    }
    made = {kind: filled.mark(kind, by="me", **what[kind]) for kind in KINDS if kind != "undo"}
    made["undo"] = filled.mark("undo", mark=made["rename"])

    assert {mark["kind"]: mark["id"] for mark in filled.marks()} == made


def test_active_marks_ignores_order_of_files():
    marks = [new_mark("exclude", workload="a"), new_mark("exclude", workload="b")]
    marks.append(new_mark("undo", mark=marks[0]["id"]))

    assert active_marks(marks) == active_marks(marks[::-1]) == [marks[1]]


@pytest.mark.parametrize(
    "mark",
    [
        {"kind": "exclude", "before": "soon"},
        {"kind": "exclude", "where": {"started": 1}},
        {"kind": "exclude", "where": "nonsense"},
        {"kind": "rename"},
    ],
)
def test_runs_skips_invalid_stored_mark_with_warning(filled, mark):
    mark |= {"id": new_id()}
    filled.files.create(f"marks/{mark['id']}.json", json.dumps(mark).encode())

    with pytest.warns(UserWarning, match=f"mark {mark['id']}: skipped"):
        assert len(filled.runs()) == 6


def test_runs_ignores_marks_of_newer_benchkit(filled):
    mark = {"id": new_id(), "kind": "blessing", "workload": "*"}
    filled.files.create(f"marks/{mark['id']}.json", json.dumps(mark).encode())

    assert filled.runs()["comparable"].all()
    assert filled.marks() == [mark]
