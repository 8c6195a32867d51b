"""Variants of a user's code, measured in turn."""

import time

import pytest
from distributed import Client, LocalCluster

import benchkit
from benchkit.errors import UsageError


def test_interleave_alternates_the_order():
    turns = list(benchkit.interleave(["A", "B"], 3))

    assert [(turn.arm, turn.block) for turn in turns] == [
        ("A", None),
        ("B", None),
        ("A", 0),
        ("B", 0),
        ("B", 1),
        ("A", 1),
        ("A", 2),
        ("B", 2),
    ]
    assert len({turn.experiment for turn in turns}) == 1
    assert next(iter(benchkit.interleave(["A"]))).experiment != turns[0].experiment


@pytest.mark.parametrize(("arms", "repeats"), [(["A", "A"], 2), (["A"], 0), (["A"], 1.5)])
def test_interleave_refuses_invalid_arguments(arms, repeats):
    with pytest.raises(UsageError):
        list(benchkit.interleave(arms, repeats))


@pytest.mark.slow
def test_interleaved_records_are_compared_by_block(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    with LocalCluster(1, processes=False, dashboard_address=None) as cluster, Client(cluster) as c:
        for turn in benchkit.interleave(["short", "long"], 4):
            with turn.record(c, workload="nap", store=store):
                time.sleep({"short": 0.1, "long": 1.0}[turn.arm])

    runs = store.runs()
    assert runs["block"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3], "warm-ups are not recorded"
    report = benchkit.compare(store.runs(arm="short"), store.runs(arm="long"))
    assert report.blocked
    assert not [text for text in report.warnings if "interleaved" in text]
    row = report.frame.set_index("metric").loc["duration"]
    assert row["verdict"] == "slower"
    assert row["ratio"] > 3  # ten times the sleep; a busy machine adds to both


def test_compare_by_block_needs_blocks(tmp_path):
    store = benchkit.Store(tmp_path / "store")
    with LocalCluster(1, processes=False, dashboard_address=None) as cluster, Client(cluster) as c:
        for arm in "AB":
            with benchkit.record(c, workload="nap", store=store, arm=arm):
                pass

    with pytest.raises(UsageError, match="not all runs have a block"):
        benchkit.compare(store.runs(arm="A"), store.runs(arm="B"), blocked=True)
