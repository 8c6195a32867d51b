"""The content of a store is a set: copies commute, associate and change nothing when repeated."""

import itertools

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchkit.measure.run_ids import derived_id
from benchkit.store.marks import encode_mark, new_mark
from benchkit.store.runfile import encode_run
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from validation.synthetic_runs import make_run

pytestmark = pytest.mark.slow
NIGHT = 1785549600.0
TREES = [
    make_run(
        ["array.sum[chunks=thin]", "array.sum[chunks=square]", "frame.join"][number % 3],
        groups=False,
        id=derived_id(NIGHT + number, str(number)),
        duration=10.0 + number,
    )
    for number in range(4)
]
FILES = {run_name(tree.attrs["id"]): encode_run(tree)[2] for tree in TREES}
MARKS = [
    new_mark("exclude", runs=[TREES[0].attrs["id"]], reason="disk"),
    new_mark("rename", from_="array.sum", to="array.total"),
    new_mark("rename", from_="array.total", to="array.whole"),
    new_mark("bankruptcy", workload="frame.*", before="2026-08-02"),
]
MARKS.append(new_mark("undo", mark=MARKS[0]["id"]))
FILES |= {f"marks/{mark['id']}.json": encode_mark(mark) for mark in MARKS}

#: Files of a store, and whether its index was compacted.
CONTENT = st.tuples(st.sets(st.sampled_from(sorted(FILES))), st.booleans())
numbers = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder for stores."""
    return tmp_path_factory.mktemp("algebra")


def make_store(folder, content):
    """Return a store of some files."""
    names, is_compacted = content
    store = Store(folder / str(next(numbers)))
    store.create()
    for name in names:
        store.files.create(name, FILES[name])
    store.check()  # lists the runs
    if is_compacted:
        store.compact()
    return store


def united(folder, *stores):
    """Return a new store into which stores were copied in this order."""
    target = Store(folder / str(next(numbers)))
    for store in stores:
        store.copy(target)
    return target


def assert_equal(one, other):
    """Require equal files, tables and marks."""
    for store in (one, other):
        assert store.check(repair=False).healthy
    content = [
        {name: s.files.read(name) for name in s.files.walk() if name.startswith(("runs", "marks"))}
        for s in (one, other)
    ]
    assert content[0] == content[1]
    pd.testing.assert_frame_equal(one.runs(), other.runs())
    assert one.marks() == other.marks()


@given(CONTENT, CONTENT)
def test_copy_is_commutative(folder, left, right):
    one, other = make_store(folder, left), make_store(folder, right)

    assert_equal(united(folder, one, other), united(folder, other, one))


@given(CONTENT, CONTENT, CONTENT)
def test_copy_is_associative(folder, first, second, third):
    a, b, c = (make_store(folder, content) for content in (first, second, third))

    assert_equal(united(folder, united(folder, a, b), c), united(folder, a, united(folder, b, c)))


@given(CONTENT, CONTENT)
def test_copy_is_idempotent(folder, left, right):
    one, other = make_store(folder, left), make_store(folder, right)
    once = united(folder, one, other)
    before = once.runs()

    assert one.copy(once) == other.copy(once) == once.copy(once) == 0

    assert_equal(once, united(folder, one, other))
    pd.testing.assert_frame_equal(once.runs(), before)
