"""A run with wrong contents is left out with its reason; everything else is judged and shown."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchkit.cli.main import benchkit as main
from benchkit.store.runfile import encode_tree
from benchkit.store.storage import index_record, run_name
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

N_NIGHTS, FIRST_SLOW = 34, 28


def add_past_the_door(store, tree):
    """Store a run as a release without checks did."""
    record, data = json.loads(tree.attrs["record"]), encode_tree(tree)
    store.files.create(run_name(record["id"]), data)
    store.index.add_existing(index_record(record, data))
    return record["id"]


def text_instead_of_duration(tree):
    tree["duration"] = tree["duration"].astype(str).assign_attrs(tree["duration"].attrs)


def other_dimensions(tree):
    groups = tree["task_groups"].to_dataset()
    tree["task_groups"] = groups.assign(nbytes=groups["nbytes"].isel(task_group=0, drop=True))


def damaged_attributes(tree):
    tree.attrs |= {"packages": "{", "config": "[", "environment_spec": "nonsense", "tags": "{"}


NOT_MEASURED = (
    "--no-measure", "--no-report", "--no-confirm", "--json", "--metric", "duration", "--quiet",
)  # fmt: skip


def add_quickly(store, trees):
    """Store runs without waiting for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        store.add_many(trees)


#: Workload -> damage of its runs from the night before the change; the last one has none.
DAMAGES = {
    "planted.text": text_instead_of_duration,
    "planted.dims": other_dimensions,
    "planted.attrs": damaged_attributes,
    "planted.good": None,
}
#: Workloads that stay as they are: a change of all would be one of the machine.
STABLE = [f"stable.w{number}" for number in range(8)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store with workloads that became slower at once, three with bad runs since then."""
    store = Store(tmp_path_factory.mktemp("store"))
    rng, trees, store.bad = np.random.default_rng(0), [], {}
    for night in range(N_NIGHTS):
        if night == FIRST_SLOW - 1:  # the first night that is judged has no events
            add_quickly(store, trees)
            trees = []
            run(store, "nightly", *NOT_MEASURED, "--output", tmp_path_factory.mktemp("out"))
        moment = pd.Timestamp("2026-03-01T02:00") + pd.Timedelta(days=night)
        dask = "2026.3.0" if night < FIRST_SLOW else "2026.4.0"
        for workload in (*DAMAGES, *STABLE):
            damage = DAMAGES.get(workload)
            slow = workload in DAMAGES and night >= FIRST_SLOW
            tree = make_run(
                workload,
                groups=workload in DAMAGES and night >= FIRST_SLOW - 3,
                n_samples=3,
                n_tasks=6,
                duration=float((13 if slow else 10) * rng.lognormal(sigma=0.004)),
                started=f"{moment.isoformat()}+00:00",
                tags={"night": moment.isoformat()},
                packages_hash=dask,
                dask=dask,
                attrs={"packages": json.dumps({"dask": dask})},
            )
            if damage and night >= FIRST_SLOW - 1:
                damage(tree)
                store.bad.setdefault(workload, []).append(add_past_the_door(store, tree))
            else:
                trees.append(tree)
    add_quickly(store, trees)
    return store


def run(store, *words, codes=(0,)):
    """Run a command; return its output; fail on a traceback or another exit code."""
    result = CliRunner().invoke(main, [*map(str, words), "--store", str(store.path)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    assert result.exit_code in codes, result.output
    return result


def test_nightly_judges_and_publishes_the_other_series(store, tmp_path):
    words = ("--publish", tmp_path / "site", "--output", tmp_path)
    result = run(store, "nightly", *NOT_MEASURED, *words, codes=(1,))

    opened = {row["workload"] for row in json.loads(result.stdout) if row["kind"] == "opened"}
    assert opened == set(DAMAGES)
    summary = (tmp_path / "summary.md").read_text()
    for workload in ("planted.text", "planted.dims"):
        assert any(run_id in summary for run_id in store.bad[workload])
    assert len(list((tmp_path / "site/w").glob("*.html"))) == len(DAMAGES) + len(STABLE)
    assert "planted.good" in run(store, "regressions").output


def test_compare_shows_all_rows(store):
    result = run(
        store,
        "compare",
        "--baseline",
        "dask:2026.3.0",
        "--contender",
        "dask:2026.4.0",
        codes=(0, 1),
    )

    assert all(workload in result.output for workload in DAMAGES)


@pytest.mark.parametrize("workload", DAMAGES)
def test_diagnose_has_no_traceback(store, workload):
    run_id = store.bad.get(workload, ["latest"])[-1]
    result = run(store, "diagnose", run_id, codes=(0, 3))

    if workload in ("planted.text", "planted.dims"):
        assert "not as a run of this format" in result.output
