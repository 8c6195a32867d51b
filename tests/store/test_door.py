"""A store takes only runs whose variables are as the tables say."""

import json
from pathlib import Path

import pytest

from benchkit.errors import UnreadableRun, UsageError
from benchkit.store.interchange.results import import_results
from benchkit.store.runfile import encode_tree
from benchkit.store.storage import index_record, run_name
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

OLD_STORES = sorted((Path(__file__).parents[1] / "data").glob("1*"))


def text_duration(tree):
    tree["duration"] = tree["duration"].astype(str).assign_attrs(tree["duration"].attrs)


def other_units(tree):
    tree["duration"].attrs["units"] = "ms"


def other_dims(tree):
    groups = tree["task_groups"].to_dataset()
    tree["task_groups"] = groups.assign(nbytes=groups["nbytes"].isel(task_group=0, drop=True))


def text_in_record(tree):
    tree.attrs["record"] = json.dumps({**json.loads(tree.attrs["record"]), "duration": "long"})


CASES = [
    (text_duration, r"duration is text, must be a number"),
    (other_units, r"duration has units 'ms', must be 's'"),
    (other_dims, r"task_groups/nbytes has dimensions \(\), must be \(task_group\)"),
    (text_in_record, r"duration of its record is 'long', must be a number"),
]


@pytest.mark.parametrize(("damage", "message"), CASES)
def test_add_refuses_a_run_that_differs_from_the_tables(tmp_path, damage, message):
    store, tree = Store(tmp_path), make_run(n_samples=3, n_tasks=6)
    damage(tree)

    for add in (store.add, lambda tree: store.add_many([tree])):
        with pytest.raises(UsageError, match=message):
            add(tree)

    assert list(store.files.walk("runs")) == []


@pytest.mark.parametrize(("damage", "message"), CASES)
def test_copy_and_check_refuse_such_a_file(tmp_path, damage, message):
    source, target = Store(tmp_path / "source"), Store(tmp_path / "target")
    good, tree = source.add(make_run(groups=False)), make_run(n_samples=3, n_tasks=6)
    damage(tree)
    data = encode_tree(tree)
    run_id = tree.attrs["id"]
    source.files.create(run_name(run_id), data)

    assert [text for text in source.check().unreadable if run_id in text]
    assert source.ids() == [good]
    source.index.add_existing(index_record(json.loads(tree.attrs["record"]), data))
    with pytest.raises(UnreadableRun, match=f"{message}: not copied; everything else was"):
        source.copy(target)
    assert target.ids() == [good]


@pytest.mark.parametrize("folder", OLD_STORES, ids=lambda folder: folder.name)
def test_import_takes_runs_of_earlier_formats(tmp_path, folder):
    store, target = Store(folder), Store(tmp_path)

    assert import_results(target, folder).added == len(store.ids())
    for run_id in target.ids():
        target.open(run_id)
